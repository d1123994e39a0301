"""Documents that share a row: attention and positions stay within each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.errors import UserError
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import random_params, small_model

DOCUMENTS = np.array([[1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5], [1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3]], np.int32)
POSITIONS = np.array([[0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 0], [0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]], np.int32)
TOKENS = np.arange(22, dtype=np.int32).reshape(2, 11)  # each once, so that a row of the table is one token's
BATCH = {"inputs": TOKENS, "documents": DOCUMENTS, "positions": POSITIONS}
CHOICES = [
    {"positions": "rotary", "d_model": 12, "n_kv_heads": 1},
    {"positions": "alibi", "window": 3, "attention": "expressive"},
]
ROTARY, ALIBI = (pytest.param(choice, id=choice["positions"]) for choice in CHOICES)


def in_thorough(case):
    return pytest.param(*case.values, id=case.id, marks=pytest.mark.thorough)


def model_of(choice):
    sizes = {"n_layers": 2, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 11, "scan_blocks": True}
    model = transformer_lm(TransformerLMConfig(**{**sizes, **choice}), 23)
    return model, random_params(model.spec)


@pytest.mark.parametrize("choice", [ROTARY, in_thorough(ALIBI)])
def test_the_gradient_of_a_document_is_exactly_zero_for_the_tokens_of_others(choice):
    model, params = model_of(choice)
    chosen = jnp.asarray(np.equal(DOCUMENTS, [[3], [2]]))

    def output(table):
        embedding = {**params["embedding"], "table": table}
        logits = model.apply({**params, "embedding": embedding}, BATCH)
        return jnp.where(chosen[..., None], logits, 0).sum()

    gradient = np.asarray(jax.jit(jax.grad(output))(params["embedding"]["table"]))
    changed = (gradient != 0).any(axis=1)[:22].reshape(2, 11)
    np.testing.assert_array_equal(changed, np.asarray(chosen))


@pytest.mark.parametrize("choice", [in_thorough(ROTARY), ALIBI])
def test_a_document_has_the_logits_that_it_has_alone(choice):
    model, params = model_of(choice)
    packed = np.asarray(jax.jit(model.apply)(params, BATCH))
    rows, alone = np.zeros((8, 11), np.int32), []
    for row in range(2):
        for document in range(1, DOCUMENTS[row].max() + 1):
            tokens = TOKENS[row][DOCUMENTS[row] == document]
            rows[len(alone), : len(tokens)] = tokens
            alone.append(packed[row][DOCUMENTS[row] == document])
    single = jax.jit(model.apply)(params, {"inputs": rows})
    for expected, found in zip(single, alone, strict=True):
        assert_close(found, expected[: len(found)])


def test_attention_that_remembers_all_of_a_row_refuses_documents():
    model, params = small_model(attention="linear", positions="none")
    with pytest.raises(UserError, match=r"documents: model.attention 'linear' remembers .*task.document_mask\) off"):
        jax.eval_shape(model.features, params, BATCH)

"""Packed documents: attention and positions stay within each."""

import functools
import re

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import loss_and_gradient, marked, random_params, random_tokens, some

DOCUMENTS = np.array([[1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5], [1, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3]], np.int32)
POSITIONS = np.array([[0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 0], [0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]], np.int32)
TOKENS = np.arange(22, dtype=np.int32).reshape(2, 11)
IS_TOKEN = np.arange(22).reshape(2, 11) != 11  # padding is in front of a row
BATCH = {"inputs": TOKENS, "documents": DOCUMENTS, "positions": POSITIONS, "input_mask": IS_TOKEN}
ROTARY = {"positions": "rotary", "d_model": 12, "n_kv_heads": 1}
ALIBI = {"positions": "alibi", "window": 3, "attention": "expressive"}


def model_of(choice):
    sizes = {"n_layers": 2, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 11, "scan_blocks": True}
    model = transformer_lm(TransformerLMConfig(**{**sizes, **choice}), 23)
    return model, random_params(model.spec)


@some("choice", ["ROTARY", "ALIBI"], ["ALIBI"])
def test_a_document_has_the_logits_that_it_has_alone_and_padding_in_front_of_it_is_not_read(choice):
    model, params = model_of(globals()[choice])
    forward = jax.jit(model.apply)
    packed = np.asarray(forward(params, BATCH))
    assert np.isfinite(packed).all()
    rows, found = np.zeros((7, 11), np.int32), []
    for row, document in [(0, n) for n in range(1, 6)] + [(1, n) for n in (0, 3)]:
        tokens = TOKENS[row][DOCUMENTS[row] == document]
        rows[len(found), : len(tokens)] = tokens
        found.append(packed[row][DOCUMENTS[row] == document])
    for expected, logits in zip(forward(params, {"inputs": rows}), found, strict=True):
        assert_close(logits, expected[: len(logits)])


@pytest.mark.parametrize(("name", "kind"), [("transformer_lm", "linear"), ("encoder_decoder", "cross")])
def test_attention_to_all_of_a_row_or_source_refuses_documents(name, kind):
    model = fxf.model(name, vocab_size=23, **HEADS, **({"attention": kind} if kind == "linear" else {}))
    message = rf"documents: {kind.title()}Attention of model.blocks reads across .*task.document_mask\) off"
    with pytest.raises(UserError, match=message):
        jax.eval_shape(model.features, random_params(model.spec), BATCH)


NO_TOKEN, SOME = [False] * 5, [True] * 3 + [False] * 2
HEADS = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 5}


@pytest.mark.parametrize("case", marked("rows without weight"))  # test_encoder_decoder.py has one each time
def test_a_row_without_weight_changes_no_bit_of_the_gradient_whatever_its_mask_and_tokens(case):
    name, changes = case["name"], {key: value for key, value in case.items() if key != "name"}
    documents = {"documents": np.array([[1, 1, 2, 2, 0], [0, 0, 1, 1, 0]])} if changes.pop("documents", False) else {}
    model = fxf.model(name, vocab_size=7, **{"positions": "none", **HEADS, **changes})
    params, learn = random_params(model.spec), jax.jit(functools.partial(loss_and_gradient, model, label_smoothing=0.1))
    tokens, side = random_tokens((2, 5), seed=3), "source" if name == "encoder_decoder" else "input"
    weights = np.array([SOME, NO_TOKEN], np.float32)

    def learned(mask, filler):
        inputs = np.stack([tokens[0], filler])
        batch = {"inputs": inputs, "targets": inputs, "weights": weights, f"{side}_mask": np.array([SOME, mask])}
        return learn(params, batch | documents | ({"source": inputs} if side == "source" else {}))

    expected = learned([True] * 5, tokens[1])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(expected))
    for mask, filler in ((NO_TOKEN, np.full(5, 6, np.int32)), ([False] * 3 + [True] * 2, tokens[1])):
        jax.tree.map(np.testing.assert_array_equal, learned(mask, filler), expected)


def test_blocks_of_one_kind_share_a_mask_that_is_computed_once():
    model, params = model_of({"scan_blocks": False, "n_layers": 4, "window": 3, "global_every": 2})
    text = jax.jit(model.apply).lower(params, {"inputs": TOKENS}).as_text()
    assert len(re.findall(r"compare +GE.* -> tensor<1x11x11xi1>", text)) == 2

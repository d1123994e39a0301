"""Models in memory, as `import fxf` gives them."""

from functools import partial

import jax
import numpy as np
import pytest
from fxf.layers.mask import self_mask

import fxf
from fxf.decoding.decoder import Decoder
from fxf.layers.attention import attention, attention_spec
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs import in_memory
from helpers import random_params, random_tokens

SMALL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11}
MODEL = fxf.model("transformer_lm", vocab_size=5, **SMALL)
# Each token follows from the one before.
ROWS = np.array([[1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3, 4], [2, 3, 4, 1, 2, 3]])


def batch(key, step):
    return fxf.language_model_batch(jax.random.permutation(key, ROWS))


def test_a_model_of_plain_keywords_is_that_of_its_config():
    built = transformer_lm(TransformerLMConfig(**SMALL), 5)
    params, inputs = fxf.initialize(MODEL, seed=3), {"inputs": random_tokens((2, 4)) % 5}
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(fxf.initialize(built.spec, seed=3)), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(*jax.jit(lambda p: (MODEL.apply(p, inputs), built.apply(p, inputs)))(params))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"n_layer": 2}, r"model.n_layer: unknown key; did you mean 'n_layers'\?"),
        ({"n_layers": 2.5}, "model.n_layers: expected int, got 2.5"),
        ({"d_model": 7, "n_heads": 2}, "model.n_heads: 2 does not divide model.d_model 7"),
        ({"vocab_size": 0}, "vocab_size: expected an int from 1 to 2147483647, got 0"),
        ({"name": "transformer"}, "model.name: expected one of transformer_lm, .* did you mean 'transformer_lm'"),
    ],
)
def test_what_is_wrong_with_a_model_is_one_line(keys, message):
    with pytest.raises(fxf.UserError, match=message):
        fxf.model(**{"vocab_size": 5, **keys})


def test_a_layer_is_called_with_plain_keywords():
    config = fxf.layer_config(d_model=6, n_heads=2, max_len=7)
    params, x_BTD = fxf.initialize(attention_spec(config)), np.ones((2, 3, 6), np.float32)
    mask = self_mask(config, np.arange(3)[None], causal=True)
    y_BTD, _ = jax.eval_shape(lambda params, x_BTD: attention(config, params, x_BTD, mask), params, x_BTD)
    assert y_BTD.shape == (2, 3, 6)
    with pytest.raises(fxf.UserError, match=r"model.n_head: unknown key; did you mean 'n_heads'\?"):
        fxf.layer_config(n_head=2)


def test_the_batch_of_a_language_model_reads_its_targets_behind_token_0():
    made = fxf.language_model_batch([[3, 1], [2, 4]])
    assert made["inputs"].tolist() == [[0, 3], [0, 2]]
    assert made["weights"].tolist() == [[1, 1], [1, 1]]
    assert fxf.language_model_batch([[3, 1]], [[1, 0]])["weights"].tolist() == [[1, 0]]


PARAMS = random_params(MODEL.spec)


FIT = {"steps": 90, "learning_rate": 3e-2}  # so the fits of these tests have one program in common


@pytest.fixture(scope="module")
def fitted():
    return fxf.fit(MODEL, batch, **FIT, seed=1)


def test_fit_learns_what_the_batches_show(fitted):
    assert fitted.losses.shape == (90,)
    assert fitted.losses[-1] < 0.5 * fitted.losses[0]
    found = fxf.decode(MODEL, fitted.params, [[1, 2], [3], [2, 3, 4]], max_tokens=4)
    assert found == [[3, 4, 1, 2], [4, 1, 2, 3], [1, 2, 3, 4]]


def test_fit_goes_on_from_params_and_leaves_them(fitted):
    before = jax.tree.map(np.array, fitted.params)
    further = fxf.fit(MODEL, batch, **FIT, params=fitted.params)
    assert further.losses[0] < 2 * fitted.losses[-1]
    assert jax.tree.all(jax.tree.map(np.array_equal, before, fitted.params))


def test_fit_draws_all_from_its_seed(fitted):
    same, other = (fxf.fit(MODEL, batch, **FIT, seed=seed) for seed in (1, 2))
    assert np.array_equal(fitted.losses, same.losses)
    # The order of the rows alone, which is drawn too, changes losses by their rounding.
    assert not np.allclose(fitted.losses, other.losses, rtol=1e-3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lerning_rate": 1.0}, r"optimizer.lerning_rate: unknown key; did you mean 'learning_rate'\?"),
        ({"optimizer": "adamm"}, r"optimizer.name: .*did you mean 'adam'\?"),
        ({"steps": 0}, "train.steps: expected at least 1, got 0"),
        (
            {**FIT, "learning_rate": 1e38},
            "step [23]: the loss is (nan|inf); a lower learning_rate may help",
        ),
    ],
)
def test_what_is_wrong_with_a_fit_is_one_line(keys, message):
    with pytest.raises(fxf.UserError, match=message):
        fxf.fit(MODEL, batch, **{"steps": 3, **keys})


@pytest.mark.parametrize("keys", [{}, {"beam_width": 2}])
def test_an_answer_ends_before_the_end_token_or_the_first_of_several(fitted, keys):
    assert fxf.decode(MODEL, fitted.params, [[1, 2], [4]], 3, end_token=4, **keys) == [[3], [1, 2, 3]]
    found = fxf.decode(MODEL, fitted.params, [[1, 2], [4], [2, 3]], max_tokens=3, end_token=[2, 4], **keys)
    assert found == [[3], [1], []]


@pytest.fixture
def one_program(monkeypatch):
    """Lets all calls of a test decode by the same program, as they differ in their arguments alone."""
    monkeypatch.setattr(in_memory, "Decoder", partial(Decoder, programs={}))


@pytest.mark.parametrize("keys", [{}, {"temperature": 1.0}, {"beam_width": 3}], ids=["greedy", "sampled", "beam"])
def test_an_answer_without_an_end_token_has_as_many_tokens_as_are_asked_for_and_allowed(keys):
    prompts, vocab_size = [[1], [2, 3]], 5
    for n in (0, 1, vocab_size + 2):
        answers = fxf.decode(MODEL, PARAMS, prompts, n, no_repeat_ngram=1, **keys)
        assert [len(set(answer)) for answer in answers] == [min(n, vocab_size)] * 2
        assert [len(answer) for answer in answers] == [min(n, vocab_size)] * 2


def test_prompts_stand_behind_the_first_token_or_begin_with_their_own(fitted, one_program):
    expected = fxf.decode(MODEL, fitted.params, [[1, 2], [4]], 3)
    assert fxf.decode(MODEL, fitted.params, [[0, 1, 2], [0, 4]], 3, first_token=None) == expected
    behind_1 = fxf.decode(MODEL, fitted.params, [[2, 3], []], 3, first_token=1)
    assert behind_1 == fxf.decode(MODEL, fitted.params, [[1, 2, 3], [1]], 3, first_token=None)
    with pytest.raises(fxf.UserError, match="prompt 2: it is empty; the model reads at least one token"):
        fxf.decode(MODEL, fitted.params, [[2], []], 3, first_token=None)


def test_an_encoder_reads_the_sources(one_program):
    model = fxf.model("encoder_decoder", vocab_size=5, **SMALL)
    params = random_params(model.spec, seed=2)
    first, second = fxf.decode(model, params, [[1], []], max_tokens=3, sources=[[2, 3, 4], [1]])
    assert first != second
    assert fxf.decode(model, params, [[], [1]], max_tokens=3, sources=[[1], [2, 3, 4]]) == [second, first]


@pytest.mark.parametrize(
    ("arguments", "keys", "message"),
    [
        (([[1, 5]], 2), {}, "prompt 1: expected tokens 0 … 4, got 5"),
        (([[1]], 2), {"first_token": 5}, "prompt 1: expected tokens 0 … 4, got 5"),
        (([[1], [2]], 2), {"sources": [[1]]}, "sources: expected one for each of 2 prompts, got 1"),
        (([[1]], 2), {"top_k": 2}, "decode.top_k"),
        (([[1]], 2), {"beam_widt": 2}, r"decode.beam_widt: unknown key; did you mean 'beam_width'\?"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_one_line(arguments, keys, message):
    with pytest.raises(fxf.UserError, match=message):
        fxf.decode(MODEL, PARAMS, *arguments, **keys)


def test_a_model_that_does_not_generate_is_one_line():
    model = fxf.model("masked_lm", vocab_size=5, **SMALL)
    with pytest.raises(fxf.UserError, match="it has no prefill and step"):
        fxf.decode(model, random_params(model.spec), [[1]], 2)
    assert fxf.decode(MODEL, PARAMS, [], 2) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b | {"inputs": b["inputs"] + 3}, "inputs: expected tokens 0 … 4, got "),
        (lambda b: b | {"weights": b["weights"] * 0}, "weights: expected finite numbers with a sum above 0"),
        (lambda b: {k: np.tile(x, 2) for k, x in b.items()}, "inputs: expected at most 11 tokens in a row, got 12"),
    ],
)
def test_a_batch_from_which_no_model_can_learn(change, message):
    constant = {name: np.asarray(x) for name, x in fxf.language_model_batch(ROWS).items()}

    def wrong(key, step):
        return {name: jax.numpy.asarray(x) for name, x in change(constant).items()}

    with pytest.raises(fxf.UserError, match=f"^(batch: )?{message}"):
        fxf.fit(MODEL, wrong, steps=1, params=PARAMS)


def test_a_batch_is_cut_into_equal_parts():
    with pytest.raises(fxf.UserError, match=r"^microbatches: 2 does not divide the batch's 3 rows$"):
        fxf.fit(MODEL, batch, steps=1, microbatches=2, params=PARAMS)


READER = fxf.model("encoder_decoder", vocab_size=5, **SMALL)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fxf.decode(MODEL, PARAMS, [[1]], 1, end_token=5),
            "end_token: expected one of the tokens 0 … 4, got 5",
        ),
        (lambda: fxf.decode(MODEL, PARAMS, [[1]], 1, end_token=(2, 5)), "end_token: expected one of .*, got 5"),
        (lambda: fxf.language_model_batch(np.ones((2, 3))), r"tokens: expected ints \[B, T\], got float32 \[2, 3\]"),
        (lambda: fxf.language_model_batch(ROWS, np.ones(3)), r"weights: expected \[3, 6\], as tokens, got \[3\]"),
        (lambda: fxf.fit(MODEL, print, steps=1, name="sgd"), "name: the optimizer is named by optimizer="),
        (
            lambda: fxf.decode(READER, random_params(READER.spec), [[1], [1]], 1, sources=[[1], []]),
            "source 2: it is empty; the model reads at least one token",
        ),
        (lambda: fxf.decode(READER, random_params(READER.spec), [[1]], 1, sources=[[1] * 99]), ".*source.* 99"),
        (lambda: fxf.load(None), "workdir: expected a path, got None"),
        (lambda: fxf.train(3, "x"), r"config: expected FILE\[:ARGUMENT\], or a config as .*, got 3"),
        (lambda: fxf.train("reversal", None), "workdir: expected a path, got None"),
        (lambda: fxf.read_config(3), r"config: expected FILE\[:ARGUMENT\] or NAME\[:ARGUMENT\], got 3"),
    ],
)
def test_an_argument_that_is_wrong_is_one_line(call, message):
    with pytest.raises(fxf.UserError, match=f"^{message}"):
        call()

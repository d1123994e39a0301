"""Models in memory, through `import fxf`."""

import dataclasses

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.base.weights import map_weights
from fxf.models.decoder import Decoder
from fxf.runs import compatibility, in_memory
from fxf.runs.experiment import build
from helpers import one_device, random_params, random_tokens
from small_runs import tiny_config

SMALL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11}
MODEL = fxf.model("transformer_lm", vocab_size=5, **SMALL)
PARAMS = random_params(MODEL.spec)
# Each token follows from the previous one.
ROWS = np.array([[1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3, 4], [2, 3, 4, 1, 2, 3]])


def batch(key, step):
    return fxf.language_model_batch(jax.random.permutation(key, ROWS))


def test_a_model_of_plain_keywords_is_that_of_its_config_and_a_run_starts_from_the_same_params():
    experiment = build(tiny_config(model=SMALL, task={"n_tokens": 4}, seed=3))
    inputs = {"inputs": random_tokens((2, 4)) % 5}
    programs = [str(jax.make_jaxpr(model.apply)(PARAMS, inputs)) for model in (MODEL, experiment.model)]
    model = MODEL._replace(spec={"final": MODEL.spec["final"]})  # quick to draw
    state = experiment._replace(model=model).new_state(one_device())
    assert_close(fxf.initialize(model, seed=3), state.params)
    assert (programs[0], state.step) == (programs[1], 0)


def test_a_language_models_inputs_are_token_0_and_its_targets():
    made = fxf.language_model_batch([[3, 1], [2, 4]])
    assert made["inputs"].tolist() == [[0, 3], [0, 2]]
    assert made["weights"].tolist() == [[1, 1], [1, 1]]
    assert fxf.language_model_batch([[3, 1]], [[1, 0]])["weights"].tolist() == [[1, 0]]


def test_an_unread_array_is_named_if_its_name_is_close_to_one_that_models_read(caplog):
    shown = {"inputs": ROWS, "targets": ROWS, "weights": ROWS, "document": ROWS, "rewards": ROWS}
    reading = lambda params, batch, **options: MODEL.features(params, batch, **options) + batch["document"][..., None]  # noqa: E731
    for model in (MODEL, MODEL._replace(features=reading)):
        compatibility.require_batch("batch", shown, model)
    assert caplog.messages == ["warning: batch: document: the model does not read it; did you mean 'documents'?"]


FIT = {"steps": 90, "learning_rate": 3e-2}  # so the fits of these tests share one program


@pytest.fixture(scope="module")
def fitted():
    return fxf.fit(MODEL, batch, **FIT, seed=1)


def test_fit_learns_what_the_batches_show(fitted):
    assert fitted.losses.shape == (90,) and fitted.losses[-1] < 0.5 * fitted.losses[0]
    found = fxf.decode(MODEL, fitted.params, [[1, 2], [3], [2, 3, 4]], max_tokens=MODEL.max_len - 3)
    assert [row[:4] for row in found] == [[3, 4, 1, 2], [4, 1, 2, 3], [1, 2, 3, 4]]
    assert {len(row) for row in found} == {MODEL.max_len - 3}  # the last token needs no position
    with pytest.raises(fxf.UserError, match=f"^max_tokens: 4 tokens and .* more exceed model.max_len {MODEL.max_len}$"):
        fxf.decode(MODEL, fitted.params, [[2, 3, 4]], MODEL.max_len - 2)


def test_fit_compiles_once_for_all_rates_and_arrays_but_anew_for_another_schedule_or_spec(fitted, monkeypatch):
    # The function reads a key and an array, which may change.
    rows, key, keys = [ROWS], jax.random.key(0), FIT | {"frozen": "final/bias"}
    read = lambda _, step: fxf.language_model_batch(jax.random.permutation(jax.random.fold_in(key, step), rows[0]))  # noqa: E731
    first = fxf.fit(MODEL, read, **keys, label_smoothing=0.1).losses
    with monkeypatch.context() as compiling_nothing:
        compiling_nothing.setattr(in_memory, "make_train_steps", None)
        assert np.array_equal(fxf.fit(MODEL, read, **keys, label_smoothing=0.1).losses, first)
        slow = fxf.fit(MODEL, read, **keys | {"learning_rate": 1e-3}, label_smoothing=0.2, seed=1)
        rows[0] = np.zeros_like(ROWS)  # an array of the same shape is an argument
        easy = fxf.fit(MODEL, read, **keys, label_smoothing=0.1)
        with pytest.raises(TypeError, match="NoneType"):
            fxf.fit(MODEL, read, **keys, schedule="cosine")
    assert slow.losses[-1] > first[-1] > easy.losses[-1]
    still = MODEL._replace(spec=map_weights(lambda _, weight: dataclasses.replace(weight, rate=0), MODEL.spec))
    rows[0] = np.array([[1, 2]])
    assert np.ptp(fxf.fit(still, read, **FIT).losses) == 0


def test_fit_starts_from_params_without_changing_them_and_draws_the_rest_by_seed(fitted, monkeypatch):
    before = jax.tree.map(np.array, fitted.params)
    monkeypatch.setattr(in_memory, "evaluated_params", lambda state: int(state.step))
    further, other = (fxf.fit(MODEL, batch, **FIT, params=fitted.params, seed=seed) for seed in (1, 2))
    assert further.losses[0] < 2 * fitted.losses[-1] and further.params == other.params == 90
    assert jax.tree.all(jax.tree.map(np.array_equal, before, fitted.params))
    assert not np.array_equal(further.losses, other.losses)
    assert_close(fxf.fit(MODEL, batch, **FIT, params=fxf.initialize(MODEL, seed=1), seed=1).losses[0], fitted.losses[0])


def test_an_answer_ends_before_the_end_token_or_the_first_of_several(fitted):
    assert fxf.decode(MODEL, fitted.params, [[1, 2], [4]], jax.numpy.int32(3), end_token=4) == [[3], [1, 2, 3]]
    prompts, keys = [[1, 2], [4], [2, 3]], {"end_token": [2, 4], "beam_width": 2}
    assert fxf.decode(MODEL, fitted.params, prompts, max_tokens=3, **keys) == [[3], [1], []]


@pytest.mark.parametrize("keys", [{"temperature": 1.0}, {"beam_width": 3}], ids=["sampled", "beam"])
def test_an_answer_without_an_end_token_has_as_many_tokens_as_are_asked_for_and_allowed(keys):
    prompts, vocab_size = [[1], [2, 3]], 5
    for n in (0, vocab_size + 2):
        answers = fxf.decode(MODEL, PARAMS, prompts, n, no_repeat_ngram=1, **keys)
        assert [(len(answer), len(set(answer))) for answer in answers] == [(min(n, vocab_size),) * 2] * 2


def test_prompts_follow_the_first_token_or_begin_with_their_own(fitted, monkeypatch):
    expected = fxf.decode(MODEL, fitted.params, [[1, 2], [4]], 3)
    assert fxf.decode(MODEL, fitted.params, [[0, 1, 2], [0, 4]], 3, first_token=None) == expected
    behind_1 = fxf.decode(MODEL, fitted.params, [[2, 3], []], 3, first_token=1)
    assert behind_1 == fxf.decode(MODEL, fitted.params, [[1, 2, 3], [1]], 3, first_token=None)
    monkeypatch.setattr(compatibility, "vocab_size_of", None)  # which traces the model, once for all texts
    assert fxf.decode(MODEL, fitted.params, np.array([[1, 2], [3, 3]]), 3, end_token=())[0] == expected[0]
    with pytest.raises(fxf.UserError, match="prompt 2: it is empty; expected at least one token"):
        fxf.decode(MODEL, fitted.params, [[2], []], 3, first_token=None)


def test_an_encoder_reads_the_sources_and_prompts_of_the_same_shapes_compile_once(monkeypatch):
    model = fxf.model("encoder_decoder", vocab_size=5, **SMALL)
    params = random_params(model.spec, seed=2)
    first, second = fxf.decode(model, params, [[1], []], max_tokens=3, sources=[[2, 3, 4], [1]])
    with monkeypatch.context() as compiling_nothing:
        compiling_nothing.setattr(Decoder, "jitted", None)
        assert fxf.decode(model, params, [[], [1]], max_tokens=3, sources=[[1], [2, 3, 4]]) == [second, first]
    assert first != second
    narrow = jax.tree.map(lambda x: x.astype("bfloat16"), params)  # the program of other types is not used
    assert len(fxf.decode(model, narrow, [[], [1]], max_tokens=3, sources=[[1], [2, 3, 4]])) == 2

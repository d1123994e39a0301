"""Positions from a batch, a prompt or the tokens themselves."""

import contextlib

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.layers.positions import POSITIONS
from fxf.models import MODELS
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.testing import assert_cached_equals_full, assert_causal
from helpers import VOCAB_SIZE, full_logits, marked, random_params, random_tokens, refused, scaled, small, small_model

B, T, S = 4, 11, 5
TABLES = [name for name, kind in POSITIONS.items() if kind.table]
# Positions of tokens: out of order and repeated, within the tables.
GIVEN = np.random.default_rng(3).integers(0, 13, (B, T)).astype(np.int32)


def counted(n_rows, length):
    return np.tile(np.arange(length, dtype=np.int32), (n_rows, 1))


def built(name, **changes):
    model = MODELS[name].make(small(MODELS[name].config, **changes), VOCAB_SIZE)
    return model, random_params(model.spec)


def test_explicit_positions_0_1_2_change_no_bit():
    model, params = built("masked_lm", positions="alibi", d_model=12)
    batches = {}, *({"positions": counted(B, T).astype(dtype)} for dtype in (np.float32, np.uint8))
    expected, *found = (jax.jit(model.apply)(params, {"inputs": random_tokens((B, T))} | each) for each in batches)
    np.testing.assert_array_equal(found, [expected] * 2)


@pytest.mark.thorough  # every time an encoder-decoder below is rotary
@pytest.mark.parametrize("changes", marked("decoding at given positions"))
def test_prefill_and_steps_at_given_positions_are_the_full_forward_at_them(changes):
    model, params = small_model(d_model=12, n_layers=2, scan_blocks=True, **changes)
    batch = {"inputs": random_tokens((B, T)), "positions": GIVEN}
    assert_cached_equals_full(model, params, batch, capacities=[T], n_hypotheses=1)
    assert_causal(model, params, batch)
    other = {**batch, "positions": counted(B, T)}
    assert not np.allclose(full_logits(model, params, batch), full_logits(model, params, other))


def test_an_encoder_decoder_reads_the_positions_of_both_sides():
    sizes = {"d_model": 12, "n_layers": 2, "n_kv_heads": 1, "scan_blocks": True}
    model, params = built("encoder_decoder", positions="rotary", window=3, **sizes)
    batch = {"inputs": random_tokens((B, T)), "source": random_tokens((B, S), seed=2)}
    batch |= {"source_mask": np.arange(S)[None] < np.array([[5], [1], [4], [3]])}
    batch |= {"positions": GIVEN, "source_positions": GIVEN[:, :S]}
    assert_cached_equals_full(model, params, batch, capacities=[17])
    batch = {name: np.repeat(value, 2, axis=0) for name, value in batch.items()}  # as for two hypotheses per prompt
    assert_causal(model, params, batch)
    for name in ("positions", "source_positions"):
        other = {**batch, name: batch[name][:, ::-1]}
        assert not np.allclose(full_logits(model, params, other), full_logits(model, params, batch))


def test_a_window_is_by_position_and_not_by_order_of_reading():
    model, params = small_model(positions="none", window=2, n_layers=1)
    tokens, far = random_tokens((1, 4)), np.array([[0, 50, 100, 1]])
    changed = [(tokens + np.eye(4, dtype=np.int32)[i]) % VOCAB_SIZE for i in (0, 1)]
    apply = jax.jit(lambda inputs: model.apply(params, {"inputs": inputs, "positions": far})[0, 3])
    plain, near, not_near = map(apply, (tokens, *changed))
    np.testing.assert_array_equal(plain, not_near)
    assert not np.allclose(plain, near)


def test_beams_keep_the_positions_of_their_prompts():
    model, params = small_model(max_len=13, seed=2, positions="learned")
    params, lengths = scaled(params, 2), np.array([3, 0, 2, 1, 3, 2, 0], np.int32)
    prompts = {"tokens": random_tokens((7, 3), seed=5), "lengths": lengths}
    decode = Decoder(model, 4, config=DecodeConfig(beam_width=2))
    given = np.random.default_rng(4).integers(0, 13, (7, 12)).astype(np.int32)
    tokens, scores = (np.asarray(x) for x in decode(params, {**prompts, "positions": given}, 9))
    log = jax.jit(lambda batch: jax.nn.log_softmax(model.apply(params, batch)))
    for row, n in enumerate(lengths):
        for hypothesis, score in zip(tokens[row], scores[row], strict=True):
            new = hypothesis[: np.append(np.flatnonzero(hypothesis == 4) + 1, 9)[0]]
            inputs = np.zeros((1, 12), np.int32)
            inputs[0, 1 : 1 + n], inputs[0, 1 + n : n + len(new)] = prompts["tokens"][row, :n], new[:-1]
            logs_TV = np.asarray(log({"inputs": inputs, "positions": given[row : row + 1]}))[0]
            terms = logs_TV[n + np.arange(len(new)), new]
            assert_close(score, terms.sum() / len(new), largest=np.abs(terms).max())
    with pytest.raises(UserError, match="positions: expected those of 3 tokens of the prompts and 9 new ones, got 11"):
        decode(params, {**prompts, "positions": given[:, :11]}, 9)


def test_a_position_or_token_beyond_its_table_is_one_line_and_in_a_compiled_program_not_a_number():
    model, params = small_model(positions="learned")
    tokens, positions = random_tokens((3, 3)), np.array([[0, 1, 13], [0, 1, -1], [0, 1, 12]])
    logits = np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, "positions": positions}))
    assert np.isnan(logits[:2]).all() and np.isfinite(logits[2]).all()
    for row, (beyond, token) in enumerate(((13, VOCAB_SIZE), (-1, -1))):
        with pytest.raises(UserError, match=f"^positions: expected 0 … 12, the rows of the table, got {beyond}$"):
            model.apply(params, {"inputs": tokens[:1], "positions": positions[row : row + 1]})
        with pytest.raises(UserError, match=f"^tokens: expected 0 … 6, the rows of the table, got {token}$"):
            model.apply(params, {"inputs": np.array([[1, token]])})
    known = jax.device_put(tokens)  # a constant of the program
    assert jax.jit(lambda params: model.apply(params, {"inputs": known}))(params).shape == (3, 3, VOCAB_SIZE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "sinusoidal_trained", "rotary"])
def test_rows_longer_than_a_table_are_one_line_and_other_positions_continue(name, kind):
    model, params = built(name, positions=kind, d_model=12)
    long, short, mask = np.zeros((1, 14), np.int32), np.zeros((1, 2), np.int32), np.ones((1, 14), bool)
    sides = {"inputs": {"inputs": long, "source": short, "source_mask": mask[:, :2]}}
    if name == "encoder_decoder":
        sides["source"] = {"inputs": short, "source": long, "source_mask": mask}
    for side, batch in sides.items():
        line = f"^{side}: expected at most 13 tokens in a row, got 14; .* '{kind}' has a table of model.max_len 13"
        with pytest.raises(UserError, match=line) if kind in TABLES else contextlib.nullcontext():
            jax.eval_shape(model.apply, params, batch)
        if model.prefill and kind in TABLES:
            prompts = batch | {"lengths": np.array([1])}
            with pytest.raises(UserError, match=line):
                jax.eval_shape(lambda p, b=prompts: model.prefill(params, b, 20), prompts)


def test_a_table_allows_as_many_tokens_as_its_gap_and_range_leave():
    model, params = small_model(positions="learned", position_gap=3, position_range=40, max_len=13)
    for n_tokens, rng in ((14, None), (40, jax.random.key(0))):
        fits, long = ({"inputs": np.zeros((1, n), np.int32)} for n in (n_tokens, n_tokens + 1))
        jax.eval_shape(lambda b, rng=rng: model.apply(params, b, rng=rng), fits)
        with pytest.raises(UserError, match=f"at most {n_tokens} .* has a table of model.position_range 40"):
            jax.eval_shape(lambda b, rng=rng: model.apply(params, b, rng=rng), long)


@pytest.mark.parametrize(("changes", "message"), refused("given positions"))
def test_positions_without_effect_are_refused(changes, message):
    model, params = small_model(**changes)
    batch = {"inputs": random_tokens((1, 3)), "positions": np.zeros((1, 3), np.float32)}
    with pytest.raises(UserError, match=message):
        jax.eval_shape(model.features, params, batch)

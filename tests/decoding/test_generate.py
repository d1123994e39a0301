import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxf.decoding import predict as predict_module
from fxf.decoding.predict import make_predictor
from fxf.decoding.sampling import Sampling
from helpers import VOCAB_SIZE, random_tokens, small_model

LENGTH = 23
END = 3


@functools.cache
def model_and_params(seed):
    model, params = small_model(max_len=LENGTH, seed=seed)
    return model, params, jax.jit(lambda tokens: model.apply(params, {"inputs": tokens}))


def recompute(seed, prompt, max_tokens, end_token=END):
    """Greedy continuation by a full forward pass for every token, one sequence at a time (as seed 004 tests)."""
    _, _, apply = model_and_params(seed)
    sequence, generated = [0, *prompt], []
    while len(generated) < max_tokens:
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, : len(sequence)] = sequence
        token = int(np.argmax(apply(padded)[0, len(sequence) - 1]))
        sequence.append(token)
        generated.append(token)
        if token == end_token:
            break
    return generated + [end_token] * (max_tokens - len(generated))


@functools.cache
def predictor(seed, sampling=Sampling(), key=0):
    model, params, _ = model_and_params(seed)
    return functools.partial(make_predictor(model, END, sampling=sampling, seed=key), params)


def prompts_of(lengths, seed=0):
    prompts = random_tokens((len(lengths), max(lengths)), seed=seed)
    return prompts, np.array(lengths)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 3), lengths=st.lists(st.integers(0, 6), min_size=5, max_size=5), data_seed=st.integers(0, 99)
)
def test_cached_greedy_equals_full_recomputation_token_for_token(seed, lengths, data_seed):
    prompts, lengths = prompts_of([*lengths, 6], data_seed)  # one shape, so one compilation a model
    actual = predictor(seed)(prompts, lengths, 11)
    expected = [recompute(seed, prompt[:n], 11) for prompt, n in zip(prompts, lengths, strict=True)]
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=5, top_p=0.9)])
def test_a_batch_of_unequal_prompts_equals_one_by_one(sampling):
    prompts, lengths = prompts_of([6, 0, 3])
    model, params, _ = model_and_params(0)
    predict = make_predictor(model, END, sampling=sampling)
    together = predict(params, prompts, lengths, 9)
    for i, n in enumerate(lengths):
        rows = np.repeat(prompts[i : i + 1, : max(n, 1)], i + 1, axis=0)  # row i draws from the key of row i
        alone = predict(params, rows, np.full(i + 1, n), 9)
        np.testing.assert_array_equal(alone[i], together[i])


def test_padding_of_a_prompt_changes_nothing():
    prompts, lengths = prompts_of([4, 1, 6])
    other = np.where(np.arange(6)[None] < lengths[:, None], prompts, (prompts + 1) % VOCAB_SIZE)
    np.testing.assert_array_equal(predictor(0)(prompts, lengths, 9), predictor(0)(other, lengths, 9))


def test_what_follows_an_end_token_is_filled_with_it():
    rows = [predictor(seed)(*prompts_of([2, 5, 3, 1], seed), 11) for seed in range(4)]
    ended = [row.tolist() for row in np.concatenate(rows) if END in row]
    assert any(row.index(END) < 10 for row in ended)
    for row in ended:
        assert set(row[row.index(END) :]) == {END}


def test_samples_repeat_with_their_seed_and_change_with_it():
    prompts, lengths = prompts_of([4] * 20)
    hot = Sampling(temperature=2.0)
    first, again, other = (predictor(0, hot, key)(prompts, lengths, 7) for key in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({tuple(row) for row in first.tolist()}) > 10


def test_prompts_beyond_one_batch_are_continued_in_order(monkeypatch):
    prompts, lengths = prompts_of([4, 1, 6, 3, 2, 5, 1])
    whole = predictor(0)(prompts, lengths, 9)
    monkeypatch.setattr(predict_module, "LARGEST_BATCH", 3)
    model, params, _ = model_and_params(0)
    np.testing.assert_array_equal(make_predictor(model, END)(params, prompts, lengths, 9), whole)


def test_a_batch_is_as_large_as_its_cache_may_be(monkeypatch):
    model, params, _ = model_and_params(0)
    row_bytes = 2 * 2 * 6 * 15 * 4 + 4  # layers, keys and values, D, positions, bytes; and one length
    monkeypatch.setattr(predict_module, "LARGEST_CACHE", 3 * row_bytes)
    prompts, lengths = prompts_of([4, 1, 6, 3, 2, 5, 1])
    seen = []
    monkeypatch.setattr(
        predict_module, "generate", lambda m, p, prompts, *args, **kw: seen.append(prompts.shape) or prompts
    )
    make_predictor(model, END)(params, prompts, lengths, 9)
    assert seen == [(3, 6)]

import jax
import numpy as np
import pytest

from fxf.errors import UserError
from fxf.tasks.held_out import held_out
from fxf.tasks.task import Evaluator, RunInfo
from fxf.tasks.time_series import TimeSeries, TimeSeriesConfig, draw_sample, period, series, whole_domain
from fxf.training.step import TrainConfig
from helpers import generated, in_groups

# Seed 002's table, period by base for delays 1 to 9. It prints 2889 for 889 and 3558 for 3556.
PERIODS = {
    2: (3, 7, 15, 21, 63, 127, 63, 73, 889),
    8: (12, 28, 60, 84, 252, 508, 252, 292, 3556),
    16: (24, 56, 120, 168, 504, 1016, 504, 584, 7112),
}


def config(base=5, delay=2, length=7, **more):
    return TimeSeriesConfig(base=base, delay=delay, length=length, **more)


def run_info(batch_size=17):
    return RunInfo(train=TrainConfig(batch_size=batch_size))


def batch_of(task):
    return jax.device_get(jax.jit(task.batch)(jax.random.key(0), 0))


def continued(numbers, base, length):
    """Continues the context by the definition, in a plain loop."""
    numbers, context = [int(x) for x in numbers], len(numbers)
    for t in range(length - context):
        numbers.append((numbers[t] + numbers[t + 1]) % base)
    return numbers


def evaluator(base, spoil=lambda tokens: None):
    def decode(prompts, max_tokens):
        rows = []
        for tokens, length in zip(prompts["tokens"], prompts["lengths"], strict=True):
            assert length == len(tokens)
            rows.append(continued(tokens - 1, base, length + max_tokens)[length:])
        tokens = np.array(rows) + 1
        spoil(tokens)
        return np.stack([tokens, tokens + 1], axis=1), None

    return Evaluator(in_groups(decode), None, None)


@pytest.mark.parametrize("base", [2, 8, pytest.param(16, marks=pytest.mark.thorough)])
def test_periods_are_those_of_the_seeds_table_with_two_figures_mended(base):
    assert tuple(period(delay, base) for delay in range(1, 10)) == PERIODS[base]


@pytest.mark.parametrize(("delay", "base"), [(1, 2), (1, 10), (2, 7), (3, 6), (4, 5), (9, 2), (9, 8)])
def test_a_period_is_the_first_return_of_the_series_to_its_start(delay, base):
    numbers, found = continued([1] * (delay + 1), base, 5000), period(delay, base)
    returns = [t for t in range(1, 4900) if numbers[t : t + delay + 1] == [1] * (delay + 1)]
    assert returns[0] == found


def test_the_period_of_a_large_domain_is_found():
    assert period(31, 2) == 1023 and period(5, 13) == 371292


@pytest.mark.parametrize(("delay", "base"), [(1, 2), (2, 5), (5, 16)])
def test_a_series_is_its_context_and_delayed_sums(delay, base):
    starts = np.random.default_rng(0).integers(0, base, (7, delay + 1))
    expected = [continued(start, base, 23) for start in starts]
    np.testing.assert_array_equal(series(starts, base, 23), expected)


def test_a_batch_holds_series_as_tokens_from_1_scored_behind_their_context():
    batch = batch_of(TimeSeries(config(), run_info()))
    for targets, weights in zip(batch["targets"], batch["weights"], strict=True):
        assert continued(targets[:3] - 1, 5, 7) == (targets - 1).tolist()
        assert weights.tolist() == [0, 0, 0, 1, 1, 1, 1]
    np.testing.assert_array_equal(batch["inputs"], np.pad(batch["targets"], ((0, 0), (1, 0)))[:, :-1])
    assert batch["targets"].min() == 1 and batch["targets"].max() == 5


def test_contexts_are_uniform():
    batch = batch_of(TimeSeries(config(3, 1), run_info(997)))
    states = (batch["targets"][:, 0] - 1) * 3 + batch["targets"][:, 1] - 1
    assert (np.abs(np.bincount(states) / 997 - 1 / 9) < 0.03).all()


def test_a_batch_is_a_pure_function_of_its_key():
    draw = jax.jit(TimeSeries(config(), run_info()).batch)
    first, again, other = (draw(jax.random.key(seed), step)["targets"] for seed, step in ((0, 0), (0, 1), (1, 0)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_small_domain_is_trained_on_and_scored_whole():
    task = TimeSeries(config(), run_info(501))
    assert (batch_of(task)["weights"].sum(axis=1) == 4).all()
    assert task.test(evaluator(5)) == {"exact_match": 1, "token_accuracy": 1, "examples": 125}
    assert len({tuple(start) for start in whole_domain(config()).tolist()}) == 125


def test_what_is_scored_of_a_large_domain_never_starts_a_series_that_counts():
    task = TimeSeries(config(7, examples=5), run_info(501))
    batch = batch_of(task)
    silent = batch["weights"].sum(axis=1) == 0
    np.testing.assert_array_equal(silent, held_out(batch["targets"][:, :3] - 1))
    assert 0 < silent.sum() < 60
    assert task.validate(evaluator(7)) == {"exact_match": 1, "token_accuracy": 1, "examples": 5}


@pytest.mark.parametrize("sizes", [{"base": 5, "examples": 124}, {"base": 7, "examples": 5}, {"base": 11, "delay": 5}])
def test_a_sample_is_of_distinct_contexts_that_are_held_out(sizes):
    drawn = config(**sizes)
    held = whole_domain(drawn)[held_out(whole_domain(drawn))] if drawn.delay < 5 else np.zeros(10**6)
    sample = draw_sample(drawn)
    assert len({tuple(start) for start in sample.tolist()}) == len(sample) == min(drawn.examples, len(held))
    assert held_out(sample).all()


def test_a_series_counts_only_if_all_that_follows_its_context_is_right():
    def spoil(tokens):
        tokens[2, 3] = 0  # the end of a series is never right
        tokens[4, 0] = tokens[4, 0] % 5 + 1

    figures = TimeSeries(config(), run_info()).test(evaluator(5, spoil))
    assert figures == {"exact_match": 123 / 125, "token_accuracy": 498 / 500, "examples": 125}


def test_figures_tell_the_period_where_it_can_be_searched():
    assert TimeSeries(config(16, 5, 7), run_info()).figures() == {"period": 504}
    assert TimeSeries(config(16, 8, 17), run_info()).figures() == {}


def test_prompts_are_contexts_and_answers_what_follows():
    task = TimeSeries(config(), run_info())
    answers = generated(task, evaluator(5), ["4 3  1", "0 1 0"], 0, 7)
    assert [hypotheses[0] for hypotheses in answers] == [("2 4 3 1", None, False), ("1 1 1 2", None, False)]
    assert generated(task, evaluator(5), ["4 3 1"], 2, 7)[0][0] == ("2 4", None, False)


@pytest.mark.parametrize("wrong", ["1 2", "1 2 3 4", "1 2 5", "1 2 -1", "a b c", ""])
def test_a_prompt_that_is_no_context_is_named_by_its_number(wrong):
    with pytest.raises(UserError, match=f"prompt 2: expected 3 numbers 0 … 4 with spaces between, got '{wrong}'"):
        generated(TimeSeries(config(), run_info()), evaluator(5), ["1 2 3", wrong], 0, 7)


def test_what_does_not_fit_the_model_or_the_length_is_named():
    with pytest.raises(UserError, match=r"max_tokens: 5 behind 3 numbers; model.max_len is 7"):
        generated(TimeSeries(config(), run_info()), evaluator(5), ["1 2 3"], 5, 7)
    with pytest.raises(UserError, match=r"task.length: expected at least task.delay \+ 2 = 4, .* got 3"):
        config(length=3)


@pytest.mark.parametrize("answer", ["4 x", "10", "9" * 5000])
def test_an_answer_to_be_read_has_numbers_of_the_base(answer):
    with pytest.raises(UserError, match=r"answer: expected numbers 0 … 9 with spaces between, got '"):
        TimeSeries(config(base=10), run_info()).to_batch("1 2 3", answer)

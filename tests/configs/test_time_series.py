import numpy as np
import pytest

from configs.primer.time_series import TimeSeries, TimeSeriesConfig, whole_domain
from fxf.base.errors import UserError
from fxf.tasks.held_out import held_out
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import first_batch, generated, in_groups


def task_of(base=5, delay=2, length=7, **more):
    config = TimeSeriesConfig(base=base, delay=delay, length=length, **more)
    return TimeSeries(config, RunInfo(train=TrainConfig(batch_size=501)))


def continued(numbers, base, length):
    """Continues the context by definition, in a plain loop."""
    numbers, context = [int(x) for x in numbers], len(numbers)
    for t in range(length - context):
        numbers.append((numbers[t] + numbers[t + 1]) % base)
    return numbers


def evaluator(base, spoil=lambda tokens: None):
    def decode(prompts, max_tokens):
        both = zip(prompts["tokens"], prompts["lengths"], strict=True)
        tokens = 1 + np.array([continued(row[:n] - 1, base, n + max_tokens)[n:] for row, n in both])
        spoil(tokens)
        return np.stack([tokens, tokens + 1], axis=1), None

    return Evaluator(in_groups(decode), None, None)


@pytest.mark.parametrize(("delay", "base", "length"), [(1, 2, 23), (5, 16, 23)])
def test_a_batch_has_contexts_and_delayed_sums_as_tokens_from_1_scored_after_the_context(delay, base, length):
    batch = first_batch(task_of(base, delay, length))
    for targets, weights in zip(batch["targets"], batch["weights"], strict=True):
        assert continued(targets[: delay + 1] - 1, base, length) == (targets - 1).tolist()
        assert np.isin(weights, [0, 1]).all() and not weights[: delay + 1].any()
    assert batch["weights"][:, delay + 1 :].any()
    np.testing.assert_array_equal(batch["inputs"], np.pad(batch["targets"], ((0, 0), (1, 0)))[:, :-1])
    assert batch["targets"].min() == 1 and batch["targets"].max() == base


def test_a_small_domain_is_trained_on_and_scored_whole():
    task = task_of()
    assert (first_batch(task)["weights"].sum(axis=1) == 4).all()
    assert task.test(evaluator(5)) == {"exact_match": 1, "token_accuracy": 1, "examples": 125}
    assert len({tuple(start) for start in whole_domain(task.config).tolist()}) == 125


def test_scored_contexts_of_a_large_domain_never_start_a_series_that_counts():
    task = task_of(7, examples=5)
    batch = first_batch(task)
    silent = batch["weights"].sum(axis=1) == 0
    np.testing.assert_array_equal(silent, held_out(batch["targets"][:, :3] - 1))
    assert 0 < silent.sum() < 60
    assert task.validate(evaluator(7)) == {"exact_match": 1, "token_accuracy": 1, "examples": 5}


def test_a_series_is_right_only_if_all_after_its_context_is():
    def spoil(tokens):
        tokens[2, 3] = 0  # makes the end of every series wrong
        tokens[4, 0] = tokens[4, 0] % 5 + 1

    figures = {"exact_match": 123 / 125, "token_accuracy": 498 / 500, "examples": 125}
    assert task_of().test(evaluator(5, spoil)) == figures


def test_prompts_are_contexts_and_answers_their_continuations():
    task = task_of()
    answers = generated(task, evaluator(5), ["4 3  1", "0 1 0"], 0, 7)
    assert [hypotheses[0] for hypotheses in answers] == [("2 4 3 1", None, False), ("1 1 1 2", None, False)]
    assert generated(task, evaluator(5), ["4 3 1"], 2, 7)[0][0] == ("2 4", None, False)
    assert task.to_batch("4 3 1", "2 4")["inputs"].tolist() == [[0, 5, 4, 2, 3, 5]]
    assert (task.token_name(0), task.token_name(1)) == ("<start>", "0")


def test_a_value_that_does_not_fit_base_or_length_is_named():
    with pytest.raises(UserError, match="prompt 2: expected numbers 0 … 4 with spaces between, got '5'"):
        task_of().to_prompts(["1 2 3", "1 2 5"], 0, 7)
    with pytest.raises(UserError, match=r"answer: expected numbers 0 … 9 with spaces between, got '10'"):
        task_of(base=10).to_batch("1 2 3", "10")

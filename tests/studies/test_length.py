import importlib

import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.runs.guests import load
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import first_batch, in_groups, some
from small_runs import ROOT

load(ROOT / "configs/studies/problems.py")
task_module = importlib.import_module("deletang.task")
FIGURES, LengthConfig = task_module.FIGURES, task_module.LengthConfig


def task_of(problem, batch_size=7, **keys):
    config = LengthConfig(problem=problem, **{"max_length": 5, "longest": 9, "score_every": 3, "examples": 11, **keys})
    return task_module.length(config, RunInfo(TrainConfig(batch_size=batch_size)))


def test_a_decoder_reads_string_end_answer_and_counts_the_answer_and_its_end():
    task = task_of("reverse_string")
    batch = first_batch(task)
    assert batch["inputs"].shape == (7, task.n_tokens(5))
    for inputs, targets, weights in zip(batch["inputs"], batch["targets"], batch["weights"], strict=True):
        assert inputs[0] == 0
        np.testing.assert_array_equal(inputs[1:], targets[:-1])
        n = targets.tolist().index(0)
        (counted,) = np.nonzero(weights)
        assert counted.tolist() == list(range(n + 1, counted[-1] + 1))
        assert targets[counted[-1]] == 0 and 0 not in targets[counted[:-1]]
        assert targets[counted[:-1]].tolist() == targets[:n][::-1].tolist()
    assert len({targets.tolist().index(0) for targets in batch["targets"]}) > 1


@pytest.mark.parametrize(("problem", "places"), [("duplicate_string", 2), ("stack_manipulation", None)])
def test_an_encoder_reads_the_string_and_as_many_blanks_as_the_papers_answers_have(problem, places):
    task = task_of(problem, answer="tape")
    batch = first_batch(task)
    arrays = (batch[name] for name in ("inputs", "input_mask", "targets", "weights"))
    for inputs, seen, targets, weights in zip(*arrays, strict=True):
        n = inputs.tolist().index(task.empty)
        n_places = {2: 2 * n, None: n + 1}[places]
        assert seen.tolist() == [i < n + n_places for i in range(len(seen))]
        assert weights.tolist() == [float(n <= i < n + n_places) for i in range(len(seen))]
        assert set(inputs[n : n + n_places]) == {task.empty}
        if problem == "duplicate_string":
            assert targets[n : n + n_places].tolist() == 2 * inputs[:n].tolist()
        if problem == "stack_manipulation":
            assert targets[n : n + n_places].tolist().count(0) == 1  # the end


def test_drawn_positions_are_in_the_range_one_for_each_token_and_increasing():
    batch = first_batch(task_of("duplicate_string", 9, position_range=61))
    rows = batch["positions"]
    assert rows.shape == batch["inputs"].shape
    used = [2 + 3 * (row.tolist().index(0, 1) - 1) for row in batch["inputs"]]
    assert len({tuple(row) for row in rows}) == len(rows)
    for row, n in zip(rows, used, strict=True):
        assert (np.diff(row[:n]) > 0).all()
        assert row[0] >= 0 and row[n - 1] <= 60 and (row[n:] == 60).all()
    assert rows.max() > rows.shape[1]


def knowing(task, wrong_from=99):
    """Returns an evaluator that knows each answer, except one symbol in one string longer than `wrong_from`."""
    draws, answers = [], task.answers

    def remember(evaluator, drawn, of_positions):
        draws.append(drawn)
        return answers(evaluator, drawn, of_positions)

    task.answers = remember

    def spoiled(tokens, first):
        """Returns answers that begin at the indices `first`, one of them with a wrong token."""
        drawn, tokens = draws[-1], np.array(tokens)
        if drawn.length_B.max() > wrong_from:
            tokens[0, first[0]] += 1
        return tokens

    def decode(prompts, max_tokens):
        right = draws[-1].answer_BU
        right = np.pad(right, ((0, 0), (0, max_tokens - right.shape[1])))
        return spoiled(right, np.zeros(len(right), int))[:, None], None

    def logits(batch):
        right = spoiled(task.arrays(draws[-1])["targets"], draws[-1].length_B)
        return np.eye(task.vocab_size + 1)[right]

    return Evaluator(in_groups(decode), None, logits)


SCORED = [("reverse_string", "generated"), ("stack_manipulation", "tape"), ("binary_multiplication", "generated")]


@some("case", SCORED, SCORED[:1])
def test_right_answers_score_one_and_a_wrong_symbol_costs_one_string_at_its_length(case):
    (problem, answer), suffixes = case, ["", "_6", "_9", "_longer"]
    task = task_of(problem, answer=answer)
    figures = task.validate(knowing(task))
    assert set(figures) == {*task.metrics, "examples", "samples"} | ({"cut_off"} if answer == "generated" else set())
    assert {f"{name}{of}" for name in FIGURES for of in suffixes} == set(task.metrics)
    assert all(figures[name] == 1 for name in task.metrics)
    task = task_of(problem, answer=answer)
    figures = task.validate(knowing(task, wrong_from=6))
    assert [figures[f"exact_match{of}"] for of in suffixes] == pytest.approx([1, 1, 10 / 11, 1 - 1 / 22])
    assert 0 < 1 - figures["token_accuracy_9"] < 1 / 11
    assert figures["token_accuracy_longer"] == pytest.approx((1 + figures["token_accuracy_9"]) / 2)


def test_a_typed_string_becomes_a_prompt_and_its_answer_text():
    task = task_of("bucket_sort")
    (group,) = task.to_prompts(["3014"], 0, 20)
    assert (group.prompts["tokens"].tolist(), group.prompts["lengths"].tolist()) == ([[4, 1, 2, 5, 0]], [5])
    assert task.to_text("3014", [1, 2, 4, 5]) == "0134"
    assert task.to_batch("30", "03")["inputs"].tolist() == [[0, 4, 1, 0, 1, 4]]
    on_tape = task_of("duplicate_string", answer="tape")
    assert on_tape.to_batch("01" * 6, "")["inputs"].tolist() == [[1, 2] * 6 + [on_tape.empty] * 24]
    assert not on_tape.has("to_text")
    with pytest.raises(UserError, match="did you mean 'bucket_sort'"):
        task_of("bucket_sor")
    for texts, message in (["0", "05"], "2: expected symbols of '01234', got '5'"), ([""], "1: expected a string, got"):
        with pytest.raises(UserError, match=f"^prompt {message}"):
            task.to_prompts(texts, 0, 20)

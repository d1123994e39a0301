import functools

import jax
import numpy as np
import pytest

from fxf.tasks.reversal import Reversal, ReversalConfig, draw_sample, exact_match, whole_domain
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated, in_groups

SEED_EXAMPLES = {36: (3, 2, 3), 336: (4, 2, 4)}


def config(n_tokens=5, min_length=1, max_length=4, **more):
    return ReversalConfig(n_tokens=n_tokens, min_length=min_length, max_length=max_length, **more)


def large(**more):
    return config(n_tokens=13, min_length=2, max_length=7, **more)


def run_info(batch_size=4):
    return RunInfo(train=TrainConfig(batch_size=batch_size))


@functools.cache
def compiled(config, batch_size):
    batch = Reversal(config, run_info(batch_size)).batch
    return jax.jit(lambda step: batch(jax.random.fold_in(jax.random.key(0), step), step))


def batches(config, batch_size=17, n=7):
    for step in range(n):
        yield jax.device_get(compiled(config, batch_size)(step))


def sequence_of(targets):
    return targets[: targets.tolist().index(0)]


def reversed_prompts(prompts, max_tokens):
    """Reverses each prompt with plain loops."""
    rows = []
    for prompt, length in zip(prompts["tokens"], prompts["lengths"], strict=True):
        assert prompt[length - 1] == 0
        rows.append((list(prompt[: length - 1][::-1]) + [0] * max_tokens)[:max_tokens])
    return np.array(rows)


def evaluator(continue_prompts):
    """Returns an evaluator whose best hypothesis is that of `continue_prompts`, and whose second one is nonsense."""

    def decode(prompts, max_tokens):
        tokens = continue_prompts(prompts, max_tokens)
        return np.stack([tokens, tokens + 1], axis=1), None

    def no_loss(batch):
        raise AssertionError("reversal is scored without the loss")

    return Evaluator(in_groups(decode), no_loss, no_loss)


PERFECT = evaluator(reversed_prompts)


def test_rows_are_a_sequence_zero_its_reverse_zero_with_weights_on_the_second_half():
    for batch in batches(config()):
        np.testing.assert_array_equal(batch["inputs"], np.pad(batch["targets"], ((0, 0), (1, 0)))[:, :-1])
        for targets, weights in zip(batch["targets"], batch["weights"], strict=True):
            x = sequence_of(targets)
            n = len(x)
            expected = [*x, 0, *x[::-1], 0] + [0] * (2 * (4 - n))
            np.testing.assert_array_equal(targets, expected)
            np.testing.assert_array_equal(weights, [0] * (n + 1) + [1] * (n + 1) + [0] * (2 * (4 - n)))


def test_lengths_and_tokens_cover_their_ranges_within_a_batch():
    (batch,) = batches(config(min_length=2), 997, 1)
    sequences = [sequence_of(row) for row in batch["targets"]]
    counts = np.bincount([len(x) for x in sequences])
    assert (counts[:2] == 0).all()
    assert (np.abs(counts[2:5] / 997 - 1 / 3) < 0.06).all()
    tokens = np.bincount(np.concatenate(sequences))
    assert (np.abs(tokens[1:] / tokens.sum() - 1 / 5) < 0.03).all()


@pytest.mark.parametrize("examples", SEED_EXAMPLES)
def test_a_small_domain_is_scored_whole(examples):
    n_tokens, shortest, longest = SEED_EXAMPLES[examples]
    task = Reversal(config(n_tokens, shortest, longest), run_info())
    for evaluate in (task.validate, task.test):
        figures = evaluate(PERFECT)
        assert all(expected == answer for _, expected, answer in figures.pop("samples"))
        assert figures == {"exact_match": 1.0, "examples": examples, "cut_off": 0}
    rows = whole_domain(config(n_tokens, shortest, longest))
    assert len({tuple(row) for row in rows.tolist()}) == examples
    assert all((batch["weights"].sum(axis=1) > 0).all() for batch in batches(config()))


def test_the_scored_sample_of_a_large_domain_never_counts_in_training():
    scored = {tuple(row[row > 0].tolist()) for row in draw_sample(large(examples=500), range(2, 8))}
    assert len(scored) == 500
    silent = 0
    for batch in batches(large(), 997):
        for targets, weights in zip(batch["targets"], batch["weights"], strict=True):
            if tuple(sequence_of(targets).tolist()) in scored:
                assert weights.sum() == 0
            silent += weights.sum() == 0
    assert silent / (7 * 997) == pytest.approx(1 / 16, abs=0.01)


def test_longer_sequences_are_scored_apart():
    task = Reversal(large(longer=3, examples=50), run_info())
    assert task.longest == 2 * 10 + 2
    for evaluate in (task.validate, task.test):
        metrics = evaluate(PERFECT)
        del metrics["samples"]
        assert metrics == {
            "exact_match": 1.0,
            "examples": 50,
            "cut_off": 0,
            "exact_match_longer": 1.0,
            "examples_longer": 50,
        }
        assert set(metrics) >= set(task.metrics)
    lengths = np.count_nonzero(draw_sample(large(examples=50), range(8, 11)), axis=1)
    assert set(lengths) == {8, 9, 10}


def test_exact_match_counts_a_row_only_if_all_of_it_is_right():
    sequences = np.array([[1, 2, 3], [4, 5, 0], [3, 3, 3], [1, 0, 0], [2, 1, 0]])

    def nearly(prompts, max_tokens):
        tokens = reversed_prompts(prompts, max_tokens)
        tokens[0, 1] = 1  # a wrong token
        tokens[1, 2] = 4  # a token where the sequence should end
        tokens[3, 0] = 0  # ended too early
        return tokens

    assert exact_match(*Reversal(config(), run_info()).continuations(evaluator(nearly), sequences)) == pytest.approx(
        2 / 5
    )


def test_a_symbol_and_its_mirror_image_have_one_position_in_batches_prompts_and_probes():
    task = Reversal(config(mirrored=True), run_info())
    for batch in batches(task.config, n=3):
        for inputs, targets, positions in zip(batch["inputs"], batch["targets"], batch["positions"], strict=True):
            n = len(sequence_of(targets))
            expected = [*range(n + 2), *range(n, -len(inputs), -1)][: len(inputs)]
            assert positions.tolist() == expected
            of_symbols, of_answer = positions[1 : n + 1], positions[n + 2 : 2 * n + 2]
            np.testing.assert_array_equal(inputs[1 : n + 1], targets[n + 1 : 2 * n + 1][::-1])
            np.testing.assert_array_equal(of_symbols[: len(of_answer)], np.sort(of_answer)[-n:])
    (group,) = task.to_prompts(["3 1 2", "5"], 0, 12)
    assert group.prompts["positions"].tolist() == [
        [0, 1, 2, 3, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5],
        [0, 1, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9],
    ]
    assert group.prompts["limits"].tolist() == [8, 10]
    assert task.to_batch("3 1 2", "2 1")["positions"].tolist() == [[0, 1, 2, 3, 4, 3, 2]]
    assert "positions" not in Reversal(config(), run_info()).to_batch("3 1", "1")


def test_an_answer_without_its_end_is_counted_as_cut_off():
    endless = Evaluator(in_groups(lambda prompts, n: (np.full((len(prompts["tokens"]), 1, n), 1), None)), None, None)
    figures = Reversal(config(), run_info()).validate(endless)
    assert figures["cut_off"] == figures["examples"] and all(sample[3:] == (True,) for sample in figures["samples"])


def answers_to(texts, max_tokens=0, max_len=10):
    """Returns the answers of a model that reverses, and what it was asked."""
    asked = []

    def decode(groups):
        asked.extend((p["tokens"].tolist(), p["lengths"].tolist(), max_tokens) for _, p, max_tokens in groups)
        return PERFECT.decode(groups)

    answers = generated(Reversal(config(), run_info()), PERFECT._replace(decode=decode), texts, max_tokens, max_len)
    assert len(asked) == 1
    return answers, asked[0]


def test_prompts_are_tokens_with_spaces_between_and_so_are_answers():
    answers, asked = answers_to([" 3 1  5", "", "2"])
    assert asked == ([[3, 1, 5, 0], [0, 0, 0, 0], [2, 0, 0, 0]], [4, 1, 2], 10 - 1)
    assert [hypotheses[0] for hypotheses in answers] == [("5 1 3", None, False), ("", None, False), ("2", None, False)]
    assert answers_to(["", ""])[1] == ([[0], [0]], [1, 1], 9)

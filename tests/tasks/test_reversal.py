import functools

import jax
import numpy as np
import pytest

from fxf.tasks.held_out import held_out, sample_held_out
from fxf.tasks.reversal import Reversal, ReversalConfig, draw_sample, exact_match, whole_domain
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated, in_groups


def config(n_tokens=5, min_length=1, max_length=4, **more):
    return ReversalConfig(n_tokens=n_tokens, min_length=min_length, max_length=max_length, **more)


def large(**more):
    return config(n_tokens=13, min_length=2, max_length=7, **more)


def task_of(config, batch_size=4):
    return Reversal(config, RunInfo(train=TrainConfig(batch_size=batch_size)))


@functools.cache
def drawn(config, n=3):
    """Returns batches, compiled once."""
    batch = jax.jit(task_of(config, 997).batch)
    return [jax.device_get(batch(jax.random.key(step), step)) for step in range(n)]


def sequence_of(targets):
    return targets[: targets.tolist().index(0)].tolist()


def reversed_prompts(prompts, max_tokens):
    """Reverses each prompt with plain loops."""
    rows = []
    for prompt, length in zip(prompts["tokens"], prompts["lengths"], strict=True):
        assert prompt[length - 1] == 0
        rows.append((list(prompt[: length - 1][::-1]) + [0] * max_tokens)[:max_tokens])
    return np.array(rows)


def evaluator(continue_prompts):
    """Returns an evaluator whose best hypothesis is that of `continue_prompts`, and whose second is nonsense."""

    def decode(prompts, max_tokens):
        tokens = continue_prompts(prompts, max_tokens)
        return np.stack([tokens, tokens + 1], axis=1), None

    return Evaluator(in_groups(decode), None, None)  # reversal is scored without the loss


PERFECT = evaluator(reversed_prompts)


def test_a_row_is_a_sequence_0_its_reverse_0_with_weights_on_the_second_half():
    lengths, tokens = [], []
    for batch in drawn(config(min_length=2)):
        np.testing.assert_array_equal(batch["inputs"], np.pad(batch["targets"], ((0, 0), (1, 0)))[:, :-1])
        for targets, weights in zip(batch["targets"].tolist(), batch["weights"].tolist(), strict=True):
            x = targets[: targets.index(0)]
            n, rest = len(x), [0] * (2 * (4 - len(x)))
            assert targets == [*x, 0, *x[::-1], 0, *rest]
            assert weights == [0] * (n + 1) + [1] * (n + 1) + rest
            lengths.append(n)
            tokens += x
    for found, values in ((lengths, (2, 3, 4)), (tokens, range(1, 6))):
        counts = np.bincount(found, minlength=values[-1] + 1)
        assert counts.sum() == counts[list(values)].sum()
        np.testing.assert_allclose(counts[list(values)] / len(found), 1 / len(values), atol=0.04)


@pytest.mark.parametrize(("domain", "examples"), [((3, 2, 3), 36), ((4, 2, 4), 336)])  # of seed 004
def test_a_small_domain_is_scored_completely(domain, examples):
    task = task_of(config(*domain))
    for evaluate in (task.validate, task.test):
        figures = evaluate(PERFECT)
        assert all(expected == answer for _, expected, answer, _ in figures.pop("samples"))
        assert figures == {"exact_match": 1.0, "examples": examples, "cut_off": 0}
    assert len({tuple(row) for row in whole_domain(task.config).tolist()}) == examples
    assert all((batch["weights"].sum(axis=1) > 0).all() for batch in drawn(config(min_length=2)))


def test_the_scored_sample_of_a_large_domain_never_counts_in_training_where_a_sixteenth_is_held_out():
    scored = {tuple(row[row > 0].tolist()) for row in draw_sample(large(examples=500), range(2, 8))}
    assert len(scored) == 500 and {token for row in scored for token in row} == {*range(1, 14)}
    rows = [row for batch in drawn(large()) for row in zip(batch["targets"], batch["weights"].sum(1), strict=True)]
    assert not any(weight for targets, weight in rows if tuple(sequence_of(targets)) in scored)
    assert np.mean([weight == 0 for _, weight in rows]) == pytest.approx(1 / 16, abs=0.015)


def test_the_hash_is_the_same_in_numpy_and_jax_and_with_padding_and_a_sample_is_its_first_distinct_rows():
    rows = np.random.default_rng(0).integers(1, 18, (4000, 3), np.int32)
    np.testing.assert_array_equal(held_out(rows), jax.jit(held_out)(rows))
    np.testing.assert_array_equal(held_out(np.pad(rows, ((0, 0), (0, 4)))), held_out(rows))
    assert np.flatnonzero(held_out(np.arange(48)[:, None])).tolist() == [0, 9, 23, 24, 39, 47]  # of runs that resume
    rows = np.unique(rows, axis=0)
    counted, held = rows[~held_out(rows)], rows[held_out(rows)]
    drawn = np.concatenate([counted[:2], held[5:7], held[5:7], counted[:1], held[1:3]])
    assert sample_held_out(drawn, 3).tolist() == held[[5, 6, 1]].tolist()
    assert sample_held_out(drawn, 99).tolist() == held[[5, 6, 1, 2]].tolist()


def test_longer_sequences_are_scored_separately():
    together, apart = task_of(large(longer=3, examples=50)), task_of(large(longer=3, longer_every=5, examples=50))
    assert (together.longest, together.config.longer_samples()) == (2 * 10 + 2, {"_longer": range(8, 11)})
    for task, more in (together, {"exact_match_longer": 1.0, "examples_longer": 50}), (apart, {"exact_match_10": 1.0}):
        figures = task.test(PERFECT)
        del figures["samples"]
        assert figures == {"exact_match": 1.0, "examples": 50, "cut_off": 0, **more}
        assert set(figures) >= set(task.metrics)
    assert set(np.count_nonzero(draw_sample(together.config, range(8, 11)), axis=1)) == {8, 9, 10}
    assert draw_sample(config(1), range(5, 7)).sum(axis=1).tolist() == [5, 6]  # the hash holds out none of them


def test_exact_match_counts_a_row_only_if_all_of_it_is_right():
    sequences = np.array([[1, 2, 3], [4, 5, 0], [3, 3, 3], [1, 0, 0], [2, 1, 0]])

    def nearly(prompts, max_tokens):
        tokens = reversed_prompts(prompts, max_tokens)
        tokens[0, 1] = 1  # a wrong token
        tokens[1, 2] = 4  # a token where the sequence should end
        tokens[3, 0] = 0  # ended too early
        return tokens

    assert exact_match(*task_of(config()).continuations(evaluator(nearly), sequences)) == pytest.approx(2 / 5)


def test_a_symbol_and_its_mirror_image_have_one_position_in_batches_prompts_and_probes():
    task = task_of(config(mirrored=True))
    (batch,) = drawn(task.config, 1)
    for inputs, targets, positions in zip(batch["inputs"], batch["targets"], batch["positions"], strict=True):
        n = len(sequence_of(targets))
        assert positions.tolist() == [*range(n + 2), *range(n, 0, -1), *inputs * 0][: len(inputs)]
    (group,) = task.to_prompts(["3 1 2", "5"], 0, 12)
    assert group.prompts["positions"].tolist() == [[0, 1, 2, 3, 4, 3, 2, 1, *[0] * 6], [0, 1, 2, 1, *[0] * 10]]
    assert group.prompts["limits"].tolist() == [8, 10]
    assert task.to_batch("3 1 2", "2 1")["positions"].tolist() == [[0, 1, 2, 3, 4, 3, 2]]
    assert "positions" not in task_of(config()).to_batch("3 1", "1")


def test_an_answer_without_its_end_is_counted_as_cut_off():
    figures = task_of(config()).validate(evaluator(lambda prompts, n: np.ones((len(prompts["tokens"]), n), int)))
    assert figures["cut_off"] == figures["examples"] and all(sample[3] for sample in figures["samples"])


def test_prompts_and_answers_are_tokens_separated_by_spaces():
    asked = []

    def decode(groups):
        asked.extend((p["tokens"].tolist(), p["lengths"].tolist(), max_tokens) for _, p, max_tokens in groups)
        return PERFECT.decode(groups)

    answers = generated(task_of(config()), PERFECT._replace(decode=decode), [" 3 1  5", "", "2"], 0, 10)
    assert asked == [([[3, 1, 5, *[0] * 7], [0] * 10, [2, *[0] * 9]], [4, 1, 2], 10)]
    assert [hypotheses[0] for hypotheses in answers] == [("5 1 3", None, False), ("", None, False), ("2", None, False)]

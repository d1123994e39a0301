import jax
import numpy as np
import pytest

from fxf.data.text import TextConfig
from fxf.data.tokenizer import BOS, EOS, MASK, PAD
from fxf.tasks.masking import Masking, MaskingConfig, masked_batch, predicted
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated

LINES = "".join(f"the {a} {b} the {c}\n" for a in "abc" for b in "defg" for c in "hijkl")
VOCAB_SIZE = 23


def make(tmp_path, length=9, batch_size=5, **data):
    path = tmp_path / "text.txt"
    path.write_text(LINES)
    data = {"tokenizer": "word", "test": 0.2, **data}
    run = RunInfo(TrainConfig(batch_size=batch_size), TextConfig(path=str(path), **data))
    return Masking(MaskingConfig(length=length), run)


draw_masked = jax.jit(masked_batch, static_argnums=4)


def large_batch(share=0.15, lengths=61):
    text = np.random.default_rng(0).integers(MASK + 1, VOCAB_SIZE, (997, 61)).astype(np.int32)
    lengths = np.broadcast_to(np.int32(lengths), (997, 1))
    return text, jax.device_get(draw_masked(jax.random.key(0), text, lengths, share, VOCAB_SIZE))


def test_the_share_of_the_text_is_chosen_and_shown_80_10_10():
    _, batch = large_batch()
    chosen = batch["weights"] == 1
    assert chosen[:, 1:-1].mean() == pytest.approx(0.15, abs=0.01)
    inputs, targets = batch["inputs"], batch["targets"]
    np.testing.assert_array_equal(inputs[~chosen], targets[~chosen])
    assert (inputs[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.02)
    others = chosen & (inputs != MASK)
    n_text = VOCAB_SIZE - MASK - 1
    kept = 0.1 + 0.1 / n_text  # a random token may be the one that was there
    assert (inputs == targets)[chosen].mean() == pytest.approx(kept, abs=0.02)
    replaced = others & (inputs != targets)
    assert set(inputs[replaced].tolist()) == set(range(MASK + 1, VOCAB_SIZE))


def test_a_shorter_sequence_ends_early_and_its_padding_counts_nothing():
    text, batch = large_batch(share=0.99, lengths=np.arange(997)[:, None] % 61 + 1)
    for row in range(61):
        n = row + 1
        targets, weights = batch["targets"][row], batch["weights"][row]
        np.testing.assert_array_equal(targets, [BOS, *text[row, :n], EOS] + [PAD] * (61 - n))
        assert not weights[n + 1 :].any()
        np.testing.assert_array_equal(batch["inputs"][row, n + 1 :], targets[n + 1 :])
    assert batch["weights"][:61].sum() > 0.9 * 61 * 31


def test_batches_are_windows_of_the_training_part_and_one_in_ten_is_short(tmp_path):
    task = make(tmp_path, batch_size=4999)
    draw = jax.jit(task.batch)
    batch = jax.device_get(draw(jax.random.key(0), 0))
    lengths = (batch["targets"] == EOS).argmax(1) - 1
    assert (lengths < 7).mean() == pytest.approx(0.1 * 6 / 7, abs=0.015)
    assert set(lengths.tolist()) == set(range(1, 8))
    decode = task.tokenizer.decode
    train = " ".join(LINES[: int(len(LINES) * 0.7)].split())
    assert all(decode(row) in train for row in batch["targets"].tolist())
    again, other = (draw(jax.random.key(seed), 0)["inputs"] for seed in (0, 1))
    np.testing.assert_array_equal(batch["inputs"], again)
    assert not np.array_equal(batch["inputs"], other)


def perfect(batches):
    """An evaluator that knows the text, and that counts a loss of 2 for each token."""
    answers = {}

    def loss(batch):
        batches.append(batch)
        answers[batch["inputs"].tobytes()] = batch["targets"]
        return 2 * batch["weights"].sum(), batch["weights"].sum()

    def logits(batch):
        return np.eye(VOCAB_SIZE)[answers[batch["inputs"].tobytes()]]

    return Evaluator(None, loss, logits)


def test_a_perfect_model_fills_in_everything_and_the_same_is_asked_every_time(tmp_path):
    task, first, again = make(tmp_path), [], []
    figures = task.validate(perfect(first))
    n_chosen = figures["chosen_tokens"]
    samples = figures.pop("samples")
    assert figures == {
        "validation_loss": 2.0,
        "perplexity": pytest.approx(np.e**2),
        "accuracy": 1.0,
        "chosen_tokens": n_chosen,
    }
    assert {name.removeprefix("-") for name in task.metrics} <= set(figures)
    assert task.validate(perfect(again)) == {**figures, "samples": samples}
    for a, b in zip(first, again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    assert n_chosen == sum(batch["weights"].sum() for batch in first)
    without = task.validate(perfect([])._replace(in_nats=False))  # no perplexity follows from another loss
    assert without == {name: x for name, x in figures.items() if name != "perplexity"} | {"samples": samples}
    text = " ".join(task.tokenizer.decode(row) for batch in first for row in batch["targets"].tolist())
    assert text in " ".join(LINES[int(len(LINES) * 0.7) : int(len(LINES) * 0.9)].split())


def test_the_test_is_of_the_last_part_with_samples_of_blanks_filled_in(tmp_path):
    task, batches = make(tmp_path), []
    figures = task.test(perfect(batches))
    assert {"test_loss", "accuracy", "samples"} < set(figures)
    decode = task.tokenizer.decode
    text = " ".join(decode(row) for batch in batches for row in batch["targets"].tolist())
    assert text in " ".join(LINES[int(len(LINES) * 0.8) :].split())
    assert len(figures["samples"]) == 5
    for (blanks, expected, answer), row in zip(figures["samples"], batches[0]["inputs"], strict=False):
        assert blanks == decode(row.tolist())
        words = zip(expected.split(), blanks.split(), strict=True)
        assert answer == " ".join(right if shown == "<mask>" else shown for right, shown in words)


def test_accuracy_is_of_the_chosen_tokens_alone_also_of_those_that_are_shown(tmp_path):
    task, batches = make(tmp_path), []

    def always(batch):
        return np.eye(VOCAB_SIZE)[np.full(batch["inputs"].shape, MASK + 1)] + np.eye(VOCAB_SIZE)[MASK] * 2

    figures = task.validate(perfect(batches)._replace(logits=always))
    right = sum(((b["targets"] == MASK + 1) * b["weights"]).sum() for b in batches)
    assert 0 < right < figures["chosen_tokens"]
    assert figures["accuracy"] == pytest.approx(right / figures["chosen_tokens"])


def counting():
    """An evaluator that fills position i with the text's token number i."""

    def logits(batch):
        assert batch["inputs"].shape == (1, 9)
        return np.eye(VOCAB_SIZE)[MASK + 1 + np.arange(9)[None]]

    return Evaluator(None, None, logits)


def test_blanks_of_a_prompt_are_filled_in_and_the_rest_stays(tmp_path):
    task = make(tmp_path)
    decode = task.tokenizer.decode
    answers = generated(task, counting(), ["the <mask> d the <mask>", "<mask>", "a<mask>"], 0, 9)
    second, fifth, first = (decode([MASK + 1 + i]) for i in (2, 5, 1))
    assert [answer[0][0] for answer in answers] == [f"the {second} d the {fifth}", first, f"a {second}"]


def test_a_blank_of_subwords_takes_the_space_before_it(tmp_path):
    task = make(tmp_path, tokenizer="bpe", vocab_size=300)
    asked = []

    def logits(batch):
        asked.append(batch["inputs"][0].tolist())
        return np.zeros((*batch["inputs"].shape, task.vocab_size))

    generated(task, Evaluator(None, None, logits), ["a <mask> b"], 0, 9)
    encode = task.tokenizer.encode
    assert asked[0][:5] == [BOS, *encode("a"), MASK, *encode(" b"), EOS]


def test_padding_is_told_to_the_model(tmp_path):
    batch = draw_masked(jax.random.key(0), np.full((2, 7), 9), np.array([[7], [3]]), 0.5, 11)
    np.testing.assert_array_equal(batch["input_mask"], np.arange(9)[None] < np.array([[9], [5]]))
    asked = []
    predicted(Evaluator(None, None, lambda batch: asked.append(batch) or np.zeros((1, 4, 9))), np.array([[0, 7, 2, 1]]))
    np.testing.assert_array_equal(asked[0]["input_mask"], [[True, True, True, False]])

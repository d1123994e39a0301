import jax
import numpy as np
import pytest

from fxf.data.text import TextConfig
from fxf.data.tokenizer import BOS, EOS, MASK, PAD
from fxf.tasks.masking import Masking, MaskingConfig, masked_batch
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated

LINES = "".join(f"the {a} {b} the {c}\n" for a in "abc" for b in "defg" for c in "hijkl")
VOCAB_SIZE, P = 23, 61


def make(tmp_path, length=9, batch_size=5, **data):
    path = tmp_path / "text.txt"
    path.write_text(LINES)
    data = {"tokenizer": "word", "test": 0.2, **data}
    run = RunInfo(TrainConfig(batch_size=batch_size), TextConfig(path=str(path), **data))
    return Masking(MaskingConfig(length=length), run)


def words_of(start, end=1.0):
    """Returns the words of a part of the text, whose ends are given as shares."""
    return " ".join(LINES[int(len(LINES) * start) : int(len(LINES) * end)].split())


def test_the_share_of_each_sequence_is_chosen_and_shown_80_10_10_and_its_padding_counts_nothing():
    n_tokens = 8  # few, so that special tokens among the random ones would be noticed
    text = np.random.default_rng(0).integers(MASK + 1, n_tokens, (997, P)).astype(np.int32)
    lengths = np.where(np.arange(997)[:, None] < P, np.arange(997)[:, None] + 1, P)
    batch = jax.device_get(jax.jit(masked_batch, static_argnums=4)(jax.random.key(0), text, lengths, 0.3, n_tokens))
    for row, n in enumerate(lengths[:, 0]):
        np.testing.assert_array_equal(batch["targets"][row], [BOS, *text[row, :n], EOS] + [PAD] * (P - n))
    t = np.arange(P + 2)[None]
    np.testing.assert_array_equal(batch["input_mask"], t <= lengths + 1)
    inputs, targets, chosen = batch["inputs"], batch["targets"], batch["weights"] == 1
    of_text = (t > 0) & (t <= lengths)
    assert not chosen[~of_text].any() and chosen[of_text].mean() == pytest.approx(0.3, abs=0.01)
    assert chosen[t == lengths].mean() == pytest.approx(0.3, abs=0.05)  # the last token of each text
    np.testing.assert_array_equal(inputs[~chosen], targets[~chosen])
    assert (inputs[chosen] == MASK).mean() == pytest.approx(0.8, abs=0.01)
    kept = 0.1 + 0.1 / (n_tokens - MASK - 1)  # a random token may equal the original
    assert (inputs == targets)[chosen].mean() == pytest.approx(kept, abs=0.01)
    replaced = chosen & (inputs != MASK) & (inputs != targets)
    assert set(inputs[replaced].tolist()) == set(range(MASK + 1, n_tokens))


def test_batches_are_windows_of_the_training_part_and_one_in_ten_is_short(tmp_path):
    task = make(tmp_path, batch_size=4999)
    draw = jax.jit(task.batch)
    batch, again, other = (jax.device_get(draw(jax.random.key(seed), 0)) for seed in (0, 0, 1))
    lengths = (batch["targets"] == EOS).argmax(1) - 1
    assert (lengths < 7).mean() == pytest.approx(0.1 * 6 / 7, abs=0.015)
    assert set(lengths.tolist()) == set(range(1, 8))
    assert all(task.tokenizer.decode(row) in words_of(0, 0.7) for row in batch["targets"][:500].tolist())
    np.testing.assert_array_equal(batch["inputs"], again["inputs"])
    assert not np.array_equal(batch["inputs"], other["inputs"])


def perfect(batches):
    """An evaluator that knows the text, with a loss of 2 per token."""
    answers = {}

    def loss(batch):
        batches.append(batch)
        answers[batch["inputs"].tobytes()] = batch["targets"]
        return 2 * batch["weights"].sum(), batch["weights"].sum()

    return Evaluator(None, loss, lambda batch: np.eye(VOCAB_SIZE)[answers[batch["inputs"].tobytes()]])


def test_a_perfect_model_fills_in_everything_and_the_masks_are_the_same_each_time(tmp_path, monkeypatch):
    task, first, again, last = make(tmp_path), [], [], []
    monkeypatch.setattr("fxf.tasks.masking.LOGITS_AT_ONCE", 5 * 9 * task.vocab_size)  # of five rows
    figures = task.validate(perfect(first))
    assert task.validate(perfect(again)) == figures
    jax.tree.map(np.testing.assert_array_equal, first, again)
    without = task.validate(perfect([])._replace(in_nats=False))  # another loss gives no perplexity
    assert without == {name: x for name, x in figures.items() if name != "perplexity"}
    n_chosen = sum(batch["weights"].sum() for batch in first)
    samples, perplexity = figures.pop("samples"), pytest.approx(np.e**2)
    expected = {"validation_loss": 2.0, "perplexity": perplexity, "accuracy": 1.0, "chosen_tokens": n_chosen}
    assert figures == expected and {name.removeprefix("-") for name in task.metrics} <= set(figures)
    decode = task.tokenizer.decode
    for (blanks, right, answer), row in zip(samples, first[0]["inputs"], strict=False):
        assert blanks == decode(row.tolist())
        shown = zip(right.split(), blanks.split(), strict=True)
        assert answer == " ".join(word if blank == "<mask>" else blank for word, blank in shown)
    of_test = task.test(perfect(last))
    assert len(last) == 2 and len(of_test["samples"]) == 5 and of_test["test_loss"] == 2.0
    for batches, part in (first, words_of(0.7, 0.9)), (last, words_of(0.8)):
        assert " ".join(decode(row) for batch in batches for row in batch["targets"].tolist()) in part


def test_accuracy_is_of_the_chosen_tokens_alone_masked_or_not(tmp_path):
    task, batches = make(tmp_path), []

    def always(batch):
        return np.eye(VOCAB_SIZE)[np.full(batch["inputs"].shape, MASK + 1)] + np.eye(VOCAB_SIZE)[MASK] * 2

    figures = task.validate(perfect(batches)._replace(logits=always))
    right = sum(((b["targets"] == MASK + 1) * b["weights"]).sum() for b in batches)
    assert 0 < right < (n := figures["chosen_tokens"]) and figures["accuracy"] == pytest.approx(right / n)
    first = task.tokenizer.name(MASK + 1)
    assert all(answer == blanks.replace("<mask>", first) for blanks, _, answer in figures["samples"])
    task.config = MaskingConfig(length=9, share=1e-9)  # so none is chosen, and there is no score
    assert np.isnan([task.validate(perfect([]))[name] for name in ("validation_loss", "accuracy", "perplexity")]).all()


def test_blanks_of_a_prompt_are_filled_in_and_the_rest_stays(tmp_path):
    task = make(tmp_path)

    def counting(batch):  # position i has the text's token number i
        assert batch["inputs"].shape == (1, 9) and ((batch["inputs"] != PAD) == batch["input_mask"]).all()
        return np.eye(VOCAB_SIZE)[MASK + 1 + np.arange(9)[None]]

    prompts = ["the <mask> d the <mask>", "<mask>", "a<mask>"]
    answers = generated(task, Evaluator(None, None, counting), prompts, 0, 9)
    second, fifth, first = (task.tokenizer.decode([MASK + 1 + i]) for i in (2, 5, 1))
    assert [answer[0][0] for answer in answers] == [f"the {second} d the {fifth}", first, f"a {second}"]


def test_a_blank_of_subwords_takes_the_space_before_it(tmp_path):
    task = make(tmp_path, tokenizer="bpe", vocab_size=300)
    assert task.encode("a <mask> b") == [BOS, *task.tokenizer.encode("a"), MASK, *task.tokenizer.encode(" b"), EOS]

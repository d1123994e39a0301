import json
import math

import jax
import numpy as np
import pytest

from fxf.data.documents import DocumentsConfig, part_of
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated, in_groups

LINES = "".join(f"{i} and {i * i}\n" for i in range(60))


def make(tmp_path, length=7, score="all", bos=True, **data):
    path = tmp_path / "text.txt"
    path.write_text(LINES)
    run = RunInfo(TrainConfig(batch_size=5), DocumentsConfig(path=str(path), **data))
    return language_model(LanguageModelConfig(length=length, score=score, bos=bos), run)


def evaluator(loss=None, continuation=None):
    """An evaluator that continues every prompt by `continuation` and counts a loss of `loss(batch)`."""

    def decode_prompts(prompts, max_tokens):
        rows = np.tile(np.resize(continuation, max_tokens), (len(prompts["tokens"]), 1))
        return rows[:, None], None

    return Evaluator(in_groups(decode_prompts), loss, lambda batch: None)


def scored(score, nats=1.5):
    """Returns the targets that count, and the figures for so many nats a token."""
    counted = []

    def loss(batch):
        begins = batch["inputs"][:, 1:] == batch["inputs"][0, 0]  # a document begins with a token of its own
        np.testing.assert_array_equal(batch["inputs"][:, 1:][~begins], batch["targets"][:, :-1][~begins])
        counted.extend(batch["targets"][batch["weights"] > 0].tolist())
        return nats * batch["weights"].sum(), batch["weights"].sum()

    return counted, score(evaluator(loss, [5, 6]))


@pytest.mark.parametrize("bos", [True, False])
def test_windows_are_of_the_training_text_behind_bos_or_by_themselves(bos, tmp_path):
    task = make(tmp_path, bos=bos)
    first, again, other = (task.batch(jax.random.key(seed), 0) for seed in (3, 3, 2))
    batch = jax.tree.map(np.asarray, first)
    np.testing.assert_array_equal(batch["targets"], again["targets"])
    assert not np.array_equal(batch["targets"], other["targets"])
    assert batch["inputs"].shape == batch["targets"].shape == (5, 7) and (batch["weights"] == 1).all()
    rows = np.concatenate([batch["inputs"][:, :1], batch["targets"]], axis=1)
    np.testing.assert_array_equal(batch["inputs"], rows[:, :-1])
    decode, train = task.tokenizer.decode, LINES[: int(len(LINES) * 0.9)]
    texts = [decode(row) for row in rows.tolist()]
    assert all(len(text) == 8 - bos and text in train for text in texts)
    assert (batch["inputs"][:, 0] == 0).all() == bos


@pytest.mark.parametrize(("bos", "expected"), [(True, [["", "1", " ", "a"], [""]]), (False, [["1", " ", "a"], ["\n"]])])
def test_a_prompt_is_read_behind_bos_or_by_itself(tmp_path, bos, expected):
    task, read = make(tmp_path, bos=bos), []
    decode = task.tokenizer.decode

    def decode_prompts(prompts, max_tokens):
        rows = np.concatenate([prompts["first"][:, None], prompts["tokens"]], axis=1)
        read.extend(
            [decode([token]) for token in row[: 1 + n]] for row, n in zip(rows, prompts["lengths"], strict=True)
        )
        return np.zeros((len(rows), 1, max_tokens), np.int32), None

    generated(task, Evaluator(in_groups(decode_prompts), None, None), ["1 a", ""], 2, 9)
    assert read == expected
    inputs = np.asarray(task.to_batch("1 a", "1 and")["inputs"])[0]
    assert [decode([token]) for token in inputs.tolist()] == [*[""] * bos, *"1 and"]


@pytest.mark.parametrize("bos", [True, False])
def test_the_validation_counts_each_of_its_tokens_once_but_without_bos_not_the_first(bos, tmp_path):
    task = make(tmp_path, bos=bos)
    counted, figures = scored(task.validate)
    assert task.tokenizer.decode(counted) == LINES[int(len(LINES) * 0.9) :][not bos :]
    bits = pytest.approx(1.5 / math.log(2))
    assert figures == {"validation_loss": 1.5, "bits_per_character": bits, "bits_per_byte": bits}
    assert {name.removeprefix("-") for name in task.metrics} == set(figures)


@pytest.mark.parametrize(("share", "name"), [(0.0, "validation_loss"), (0.2, "test_loss")])
def test_the_test_is_of_the_last_part_or_of_the_validation(share, name, tmp_path):
    task = make(tmp_path, test=share)
    counted, figures = scored(task.test)
    assert LINES.endswith(task.tokenizer.decode(counted))
    assert len(counted) == pytest.approx(len(LINES) * (share or 0.1), abs=2)
    assert set(figures) == {name, "bits_per_character", "bits_per_byte", "samples"}
    ((prompt, expected, text),) = figures["samples"]
    assert (prompt, expected, len(text)) == ("", None, 7)


def test_answers_are_the_prompts_continued_to_the_last_position(tmp_path):
    task = make(tmp_path)
    decode = task.tokenizer.decode
    answers = generated(task, evaluator(continuation=[7]), ["1 an", ""], 0, 9)
    new = [(text + n * decode([7]), None, False) for text, n in (("1 an", 5), ("", 9))]
    assert [answer[0] for answer in answers] == new
    assert generated(task, evaluator(continuation=[7]), ["1"], 2, 9)[0][0][0] == "1" + 2 * decode([7])


def test_where_the_last_token_alone_is_scored_the_others_weigh_nothing(tmp_path):
    task, weights = make(tmp_path, score="last"), []
    np.testing.assert_array_equal(task.batch(jax.random.key(3), 0)["weights"], np.eye(7)[[6] * 5])
    task.validate(evaluator(lambda batch: (weights.append(batch["weights"]), (1.0, batch["weights"].sum()))[1]))
    assert (np.concatenate(weights)[:, :-1] == 0).all() and np.concatenate(weights)[:, -1].sum() > 1


def test_a_model_without_cross_entropy_has_the_share_of_right_first_choices(tmp_path):
    task = make(tmp_path)
    vocabulary = np.arange(task.vocab_size)

    def right_about_odd_tokens(batch):
        seen = batch["targets"] * (batch["targets"] % 2)  # and token 0 in place of even ones
        return (vocabulary == seen[..., None]).astype(np.float32)

    counted, _ = scored(task.validate)
    model = Evaluator(None, lambda b: (3.0 * b["weights"].sum(), b["weights"].sum()), right_about_odd_tokens, False)
    figures = task.validate(model)
    assert figures == {"validation_loss": 3.0, "accuracy": pytest.approx(np.mean(np.array(counted) % 2))}


DOCUMENTS = [f"{i} and {i * i} ß" for i in range(80)]


def make_documents(tmp_path, folder=None, length=7, bos=True, mask=True, **data):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    keys = DocumentsConfig(**{"path": str(path), "format": "json_lines", "validation": 0.3, **data})
    run = RunInfo(TrainConfig(batch_size=5), keys, folder=folder)
    return language_model(LanguageModelConfig(length=length, bos=bos, document_mask=mask), run)


@pytest.mark.parametrize("kind", ["character", "bpe"])
def test_bits_of_documents_are_per_byte_and_character_of_text_whatever_the_tokens(kind, tmp_path):
    task = make_documents(tmp_path, tokenizer=kind, vocab_size=300)
    held_out = [text for text in DOCUMENTS if part_of(task.data, text) == "validation"]
    counted, figures = scored(task.validate, 2)
    assert counted.count(task.end_token) == len(held_out) == task.figures()["validation_documents"] > 9
    assert task.tokenizer.decode(counted) == "".join(held_out)
    bits = 2 * len(counted) / math.log(2)
    assert figures["bits_per_character"] == pytest.approx(bits / len("".join(held_out)))
    assert figures["bits_per_byte"] == pytest.approx(bits / len("".join(held_out).encode()))
    assert {name.removeprefix("-") for name in task.metrics} == set(figures)


def test_the_test_of_documents_is_of_their_own_part_or_of_the_validation(tmp_path):
    for share, expected, name in ((0.0, "validation", "validation_loss"), (0.3, "test", "test_loss")):
        task = make_documents(tmp_path, test=share)
        counted, figures = scored(task.test)
        assert name in figures
        texts = [text for text in DOCUMENTS if part_of(task.data, text) == expected]
        assert task.tokenizer.decode(counted) == "".join(texts)


@pytest.mark.parametrize("bos", [True, False])
def test_documents_begin_and_end_with_their_special_tokens_in_batches_and_prompts(bos, tmp_path):
    task, read = make_documents(tmp_path, bos=bos), []
    special = task.tokenizer.special
    first = special.bos if bos else special.eos
    batch = next(task.batches())
    assert {name: x.shape for name, x in batch.items()} == {k: s.shape for k, s in task.largest_batch().items()}
    begins = batch["positions"] == 0
    assert (batch["inputs"][:, 1:][begins[:, 1:]] == first).all() and task.end_token == special.eos

    def decode_prompts(prompts, max_tokens):
        read.extend(prompts["first"].tolist())
        return np.full((len(prompts["tokens"]), 1, max_tokens), special.eos), None

    (((answer, *_),),) = generated(task, Evaluator(in_groups(decode_prompts), None, None), ["1 an"], 3, 9)
    assert (answer, read) == ("1 an", [first])

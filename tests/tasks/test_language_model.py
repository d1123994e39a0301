import json
import math

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fxf.base.errors import UserError
from fxf.data.documents import DocumentsConfig, part_of
from fxf.models.decode_config import DecodeConfig
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.task import NO_END, Evaluator, RunInfo
from fxf.training.step import TrainConfig
from helpers import generated, in_groups, table

LINES = "".join(f"{i} and {i * i} ß\n" for i in range(60))
DOCUMENTS = [f"{i} and {i * i} ß" for i in range(80)]


def make(tmp_path, *, score="all", bos=True, **data):
    """Returns the task on a text; with a `format` on documents."""
    path = tmp_path / "text"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS) if "format" in data else LINES)
    run = RunInfo(TrainConfig(batch_size=5), DocumentsConfig(path=str(path), **data))
    return language_model(LanguageModelConfig(length=7, score=score, bos=bos), run)


def on_documents(tmp_path, **keys):
    return make(tmp_path, **{"format": "json_lines", "validation": 0.3, **keys})


def evaluator(loss=None, continuation=(5, 6), read=None):
    """An evaluator that continues every prompt by `continuation`, and appends its inputs to a list."""
    inputs = [] if read is None else read

    def decode_prompts(prompts, max_tokens):
        rows = np.concatenate([prompts["first"][:, None], prompts["tokens"]], axis=1)
        inputs.extend(row[: 1 + n].tolist() for row, n in zip(rows, prompts["lengths"], strict=True))
        return np.tile(np.resize(continuation, max_tokens), (len(rows), 1))[:, None], None

    return Evaluator(in_groups(decode_prompts), loss, lambda batch: None)


def scored(score, nats=1.5, **options):
    """Returns the targets with weight, and the metrics for these nats per token."""
    counted = []

    def loss(batch):
        begins = batch["inputs"][:, 1:] == batch["inputs"][0, 0]  # a document begins with its own token
        np.testing.assert_array_equal(batch["inputs"][:, 1:][~begins], batch["targets"][:, :-1][~begins])
        counted.extend(batch["targets"][batch["weights"] > 0].tolist())
        return nats * batch["weights"].sum(), batch["weights"].sum()

    return counted, score(evaluator(loss, **options))


@pytest.mark.parametrize("bos", [True, False])
def test_windows_are_of_the_training_text_with_or_without_bos(bos, tmp_path):
    task = make(tmp_path, bos=bos)
    batch, again, other = (jax.device_get(task.batch(jax.random.key(seed), 0)) for seed in (3, 3, 2))
    np.testing.assert_array_equal(batch["targets"], again["targets"])
    assert not np.array_equal(batch["targets"], other["targets"])
    assert batch["inputs"].shape == batch["targets"].shape == (5, 7) and (batch["weights"] == 1).all()
    rows = np.concatenate([batch["inputs"][:, :1], batch["targets"]], axis=1)
    np.testing.assert_array_equal(batch["inputs"], rows[:, :-1])
    texts, train = map(task.tokenizer.decode, rows.tolist()), LINES[: int(len(LINES) * 0.9)]
    assert all(len(text) == 8 - bos and text in train for text in texts)
    assert (batch["inputs"][:, 0] == 0).all() == bos


@pytest.mark.parametrize(("bos", "expected"), [(True, [["", "1", " ", "a"], [""]]), (False, [["1", " ", "a"], ["\n"]])])
def test_a_prompt_is_read_with_or_without_bos(tmp_path, bos, expected):
    task, read = make(tmp_path, bos=bos), []
    generated(task, evaluator(read=read), ["1 a", ""], 2, 9)
    assert [[task.tokenizer.decode([token]) for token in row] for row in read] == expected
    inputs = np.asarray(task.to_batch("1 a", "1 and")["inputs"])[0]
    assert [task.tokenizer.decode([token]) for token in inputs.tolist()] == [*[""] * bos, *"1 and"]


@pytest.mark.parametrize(("keys", "name"), table("parts of a text"))
def test_a_part_counts_each_of_its_tokens_once_but_without_bos_not_the_first(keys, name, tmp_path):
    part, bos, share = keys["part"], keys["bos"], keys["test"]
    task = make(tmp_path, bos=bos, test=share)
    ended = (5, 6, NO_END)  # as with decode.ends, which is not a token of the text
    counted, figures = scored(task.validate if part == "validation" else task.test, continuation=ended)
    whole = LINES[int(len(LINES) * (1 - (share or 0.1))) :]
    assert task.tokenizer.decode(counted) == whole[not bos :]
    if part == "test":
        ((prompt, expected, text, _),) = figures.pop("samples")
        assert (prompt, expected, len(text)) == ("", None, 2)
    bits, of_bytes = (pytest.approx(1.5 / math.log(2) * len(whole) / len(x)) for x in (whole, whole.encode()))
    assert figures == {name: 1.5, "bits_per_character": bits, "bits_per_byte": of_bytes}
    assert name == "test_loss" or {metric.removeprefix("-") for metric in task.metrics} == set(figures)


def test_answers_are_the_prompts_continued_to_the_last_position(tmp_path):
    task = make(tmp_path)
    answers, seven = generated(task, evaluator(continuation=[7]), ["1 an", ""], 0, 9), task.tokenizer.decode([7])
    assert [answer[0] for answer in answers] == [(f"1 an{5 * seven}", None, False), (9 * seven, None, False)]
    assert generated(task, evaluator(continuation=[7]), ["1"], 2, 9)[0][0][0] == f"1{2 * seven}"


def test_words_in_decoding_keys_are_tokens_at_the_start_and_inside_of_a_text(tmp_path):
    task = make(tmp_path, tokenizer="bpe", vocab_size=300, lower_case=True)
    encode = task.tokenizer.encode
    rules = task.rules(DecodeConfig(banned="And 7", prefix="1 And", ends="9 And"))
    assert {*map(tuple, rules["words"].banned)} == {tuple(encode(text)) for text in ("and", " and", "7", " 7")}
    assert rules["words"].prefix == encode("1 and") and task.behind("1") == encode("1")  # though 11 is one token
    assert rules["end_token"] == (task.end_token, *encode("9"), *encode(" 9"), *encode(" and"))


@pytest.mark.parametrize("prefix", [" and", "and", "  and"])
def test_an_answer_begins_with_the_prefix_also_if_a_tokenizer_adds_a_space(prefix, tmp_path):
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -3.0), ("▁and", -1.0), ("a", -2.0), ("n", -2.0), ("d", -2.0)]
    backend = Tokenizer(models.Unigram(pieces, 0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens(["</s>"])
    backend.save(str(tmp_path / "file.json"))
    task = make(tmp_path, tokenizer=str(tmp_path / "file.json"))
    words = task.rules(DecodeConfig(prefix=prefix))["words"]
    assert (task.to_text("a", words.prefix), words.begins) == (f"a{prefix}", 1)


def test_if_only_the_last_token_is_scored_the_others_have_no_weight(tmp_path):
    task, weights = make(tmp_path, score="last"), []
    np.testing.assert_array_equal(task.batch(jax.random.key(3), 0)["weights"], np.eye(7)[[6] * 5])
    task.validate(evaluator(lambda batch: (weights.append(batch["weights"]), (1.0, batch["weights"].sum()))[1]))
    assert (np.concatenate(weights)[:, :-1] == 0).all() and np.concatenate(weights)[:, -1].sum() > 1
    with pytest.raises(UserError, match=r"^prompt 1: expected 6 tokens or more, got 5; with task\.score=last the"):
        generated(task, evaluator(), ["1 and"], 1, 9)


def test_a_model_without_cross_entropy_has_the_share_of_right_first_choices(tmp_path):
    task = make(tmp_path)

    def right_about_odd_tokens(batch):  # and token 0 instead of even ones
        return np.eye(task.vocab_size)[batch["targets"] * (batch["targets"] % 2)]

    counted, _ = scored(task.validate)
    model = Evaluator(None, lambda b: (3.0 * b["weights"].sum(), b["weights"].sum()), right_about_odd_tokens, False)
    assert task.validate(model) == {"validation_loss": 3.0, "accuracy": pytest.approx(np.mean(np.array(counted) % 2))}


@pytest.mark.parametrize(("keys", "name"), table("parts of documents"))
def test_bits_of_documents_are_per_byte_and_character_of_their_part_whatever_the_tokens(keys, name, tmp_path):
    task, share = on_documents(tmp_path, vocab_size=300, **keys), keys["test"]
    held_out = [text for text in DOCUMENTS if part_of(task.data, text) == ("test" if share else "validation")]
    counted, figures = scored(task.test, 2)
    assert counted.count(task.end_token) == len(held_out) > 9
    assert task.tokenizer.decode(counted) == "".join(held_out)
    bits = 2 * len(counted) / math.log(2)
    assert figures[name] == 2
    assert figures["bits_per_character"] == pytest.approx(bits / len("".join(held_out)))
    assert figures["bits_per_byte"] == pytest.approx(bits / len("".join(held_out).encode()))
    if not share:
        assert {metric.removeprefix("-") for metric in task.metrics} == {*figures} - {"samples"}
        assert task.figures()["validation_documents"] == len(held_out)


@pytest.mark.parametrize("bos", [True, False])
def test_documents_begin_and_end_with_their_special_tokens_in_batches_and_prompts(bos, tmp_path):
    task, read = on_documents(tmp_path, bos=bos), []
    special = task.tokenizer.special
    first = special.bos if bos else special.eos
    batch = next(task.batches())
    assert {name: x.shape for name, x in batch.items()} == {k: s.shape for k, s in task.largest_batch().items()}
    begins = batch["positions"] == 0
    assert (batch["inputs"][:, 1:][begins[:, 1:]] == first).all() and task.end_token == special.eos
    (((answer, *_),),) = generated(task, evaluator(continuation=[special.eos], read=read), ["1 an"], 3, 9)
    assert (answer, read) == ("1 an", [[first, *task.tokenizer.encode("1 an")]])

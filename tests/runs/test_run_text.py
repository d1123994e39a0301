"""Whole runs on texts: training, interruption, scoring, and generation."""

import itertools
import json
import shutil

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

import fxf
from fxf.base.errors import UserError
from fxf.runs import run
from fxf.runs.experiment import build
from fxf.runs.generation import Answering
from helpers import random_params, table
from small_runs import Shared, records, text_config, trained

LINES = "".join(f"{i} and {i * i}\n" for i in range(90))


def params(workdir):
    return jax.tree.map(np.asarray, run.load(workdir)[2])


def without_data(workdir, folder, path="absent"):
    """Returns a copy of a run with missing or moved data."""
    copy = shutil.copytree(workdir, folder / "run")
    config = json.loads((copy / "config.json").read_text())
    config["config"]["data"]["path"] = str(path)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


PROGRAMS = Shared()  # runs differ in steps and in the folder of prepared tokens


@pytest.fixture(scope="module")
def of_documents(tmp_path_factory):
    """Returns the folder of a run on documents, its config and its result."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES.splitlines()))
    config = text_config(
        folder / "texts.jsonl",
        data={"format": "json_lines", "test": 0.1},
        optimizer={"name": "sgd", "learning_rate": 3.0},
        train={"steps": 20, "evaluate_every": 5, "skip_nonfinite": 1},
        checkpoint={"every": 5, "keep": 4, "best": "-validation_loss"},
        log={"every": 5},
    )
    return folder / "run", config, trained(config, folder / "run", kept=PROGRAMS)


def test_the_checkpoint_with_the_lowest_validation_loss_is_the_one_in_use(of_documents):
    workdir, _, result = of_documents
    rows = [row for row in records(workdir) if "loss" in row]
    assert rows and all(0 < row["data_seconds_per_step"] < 1 / row["steps_per_second"] for row in rows)
    # On a CPU there is neither utilization nor device memory.
    assert not {"mfu", "device_peak_bytes", "device_bytes"} & {*result, *(name for row in rows for name in row)}
    losses = {row["step"]: row["validation_loss"] for row in records(workdir) if "validation_loss" in row}
    best = min(losses, key=losses.get)
    assert result["best_step"] == best == run.load(workdir)[1] and losses[best] < max(losses.values())
    assert result["bits_per_character"] > 1 and result["training_tokens"] < 20 * 5 * 11  # so there is another epoch


def test_a_run_that_is_cut_short_ends_with_the_same_bits(of_documents, tmp_path):
    whole, config, result = of_documents
    again = shutil.copytree(whole, tmp_path / "again")
    (again / "result.json").unlink()
    for step in (10, 15, 20):
        shutil.rmtree(again / "checkpoints" / str(step))
    elsewhere = {**config, "data": {**config["data"], "prepared": str(tmp_path / "elsewhere")}}
    found = trained(elsewhere, again, kept=PROGRAMS)
    assert (found["bits_per_byte"], found["best_step"]) == (result["bits_per_byte"], result["best_step"])
    jax.tree.map(np.testing.assert_array_equal, params(again), params(whole))
    with pytest.raises(UserError, match=r"decode\.beam_width: a language model is scored without decoding"):
        run.evaluate(whole, decode={"beam_width": 4, "weights": "int8"})
    text = tmp_path / "other.jsonl"
    text.write_text((whole.parent / "texts.jsonl").read_text().replace("and", "und"))
    with pytest.raises(UserError, match=r"run: was trained on other data: data.path \(.*put .* back at .*other.jsonl$"):
        run.evaluate(without_data(whole, tmp_path, text))


def test_steps_that_are_not_finite_are_skipped_and_counted_up_to_a_limit(of_documents, tmp_path, monkeypatch):
    """The batches of steps 2 and 4 have a NaN weight."""
    _, config, _ = of_documents
    make = run.make_train_steps_from_iterator

    def spoiled(trainer, batches, *rest):
        bad = ({**each, "weights": each["weights"] * (np.nan if i in (2, 4) else 1)} for i, each in enumerate(batches))
        return make(trainer, bad, *rest)

    def skipping(most):
        sections = {"train": {**config["train"], "steps": 6, "skip_nonfinite": most}}
        return trained({**config, **sections}, tmp_path / str(most), kept=PROGRAMS)

    monkeypatch.setattr(run, "make_train_steps_from_iterator", spoiled)
    with pytest.raises(UserError, match="step 5: the loss is nan"):
        skipping(1)
    result = skipping(2)
    assert result["skipped_steps"] == 2 and np.isfinite(result["train_loss"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params(tmp_path / "2")))


def test_prompts_are_continued_without_the_text_and_past_max_len_by_relative_positions(of_documents, tmp_path, caplog):
    whole, config, _ = of_documents
    ((alone, *_),), ((empty, *_),) = fxf.load(without_data(whole, tmp_path)).answers(["7 an", ""])
    assert alone.startswith("7 an") and 4 <= len(alone) <= 17 and len(empty) <= 17
    weights, alibi = params(whole), build({**config, "model": {**config["model"], "positions": "alibi"}}, tmp_path)
    del weights["embedding"]["positions"]
    with pytest.raises(UserError, match=r"prompt 1: 4 tokens and 40 to generate; model\.max_len is 17"):
        Answering(alibi._replace(draft=(alibi.model, weights, 4)), weights, max_tokens=40)(["7 an"])
    (group,) = Answering(alibi, weights)._groups(["7 an"])
    assert group.prompts["limits"].tolist() == [13]  # up to max_len, if no number is given
    (((answer, *_),),) = (answering := Answering(alibi, weights, max_tokens=40))(["7 an"])
    assert len(answer) == 44
    with pytest.raises(UserError, match=r"prompt 2: 20 tokens; expected at most model\.max_len 17"):
        answering(["7 an", "7 an" * 5])
    assert caplog.messages == ["warning: a text passes model.max_len; attention then sees the newest 17 tokens"]


def test_answers_that_come_in_parts_are_those_that_come_together(of_documents, monkeypatch):
    run, texts = fxf.load(of_documents[0], temperature=1.0), ["7", "", "7 an", "7", "1"]
    together, answering = run.answers(texts), Answering(run.experiment, run.params)
    monkeypatch.setattr("fxf.runs.generation.AT_ONCE", 2)
    parts = [*answering.parts(texts)]
    assert [len(part) for part in parts] == [2, 2, 1] and together[0] != together[3]
    assert [best.text for part in parts for best, *_ in part] == [best.text for best, *_ in together]


@pytest.mark.thorough
def test_answers_keep_the_rules_that_are_given_as_text(of_documents, monkeypatch):
    def answer(stop=(), **keys):
        return fxf.load(of_documents[0], **{"temperature": 2.0, **keys}).answers(["7"], stop=stop)[0][0]

    free = answer()
    monkeypatch.setattr("fxf.runs.generation.LENGTH_STEP", 1)  # prompts and answers without padding
    assert len(free.text) > 4 and answer(stop="") == answer(stop=[""]) == free
    assert answer(prefix=" and 4").text.startswith("7 and 4")
    character = free.text.split()[-1][-1]
    stopped = answer(stop=["absent", "", character])
    assert stopped.text == free.text[: 1 + free.text[1:].index(character)] and not stopped.cut_off
    assert character not in answer(banned=character).text[1:]
    assert answer(ends=character).text == stopped.text


def test_a_stream_waits_for_the_bytes_of_a_character_and_the_start_of_a_stop_and_a_text_comes_once(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"häh héh {i}\n" for i in range(50)))
    backend = Tokenizer(models.BPE({f"<0x{n:02X}>": n for n in range(256)}, [], byte_fallback=True))
    backend.decoder = decoders.ByteFallback()  # shows no byte of a sequence that is not UTF-8
    backend.add_special_tokens(["</s>"])
    backend.save(path := str(tmp_path / "bytes.json"))
    for tokenizer, limit, (stop, texts) in itertools.product(("bpe", path), (5, 6), table("streams of äé!")):
        data = {"format": "files", "separator": "\n", "tokenizer": tokenizer, "vocab_size": 261, "lower_case": True}
        experiment = build(text_config(tmp_path / "text.txt", data=data), tmp_path)
        tokens, weights = experiment.task.tokenizer.encode("äé!"), random_params(experiment.model.spec)
        ways = {"decode": lambda groups, tokens=tokens: [(np.array([[tokens]]), None)]}
        ways["stream"] = lambda group, tokens=tokens: (tokens[:n] for n in range(1, 6))
        answering = Answering(experiment, weights, max_tokens=limit, **stop)
        answering._evaluator = answering._evaluator._replace(**ways)
        found = [*answering.stream("h")]
        assert [part.text for part in found] == texts.split() and answering(["h"])[0] == found[-1:]
        assert found[-1].cut_off == (limit == 5 and not stop["stop"])
        experiment.task.end_token = -1  # a text that nothing ends is not cut off
        assert [*answering.stream("h")] == [each._replace(cut_off=False) for each in found]
    found = np.array([[experiment.task.tokenizer.encode(text) for text in "aab"]]), np.array([[-1.0, -2.0, -3.0]])
    answering = Answering(experiment, weights)
    answering._evaluator = answering._evaluator._replace(decode=lambda groups: [found])
    assert [(each.text, each.score) for each in answering(["h"])[0]] == [("ha", -1.0), ("hb", -3.0)]

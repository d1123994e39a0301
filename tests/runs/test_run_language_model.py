"""Whole runs on a text: train, choose the best checkpoint, continue a prompt."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest

import fxf
from fxf.base.errors import UserError
from fxf.runs import run
from fxf.runs.experiment import build
from fxf.runs.generation import Answering
from small_runs import KEPT, command, records, sharing_programs, text_config, trained

LINES = "".join(f"{i} and {i * i}\n" for i in range(90))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("characters")
    (folder / "text.txt").write_text(LINES)
    config = text_config(
        folder / "text.txt",
        data={"test": 0.1},
        optimizer={"name": "sgd", "learning_rate": 3.0},
        train={"steps": 12, "evaluate_every": 2},
        checkpoint={"best": "-validation_loss", "keep": 1},
        log={"every": 2},
    )
    return folder / "run", trained(config, folder / "run", kept=KEPT)


def test_the_checkpoint_with_the_lowest_validation_loss_is_the_one_in_use(finished):
    workdir, result = finished
    rows = records(workdir)
    losses = {row["step"]: row["validation_loss"] for row in rows if "validation_loss" in row}
    best = min(losses, key=losses.get)
    assert losses[best] < max(losses.values())
    assert result["best_step"] == best == run.load(workdir)[1]


def test_a_result_has_the_figures_of_the_text(finished, monkeypatch):
    sharing_programs(monkeypatch)
    workdir, result = finished
    evaluated = run.evaluate(workdir)
    assert evaluated["test_loss"] == result["test_loss"]
    assert result["bits_per_character"] > 1
    assert result["training_tokens"] == int(len(LINES) * 0.8)


def test_a_prompt_is_continued_without_the_text(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["config"]["data"]["path"] = "absent"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    alone, empty = fxf.load(tmp_path / "run").answers(["7 an", ""])
    assert alone[0][0].startswith("7 an")
    assert 4 <= len(alone[0][0]) <= 17
    assert len(empty[0][0]) <= 17


@pytest.mark.thorough
def test_answers_keep_the_rules_that_are_given_as_text(finished):
    def answer(stop=(), **keys):
        return fxf.load(finished[0], **{"temperature": 2.0, **keys}).answers(["7"], stop=stop)[0][0]

    free = answer()
    assert len(free.text) > 6
    assert answer(prefix=" and 4").text.startswith("7 and 4")
    for character in sorted(set(free.text[1:]) - {" ", "\n"})[:1]:
        assert character not in answer(banned=character).text[1:]
        stopped = answer(stop=["absent", character])
        assert stopped.text == free.text[: 1 + free.text[1:].index(character)] and not stopped.cut_off
        assert answer(ends=character).text[1:] == free.text[1:].split(character)[0]
    assert len(answer(ends="a n d 0 1 2 3 4 5 6 7 8 9", min_tokens=5).text) >= 6
    with pytest.raises(UserError, match=r"decode\.banned: the vocabulary lacks 'z'"):
        answer(banned="z")
    with pytest.raises(UserError, match=r"decode\.ends: 'and' is not one token"):
        answer(ends="and")
    with pytest.raises(UserError, match="stop: beam search does not read it"):
        answer(stop=["a"], beam_width=2, temperature=0.0)


@pytest.mark.thorough
def test_a_streamed_answer_grows_into_the_whole_one(finished, monkeypatch):
    sharing_programs(monkeypatch)

    experiment, _, params = run.load(finished[0], decode={"temperature": 2.0})
    generator = functools.partial(Answering, experiment, params)

    ((whole,),) = generator()(["7"])
    parts = list(generator().stream("7"))
    assert parts[-1] == whole and len(parts) > 6
    assert all(part.text == whole.text[: len(part.text)] for part in parts)
    stop = whole.text[4:6]
    ((stopped,),) = generator(stop=["absent", stop])(["7"])
    parts = list(generator(stop=["absent", stop]).stream("7"))
    assert parts[-1] == stopped and all(part.text == stopped.text[: len(part.text)] for part in parts)
    words = ["--workdir", finished[0], "--temperature=2.0", "--stop", stop, "7"]
    plain, streamed = command("generate", *words), command("generate", "--stream", *words)
    assert (streamed.returncode, streamed.stdout, streamed.stderr) == (0, plain.stdout, plain.stderr)


def test_a_stream_waits_for_the_bytes_of_a_character(tmp_path):
    (tmp_path / "text.txt").write_text("häh héh\n" * 50)
    experiment = build(text_config(tmp_path / "text.txt", data={"tokenizer": "bpe", "vocab_size": 261}), tmp_path)
    answering = Answering(experiment, {})
    tokens = experiment.task.tokenizer.encode("äé!")
    assert len(tokens) == 5
    parts = [tokens[:n] for n in range(1, 6)]
    answering._evaluator = answering._evaluator._replace(stream=lambda group: iter(parts))
    assert [part.text for part in answering.stream("h")] == ["h", "hä", "hä", "häé", "häé!", "häé!"]


def params(workdir):
    return jax.tree.map(np.asarray, run.load(workdir)[2])


class Shared(dict):
    """Keeps the programs of runs that differ in the folder of their prepared tokens alone."""

    def setdefault(self, key, programs):
        return super().setdefault("", programs)


def test_a_run_on_documents_that_is_cut_short_ends_with_the_same_bits(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": f"{i} and {i * i}"}) + "\n" for i in range(45)))
    config = text_config(
        path,
        model={"max_len": 11, "dropout": 0.1},
        data={"format": "json_lines"},
        train={"steps": 20},
        checkpoint={"every": 5, "keep": 4},
        log={"every": 5},
    )
    kept = Shared()
    whole = trained(config, tmp_path / "whole", kept=kept)
    assert whole["training_tokens"] < 20 * 5 * 11  # the order of another epoch
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    (tmp_path / "again" / "result.json").unlink()
    for step in (10, 15, 20):
        shutil.rmtree(tmp_path / "again" / "checkpoints" / str(step))
    config["data"]["prepared"] = str(tmp_path / "elsewhere")
    resumed = trained(config, tmp_path / "again", kept=kept)
    jax.tree.map(np.testing.assert_array_equal, params(tmp_path / "again"), params(tmp_path / "whole"))
    assert resumed["bits_per_byte"] == whole["bits_per_byte"]
    path.write_text(path.read_text().replace("and", "und"))
    with pytest.raises(UserError, match=r"whole: was trained on other data: data.path"):
        run.evaluate(tmp_path / "whole")


def test_a_text_passes_max_len_by_positions_that_count_distances_with_a_warning(finished, tmp_path, caplog):
    config = json.loads((finished[0] / "config.json").read_text())["config"]
    with pytest.raises(UserError, match=r"prompt 1: 4 tokens and 40 to generate; model\.max_len is 17"):
        Answering(build(config, tmp_path), params(finished[0]), max_tokens=40)(["7 an"])
    config["model"]["positions"] = "alibi"
    (((answer, *_),),) = Answering(build(config, tmp_path), params(finished[0]), max_tokens=40)(["7 an"])
    assert len(answer) == 44
    assert caplog.messages == ["warning: a text passes model.max_len; each token then sees the newest 17"]

"""Whole runs in one process: train, resume, evaluate, generate."""

import functools
import json
import re
import shutil

import jax
import numpy as np
import pytest
from etils import epath

import fxf
from closeness import assert_close
from fxf.base import memory
from fxf.base.errors import DivergedError, UserError
from fxf.base.files import is_remote
from fxf.base.hardware import HARDWARE
from fxf.reports import run_files
from fxf.runs import flops, run
from fxf.runs.evaluator import plain, sample_text
from fxf.runs.experiment import build
from fxf.runs.generation import CUT_OFF
from fxf.tasks.reversal import Reversal
from fxf.tasks.text_metrics import METRICS
from fxf.training import checkpoint
from helpers import one_device
from small_runs import Shared, command, crash_after, records, sharing_programs, tiny_config, trained, without_times

PROGRAMS = Shared()  # runs differ in steps and metrics, which are not part of their programs


def train(workdir, **sections):
    return trained(tiny_config(**sections), workdir, kept=PROGRAMS)


@functools.cache
def shapes():
    """Returns the shapes of a run's state with the tiny config's model and optimizer."""
    return build(tiny_config()).state_shapes(one_device())


def state_of(workdir, step=None):
    """Returns the step and the whole state of a checkpoint, by default the newest."""
    ((found, state, _),) = checkpoint.load(workdir / "checkpoints", shapes(), step=step)
    return found, jax.tree.map(np.asarray, state)


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(autouse=True)
def sharing(monkeypatch):
    sharing_programs(monkeypatch)


SECTIONS = {"task": {"metrics": "ter"}, "train": {"evaluate_every": 4}, "log": {"tensorboard": True}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "finished"
    return workdir, train(workdir, **SECTIONS)


def test_a_run_leaves_the_documented_folder_and_result_and_repeats_them(finished, capsys):
    workdir, result = finished
    assert {path.name for path in workdir.iterdir()} == {
        "config.json", "metrics.jsonl", "samples.jsonl", "tensorboard", "checkpoints", "result.json", "lock"
    }  # fmt: skip
    assert json.loads((workdir / "result.json").read_text()) == result
    config = json.loads((workdir / "config.json").read_text())
    made_from, by = {"identity", "digests", "files"}, {"code", "versions", "git_commit", "device", "machine"}
    assert set(config) == {"config", "config_file", "overrides", "guests", "better", "unit", "scored", *made_from, *by}
    assert config["identity"] == result["identity"]
    assert config["better"] == {"exact_match": "higher", "ter": ""}  # for other metrics, the name decides
    assert config["config"] == tiny_config(**SECTIONS)
    assert list((workdir / "tensorboard").iterdir())

    assert (result["task"], result["steps"], result["seed"]) == ("reversal", 6, 0)
    assert result["parameters"] == 4 * 6 + 11 * 6 + (2 * 6 + 4 * 36 + 6 + 2 * 6 + 2 * 42 + 7 + 6) + 2 * 6 + 6 * 4 + 4
    assert 0 <= result["exact_match"] <= 1 and result["examples"] == 3 + 9 and result["tokens_per_second"] > 0
    parts = result["train_seconds"] + result["compile_seconds"] + result["evaluate_seconds"]
    assert 0 < result["train_seconds"] < parts <= result["wall_seconds"] + 0.01
    assert result["goodput"] == pytest.approx(result["train_seconds"] / result["wall_seconds"], abs=1e-3)
    assert result["train_loss"] == pytest.approx(np.log(4), abs=1.5)

    rows = records(workdir)
    trained, evaluated = ([row for row in rows if name in row] for name in ("loss", "exact_match"))
    assert [row["step"] for row in trained] == [2, 3, 4, 6] and [row["step"] for row in evaluated] == [4]
    assert trained[-1]["loss"] == result["train_loss"]
    assert checkpoint.steps_in(workdir / "checkpoints") == [2, 4, 6]
    for step, figures in {4: evaluated[0], 6: result}.items():
        assert figures["exact_match"] == run.evaluate(workdir, step=step)["exact_match"]

    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert train(workdir, **SECTIONS) == result and "finished already" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before


def test_a_run_reports_its_utilization_and_memory_and_writes_a_trace_with_names(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(flops, "hardware_of", lambda device: HARDWARE["h100"])
    held = {"device_peak_bytes": 3, "device_bytes": 7}
    monkeypatch.setattr(memory, "held_on_a_device", lambda: held)
    # 9 is more than there are steps.
    config = tiny_config(log={"every": 9}, train={"evaluate_every": 9}, checkpoint={"best": "exact_match"})
    result = trained(config, tmp_path, profile=True, kept=PROGRAMS)
    experiment, rows = build(config), records(tmp_path)
    per_step = 3 * flops.flops_per_token(experiment)[0] * experiment.task.largest_batch()["weights"].size
    peak = 989.4e12 * jax.device_count()
    assert_close([row["mfu"] for row in rows], [per_step * row["steps_per_second"] / peak for row in rows])
    assert all(held.items() <= row.items() for row in [*rows, result])
    assert "data_seconds_per_step" not in rows[0]
    (trace,) = (tmp_path / "profile").rglob("*.xplane.pb")
    assert b"(block_0)/attention" in trace.read_bytes()
    said = capsys.readouterr().err
    assert f"tensorboard --logdir={tmp_path / 'profile'}" in said and "no validation comes before the last step" in said


def test_a_run_resumed_for_more_steps_equals_one_that_never_stopped(finished, tmp_path):
    fewer = {**SECTIONS, "train": {"evaluate_every": 4, "steps": 4}}
    with crash_after(1):  # before the first save
        train(tmp_path, **fewer)
    assert train(tmp_path, **fewer)["steps"] == 4
    with crash_after(6):
        train(tmp_path, **SECTIONS)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "wall_seconds": 1000.0}\n')  # at a step after the newest checkpoint
    result = train(tmp_path, **SECTIONS)
    assert 1000 < result["wall_seconds"] < 1100 and result["goodput"] < 0.1
    assert_same_bits(state_of(tmp_path), state_of(finished[0]))
    assert without_times(records(tmp_path)) == without_times(records(finished[0]))
    for name in ("steps", "identity", "exact_match"):
        assert result[name] == finished[1][name]
    assert "train.steps (4 there, 6 here)" in json.loads((tmp_path / "config.json").read_text())["changes"][0]["keys"]


def test_a_loss_that_is_zero_nonfinite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    said = r"step \d: the loss is (nan|inf).*training stopped\..* Checkpoints of steps (\d, )*\d are kept\.$"
    with pytest.raises(DivergedError, match=said):
        train(tmp_path, optimizer={"learning_rate": 1e38}, checkpoint={"every": 1})
    _, step, params = run.load(tmp_path)
    assert step == len([row for row in records(tmp_path) if "loss" in row])
    assert np.isfinite(jax.tree.leaves(params)[0]).all() or step == 1
    assert not (tmp_path / "result.json").exists()
    assert run_files.read(tmp_path).state == run_files.DIVERGED


def test_a_run_uses_the_mean_of_its_newest_checkpoints(finished, tmp_path):
    result = train(tmp_path, checkpoint={"every": 2, "keep": 3, "average": 3})
    _, step, params = run.load(tmp_path)
    assert step == 6
    of_steps = [state_of(tmp_path, step)[1].params for step in (2, 4, 6)]
    mean = jax.tree.map(lambda *arrays: np.mean(arrays, axis=0, dtype=np.float64), *of_steps)
    assert_close(params, mean, operations=8)
    assert not np.allclose(params["final"]["kernel"], of_steps[-1]["final"]["kernel"], atol=1e-6)
    # Training is unchanged, a single checkpoint can be requested, and the result is that of the mean.
    assert_same_bits(state_of(tmp_path), state_of(finished[0]))
    assert_same_bits(run.load(tmp_path, step=6)[2], of_steps[-1])
    assert fxf.load(tmp_path).evaluate()["exact_match"] == result["exact_match"]


def test_a_run_loads_on_fewer_devices_and_says_if_its_last_checkpoint_is_missing(finished, tmp_path, caplog):
    copied = shutil.copytree(finished[0], tmp_path / "run")
    made_from = json.loads((copied / "config.json").read_text())
    made_from["config"]["parallel"]["fsdp"] = 16
    (copied / "config.json").write_text(json.dumps(made_from))
    assert_same_bits(run.load(copied)[2], run.load(finished[0])[2])
    assert "result" not in caplog.text
    *_, before, last = checkpoint.steps_in(copied / "checkpoints")
    shutil.rmtree(copied / "checkpoints" / str(last))
    assert run.load(copied)[1] == before
    assert f"the result is of step {last}, whose checkpoint is gone; this is step {before}" in caplog.text


def test_a_sample_has_no_control_characters_and_one_line_if_it_has_a_prompt():
    assert sample_text("a", "b", "b") == "a  →  b"
    assert sample_text("a", "b", "c\nd") == r"a  →  c\nd   (expected: b)"
    assert sample_text("", None, "c\nd\x1b") == "c\n" + r"d\x1b"
    assert sample_text("a", "b", "c", True) == "a  →  c   (cut off)   (expected: b)"


def test_a_finished_run_is_loaded_and_has_its_config_its_result_and_a_table_of_its_records(finished):
    workdir, _ = finished
    assert re.fullmatch(r"Run\(reversal, transformer_lm, step 6, [\d,]+ weights\)", repr(fxf.load(workdir)))
    loaded, prompts = fxf.load(workdir, step=2, temperature=0.5), ["1 2"] * 9
    done = command("generate", f"--workdir={workdir}", "--step=2", "--temperature=0.5", "--seed=1", *prompts)
    assert loaded.step == 2 and loaded.generate(prompts, seed=1) == done.stdout.splitlines() != loaded.generate(prompts)
    changed = {**loaded.config.decode.to_dict(), "temperature": 0.0}
    assert {**loaded.config.to_dict(), "decode": changed} == tiny_config(**SECTIONS)
    assert loaded.config.to_dict().keys() == fxf.read_config("reversal").to_dict().keys()
    loaded.config.model.norm = "rms"  # a mutable config, as from `read_config`
    assert loaded.result == json.loads((workdir / "result.json").read_text()) and loaded.result["steps"] == 6
    assert loaded.metrics == records(workdir)
    assert loaded.metrics[0].keys() >= {"step", "loss", "learning_rate", "tokens_per_second"}


def test_an_answer_has_its_text_its_score_and_whether_it_was_cut_off(finished, caplog, tmp_path):
    loaded = fxf.load(finished[0])
    room = loaded.model.max_len
    biased = loaded._replace(params={**loaded.params, "final": {**loaded.params["final"], "bias": np.eye(4)[2] * 1e6}})
    answers = biased.answers(["1 2", "3"])
    found = [(len(answer.text.split()), answer.score, answer.cut_off) for (answer,) in answers]
    assert found == [(room - 3, None, True), (room - 2, None, True)]
    assert biased.generate(text for text in ("1 2", "3")) == [answer.text for (answer,) in answers]
    assert caplog.messages == ["warning: prompt 1, 2: " + CUT_OFF]
    (tmp_path / "input.txt").write_text("1 2\n\n3\n")
    words = (f"--workdir={finished[0]}", f"--input={tmp_path / 'input.txt'}", "--beam_width=2", "--n_best=2")
    done = command("generate", *words)
    assert done.returncode == 0, done.stderr
    numbers, scores, _ = zip(*(line.split("\t") for line in done.stdout.splitlines()), strict=True)
    assert "".join(numbers) == "112233"
    assert all(float(first) >= float(second) for first, second in zip(scores[::2], scores[1::2], strict=True))


def test_a_metric_without_a_value_is_never_the_best_and_is_null_in_json(tmp_path, monkeypatch):
    values = iter([float("nan"), 3.0, 2.0, 1.0])
    monkeypatch.setitem(METRICS, "figure", lambda answers, references: next(values))
    sections = {"train": {"steps": 3, "evaluate_every": 1}, "checkpoint": {"best": "figure", "keep": 1}}
    assert train(tmp_path, task={"metrics": "figure"}, **sections)["best_step"] == 2
    for wrong in ({"answers": [], "b": np.ones(1), "a": [1]}, {"loss": 1.0}, {"tokens_per_second": 1.0}):
        with pytest.raises(UserError, match=r"^metric (a|loss|t.*): expected a number, by a name .*, got (\[1\]|1.0)$"):
            plain(wrong)
    for line in [(tmp_path / "result.json").read_text(), *(tmp_path / "metrics.jsonl").read_text().splitlines()]:
        json.loads(line, parse_constant=pytest.fail)


def test_a_run_resumed_with_another_metric_keeps_the_best_by_it(tmp_path, monkeypatch):
    values = iter([1.0, 1.0, 3.0, 2.0, 0.0])  # for validations at steps 1 to 4, and for the test
    monkeypatch.setitem(METRICS, "low", lambda answers, references: next(values))
    monkeypatch.setitem(METRICS, "high", lambda answers, references: 99.0)
    sections = {"task": {"metrics": "high,low"}, "train": {"steps": 4, "evaluate_every": 1}}
    with crash_after(3):
        train(tmp_path, checkpoint={"best": "high", "keep": 1}, **sections)
    assert train(tmp_path, checkpoint={"best": "low", "keep": 1}, **sections)["best_step"] == 3


def train_there(workdir, shown=True, **sections):
    log = {"tensorboard": shown, "report": shown}
    return train(workdir, log=log, checkpoint={"every": 2, "keep": 2}, **sections)


def test_a_run_in_a_bucket_equals_the_run_in_a_folder(tmp_path, capsys, monkeypatch):
    """`epath.Path` on a local folder replaces the bucket: the same code runs, without a network."""
    monkeypatch.setattr(Reversal, "validate", lambda *_: {"exact_match": 0.0})  # answers are tested elsewhere
    there, here = epath.Path(tmp_path / "there"), tmp_path / "here"
    assert is_remote(there) and not is_remote(here)
    result = train_there(there)
    assert without_times([result]) == without_times([train_there(here, shown=False)])
    assert_same_bits(run.load(there)[2], run.load(here)[2])
    assert sorted(path.name for path in (tmp_path / "there" / "checkpoints").iterdir()) == ["4", "6"]
    assert train_there(there) == result and "finished already" in capsys.readouterr().err
    # A checkpoint whose save was interrupted has no digests: it is skipped, and its step is saved again.
    for name in ("result.json", "checkpoints/6/digests.json"):
        (tmp_path / "there" / name).unlink()
    train_there(there)
    assert_same_bits(run.load(there)[2], run.load(here)[2])
    assert [row["step"] for row in records(tmp_path / "there")] == [2, 3, 4, 6]
    assert len(list((tmp_path / "there" / "tensorboard").iterdir())) == 2
    assert "report.html" in [path.name for path in (tmp_path / "there").iterdir()]
    with pytest.raises(UserError, match="holds another run: seed"):
        train_there(there, seed=1)

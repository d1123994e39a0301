"""A run's folder records what the run is made from, and accepts nothing of another run."""

import json
import subprocess
import sys

import pytest

from fxf.base.errors import UserError
from fxf.reports import report
from fxf.runs import code_version, run_folder
from fxf.runs.experiment import default_config
from fxf.runs.loading import open_run
from fxf.runs.source import StartConfig, folder_of_files
from fxf.runs.warm_start import config_from
from helpers import table
from small_runs import ROOT, tiny_config

DATA, FILES, ORIGIN = {"text.txt": "0a1b"}, {"tokenizer.json": "{}\n"}, {"config_file": "test", "overrides": {}}


def made(folder, data=DATA, files=FILES, **sections):
    return run_folder.RunInputs(folder, tiny_config(**sections), data, files)


def opened(folder, data=DATA, files=FILES, origin=ORIGIN, **sections):
    folder.mkdir(exist_ok=True)
    return run_folder.open_for_training(made(folder, data, files, **sections), origin)


def identity_of(digest="0a1b", **sections):
    return run_folder.identity_of(tiny_config(**sections), {"text.txt": digest})


CHANGING = {"seed": 1}, {"train": {"batch_size": 3}}, {"task": {"n_tokens": 2}}, {"model": {"remat": "full"}}
SCORING = {"decode": {"beam_width": 2}}, {"checkpoint": {"every": 9, "keep": 7, "average": 2}}
LEAVING = {"log": {"every": 1}}, {"parallel": {"data": 3}}, {"train": {"steps": 9}}, *SCORING


def test_the_identity_has_the_keys_that_can_change_training():
    identity = identity_of()
    assert identity["seed"] == 0 and identity["model.n_layers"] == 1 and identity["content of text.txt"] == "0a1b"
    assert [identity_of(**other) == identity for other in LEAVING] == [True] * len(LEAVING)
    assert [identity_of(**other) == identity for other in CHANGING] == [False] * len(CHANGING)
    assert identity_of("0a1c") != identity
    patient = {"train": {"patience": 1}}  # what is scored decides when training ends
    assert [identity_of(**patient, **other) == identity_of(**patient) for other in SCORING] == [False] * len(SCORING)


def test_a_run_older_than_a_key_or_a_section_has_their_defaults(tmp_path):
    opened(tmp_path / "run", files={})

    def older(record):
        del record["config"]["model"]["feed_forward"]
        for section in ("decode", "checkpoint", "start", "log"):
            del record["config"][section]

    changed(tmp_path / "run", older)
    (experiment, identity), expected = open_run(tmp_path / "run"), default_config("reversal").to_dict()
    assert all(experiment.config[name] == expected[name] for name in ("decode", "checkpoint", "start", "log"))
    assert experiment.config["model"]["feed_forward"] == "dense" and "model.feed_forward" not in identity
    assert config_from(tiny_config(), str(tmp_path / "run"), tmp_path / "other")["model"] == experiment.config["model"]


def test_a_run_that_failed_before_its_first_record_may_be_replaced(tmp_path):
    opened(tmp_path, files={"tokenizer.json": "old"})
    (tmp_path / "metrics.jsonl").touch()
    assert folder_of_files(StartConfig(), tmp_path) is None  # the tokenizer may be that of other keys
    other = opened(tmp_path, seed=1)
    assert open_run(tmp_path)[1] == other and (tmp_path / "tokenizer.json").read_text() == FILES["tokenizer.json"]
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(UserError, match="holds another run: seed"):
        opened(tmp_path)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_may_continue_to_more_steps_and_a_line_says_what_that_changes(schedule, tmp_path, caplog):
    keys = {"optimizer": {"schedule": schedule}}
    identity = opened(tmp_path, **keys)
    run_folder.write_result(tmp_path, {"steps": 6}, identity)
    assert run_folder.finished(made(tmp_path, **keys))["steps"] == 6
    more = {**keys, "train": {"steps": 9}}
    assert run_folder.finished(made(tmp_path, **more)) is None
    assert opened(tmp_path, origin={**ORIGIN, "overrides": {"train.steps": 9}}, **more) == identity
    assert json.loads((tmp_path / "config.json").read_text())["overrides"] == {"train.steps": 9}
    (line,) = caplog.messages
    assert "train.steps (6 there, 9 here)" in line
    assert ("; optimizer.schedule 'cosine' depends on train.steps" in line) == (schedule == "cosine")
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(("other", "what"), table("runs that a folder refuses"))
def test_another_run_is_refused_by_a_line_that_names_both_sides(other, what, tmp_path):
    opened(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UserError) as error:
        opened(tmp_path, **other)
    assert str(error.value).startswith(f"{tmp_path}: holds another run: {what}")
    assert (tmp_path / "config.json").read_bytes() == before


def test_other_keys_that_cannot_change_training_and_other_code_are_named_and_recorded(tmp_path, caplog, monkeypatch):
    identity = opened(tmp_path)
    run_folder.read_config(tmp_path)
    assert not caplog.records
    typed = {**ORIGIN, "overrides": {"log.every": 2}, "from": "a"}
    assert run_folder.open_for_training(made(tmp_path, log={"every": 2}), typed) == identity
    assert " --from=a --config.log.every=2 " in report.command(json.loads((tmp_path / "config.json").read_text()))
    assert code_version.PACKAGE == ROOT / "fxf"  # all of it is the code
    monkeypatch.setattr(code_version, "code_digest", lambda: "ffff")
    run_folder.read_config(tmp_path)
    opened(tmp_path, log={"every": 2})
    run_folder.read_config(tmp_path)
    lines = "goes on with other keys: log.every (3 there, 2 here)", "was trained by other code: code (", "goes on with"
    assert [line in message for line, message in zip(lines, caplog.messages, strict=True)] == [True] * 3
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["config"]["log"]["every"] == 2
    first, second = record["changes"]
    assert (first["keys"], second["keys"], second["code"]) == ("log.every (3 there, 2 here)", "", "ffff")
    commit, before = code_version._git_commit.__wrapped__, code_version._git_commit()
    monkeypatch.chdir(tmp_path)  # the commit is fxf's, not that of the user's folder
    assert commit() == before
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert commit() is None


def changed(folder, change):
    path = folder / "config.json"
    record = json.loads(path.read_text())
    change(record)
    record["identity"] = run_folder.identity_digest(run_folder.identity_of(record["config"], record["digests"]))
    path.write_text(json.dumps(record))


def test_another_tokenizer_is_refused_and_training_writes_it_and_a_missing_config_again(tmp_path):
    opened(tmp_path)
    (tmp_path / "config.json").unlink()
    opened(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{ }\n")
    with pytest.raises(UserError, match=r"tokenizer\.json: differs from the file that the run was made with"):
        run_folder.read_config(tmp_path)
    assert opened(tmp_path) == run_folder.read_config(tmp_path)[1]


def test_a_damaged_result_and_one_of_another_run_count_as_absent_with_a_warning(tmp_path, caplog):
    result = run_folder.write_result(tmp_path / "a", {"steps": 3}, opened(tmp_path / "a"))
    assert run_folder.finished(made(tmp_path / "a")) == result
    opened(tmp_path / "b", seed=1)
    texts = [b"", b"[]", b"\xff", b"{}", b'{"steps": 3}', (tmp_path / "a" / "result.json").read_bytes()]
    for text in texts:
        (tmp_path / "b" / "result.json").write_bytes(text)
        assert run_folder.finished(made(tmp_path / "b", seed=1)) is None
    assert ["counts as absent" in message for message in caplog.messages] == [True] * len(texts)
    assert run_folder.finished(made(tmp_path / "a", log={"every": 1}))["steps"] == 3


HOLD = """
import sys, time
from pathlib import Path
from fxf.runs.run_folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


def test_a_second_trainer_is_refused_by_a_line_that_names_the_first_until_that_ends_however_it_ends(tmp_path):
    words = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            named = f"{tmp_path / 'run'}: another process trains this run: pid {process.pid} on "
            with pytest.raises(UserError, match=named), run_folder.locked(tmp_path / "run"):
                pass
            with run_folder.locked(tmp_path / "other"):
                pass
        finally:
            process.kill()
    with run_folder.locked(tmp_path / "run"):
        pass


def test_a_file_system_without_locks_is_named_and_trains(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(run_folder.fcntl, "flock", no_locks)
    with run_folder.locked(tmp_path):
        pass
    assert "no lock here" in caplog.messages[0]

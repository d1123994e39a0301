"""Config files are executed once; parts that a config names by path are recorded and found again."""

import sys

import pytest

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.runs import guests, run_folder
from fxf.runs.api import plain_config
from fxf.runs.configs import folder, located, names, read_config
from fxf.runs.guests import digests, load, record, restore
from fxf.runs.loading import open_run
from small_runs import Shared, new_process, tiny_config, trained

CONFIG = "from fxf.runs.experiment import default_config as made\n\n\ndef get_config():\n    return made('reversal')\n"
NAMED = {"model": {"activation": "mine:scaled"}}


pytestmark = pytest.mark.usefixtures("process")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def scaling(folder, factor=2, name="mine"):
    return write(folder / f"{name}.py", f"def scaled(x):\n    return {factor} * x\n\n\n{CONFIG}")


def test_a_file_is_executed_once_in_a_process_and_again_when_it_has_changed(tmp_path):
    text = f"import sys\n\nsys.executions.append(1)\n{CONFIG}"
    sys.executions = []
    assert load(write(tmp_path / "mine.py", text)) is load(str(tmp_path / "mine.py"))
    assert sys.executions == [1]
    assert load(write(tmp_path / "mine.py", text.replace("append(1)", "append(2)"))) is not None
    assert sys.executions == [1, 2]
    del sys.executions


def test_a_path_names_what_a_file_or_a_module_beside_it_defines(tmp_path):
    write(tmp_path / "kinds.py", "def tripled(x):\n    return 3 * x\n")
    load(scaling(tmp_path))
    assert ACTIVATIONS[one_of("mine:scaled", ACTIVATIONS, "key")](5) == 10
    assert ACTIVATIONS["kinds:tripled"](5) == 15
    assert "mine:scaled" not in [*ACTIVATIONS]


def test_a_changed_module_is_imported_again_with_the_config_and_otherwise_refused(tmp_path):
    mine, path = scaling(tmp_path), write(tmp_path / "exp.py", CONFIG)
    load(path)
    before = record(NAMED)
    scaling(tmp_path, factor=30)  # another size, so that Python notices at once
    with pytest.raises(UserError, match=f"{mine}: changed since it was imported: mine.py .*; put it back"):
        record(NAMED)
    load(path)
    assert ACTIVATIONS["mine:scaled"](5) == 150 and record(NAMED) != before


@pytest.mark.parametrize(("name", "init"), [("pack", "__init__"), ("pack.core", "__init__"), ("pack.core", "other")])
def test_a_package_is_recorded_with_its_files_and_found_again(name, init, tmp_path):
    scaling(write(tmp_path / f"a/pack/{init}.py", "from .core import scaled\n").parent, name="core")
    named = {"model": {"activation": f"{name}:scaled"}}
    load(write(tmp_path / "a/exp.py", CONFIG))
    found = record(named)
    assert list(found[name]["sha256"]) == ["pack/__init__.py", "pack/core.py"][init != "__init__" :]
    with new_process():
        restore(tmp_path / "run", found)
        assert ACTIVATIONS[f"{name}:scaled"](5) == 10


def test_the_record_has_the_files_that_a_config_names_and_what_they_import_beside_them(tmp_path):
    write(write(tmp_path / "two.py", "FACTOR = 2\n").parent / "folder/factor.py", "from two import FACTOR\n")
    text = f"from folder.factor import FACTOR\nimport json\n\n\ndef scaled(x):\n    return FACTOR * x\n\n{CONFIG}"
    path = write(tmp_path / "mine.py", text)
    load(path)
    (found,) = record(NAMED).values()
    assert found["path"] == str(path)
    assert list(found["sha256"]) == ["folder/factor.py", "mine.py", "two.py"]
    assert digests(NAMED, tmp_path / "run") == found["sha256"]
    assert record({"model": {"activation": "relu"}, "data": {"path": "gs://x/y:z"}, "decode": {"ends": "re:x"}}) == {}


def opened(workdir, path):
    """Writes the run's config as training does."""
    load(path)
    workdir.mkdir(exist_ok=True)
    origin = {"config_file": str(path), "overrides": {}, guests.GUESTS: record(NAMED)}
    made_from = run_folder.RunInputs(workdir, tiny_config(**NAMED), digests(NAMED, workdir), {})
    return run_folder.open_for_training(made_from, origin)


def recorded(workdir):
    return run_folder.read_config(workdir)[2]


def test_a_changed_file_is_named_and_refused_by_a_resume_alone(tmp_path, caplog):
    path, workdir = scaling(tmp_path), tmp_path / "run"
    opened(workdir, path)
    with new_process():
        restore(workdir, {"__main__": {"path": "script.py"}, **recorded(workdir)})  # not executed
        assert not caplog.text
        scaling(tmp_path, factor=3)
        restore(workdir, recorded(workdir))
        assert ACTIVATIONS["mine:scaled"](5) == 15
        assert "mine.py changed since the run began: mine.py (" in caplog.text
        (workdir / "metrics.jsonl").write_text('{"step": 1}\n')  # without a record another run may start there
        with pytest.raises(UserError, match=r"content of mine.py \(\w{8} there, \w{8} here\); use another --workdir"):
            opened(workdir, path)


def test_runs_with_files_of_one_name_keep_their_own_if_started_or_loaded_together(tmp_path):
    programs = Shared()  # either may compute here
    for name, factor, sections in (("source", 2, {}), ("run", 3, {"start": {"path": str(tmp_path / "source")}})):
        load(scaling(tmp_path / f"of_{name}", factor))
        trained(tiny_config(**NAMED, **sections), tmp_path / name, kept=programs)
    assert recorded(tmp_path / "run")["mine"]["path"] == str(tmp_path / "of_run/mine.py")
    loaded = [open_run(tmp_path / name)[0] for name in ("source", "run")]
    assert [ACTIVATIONS[run.model_config.activation](5) for run in loaded] == [10, 15]


def test_a_config_read_before_another_finds_the_modules_beside_its_own_file(tmp_path):
    first, _ = (read_config(str(scaling(tmp_path / n, factor=int(n)))) for n in "23")
    assert plain_config(first) == (first.to_dict(), {"read_from": f"{tmp_path}/2/mine.py"})
    assert ACTIVATIONS["mine:scaled"](5) == 10


def test_code_in_a_run_folder_is_never_executed(tmp_path):
    inside = write(tmp_path / "run" / "mine.py", "1 / 0\n")
    (tmp_path / "link.py").symlink_to(inside)
    for place in (inside, inside.parent / ".." / "run" / "mine.py", tmp_path / "link.py"):
        with pytest.raises(UserError, match="lies in the run folder, whose code is never executed"):
            restore(inside.parent, {"mine": {"path": str(place), "sha256": {}}})
    load(scaling(tmp_path / "new"))
    with pytest.raises(UserError, match="lies in the run folder, whose code is never executed"):
        trained(tiny_config(**NAMED), tmp_path / "new")
    assert not (tmp_path / "new" / "config.json").exists()


def test_a_shipped_config_may_name_what_a_file_in_the_working_directory_defines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    for place, path in ((".", "reversal"), ("beside", str(scaling(tmp_path / "beside"))), (".", "reversal")):
        (tmp_path / place / "only_here.py").write_text(f"def scaled(x):\n    return {len(place)} * x\n")
        read_config(path)  # its own folder comes first
        assert ACTIVATIONS["only_here:scaled"](3) == 3 * len(place)


def test_a_shipped_config_has_the_name_of_its_file_and_a_file_takes_precedence(tmp_path, monkeypatch):
    assert {"reversal", "translation", "studies/positions"} <= set(names())
    assert located("reversal:example0") == (f"{folder()}/reversal.py", ["example0"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reversal").write_text("")
    assert located("reversal:x:2") == ("reversal", ["x:2"])

"""Each idea goes through all verbs: training, resuming, scoring, generating, sweeping, on one device and on four."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import fxf
from fxf.reports.compare import comparison, runs_of
from fxf.runs import run
from fxf.sweeps.points import check, grid, make_points
from helpers import table
from small_runs import KEPT, ROOT, assert_serves, assert_stops, new_process, script, sharing_programs, without_times

FOLDER = ROOT / "configs" / "ideas"
IDEAS = sorted(path.stem for path in FOLDER.glob("*.py"))
OF_CORE = {name: keys for keys, name in table("layers of fxf")}
EVERY = pytest.mark.parametrize("name", [*IDEAS, *OF_CORE])
pytestmark = pytest.mark.thorough  # half a minute per idea; tests/guests runs the same for one guest each time
SMALL = {name: keys for keys, name in table("small runs of ideas")}
SIZES, TINY = SMALL["sizes"], SMALL["sizes"] | SMALL["run"]
TEXTS = {name: keys.pop("texts") for name, keys in SMALL.items() if "texts" in keys}


def file_of(name):
    return str(FOLDER / f"{name}.py") if name in IDEAS else "reversal"


def config_of(name):
    """Returns the small config of an idea or of one of fxf's layers, as plain dicts."""
    config = fxf.read_config(file_of(name)).to_dict()
    return make_points(config, [{**TINY, **SMALL[config["task"]["name"]], **OF_CORE.get(name, {})}])[0].config


def train(name, workdir):
    origin = {"config_file": file_of(name), "overrides": {}}
    with new_process():
        return run.train(config_of(name), workdir, origin, kept=KEPT)


def weights_of(workdir):
    with new_process():
        return run.load(workdir, as_trained=True)[2]


@EVERY
def test_an_idea_goes_through_every_verb(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sharing_programs(monkeypatch)
    whole, stopped = Path("whole"), Path("stopped")
    texts = TEXTS[config_of(name)["task"]["name"]]
    result = train(name, whole)
    assert_stops(monkeypatch, lambda: train(name, stopped))
    first, second = without_times([result, train(name, stopped)])
    assert first == second
    expected, found = weights_of(whole), weights_of(stopped)
    jax.tree.map(np.testing.assert_array_equal, found, expected)

    assert_serves(whole, result, *texts)
    with new_process():
        check(make_points(config_of(name), [*grid({"seed": [1, 2]})]), Path("sweep"))
    assert len(comparison(runs_of([whole, stopped])).entries) == 2


def test_an_idea_has_the_loss_of_one_device_on_four_and_its_weights_are_sharded():
    names = [*IDEAS, *OF_CORE]
    finished = script("tests/configs/ideas_on_devices.py", *names)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found.keys() == {*names}
    for name, layouts in found.items():
        for title, figures in layouts.items():
            assert figures["loss"] <= 1e-6, (name, title, figures)
            assert figures["gradient"] <= 1e-5, (name, title, figures)
        assert layouts["fsdp 2, tensor 2"]["sharded"] > 5, name

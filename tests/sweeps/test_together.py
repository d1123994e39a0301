"""Points that train in one process: each is the run that it would be alone, and only the first one compiles."""

import json

import jax
import numpy as np
import pytest

from fxf.errors import Interrupted
from fxf.runs import run
from fxf.runs.experiment import build, default_config
from fxf.runs.programs import program_key
from fxf.sweeps.points import alike, make_points
from fxf.sweeps.together import train_together
from fxf.views import whole_run
from helpers import refused
from small_runs import tiny_config, trained

CONFIG = tiny_config(
    checkpoint={"every": 0},
    optimizer={"name": "adamw", "clip_norm": 1.0},
    train={"label_smoothing": 0.1},
    log={"report": True},
)
CHANGES = [
    {"seed": 1},
    {"optimizer.learning_rate": 1e38},  # diverges
    {"seed": 2, "optimizer.learning_rate": 0.03, "optimizer.weight_decay": 0.2, "train.label_smoothing": 0.3},
]
POINTS = make_points(CONFIG, CHANGES)
ORIGIN = {"config_file": "configs/reversal.py", "overrides": {}}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Returns the sweep's folder, the names of the failed points, and how often each point compiled."""
    workdir, events, compiled = tmp_path_factory.mktemp("sweep"), [], []

    def listen(event, _, **__):
        events.extend([event] if "jaxpr_to_mlir" in event or "backend_compile" in event else [])

    def origin_of(_):
        compiled.append(len(events))
        return ORIGIN

    jax.monitoring.register_event_duration_secs_listener(listen)
    failed = train_together(POINTS, workdir, origin_of)
    return workdir, failed, np.diff([*compiled, len(events)])


def test_only_the_first_point_compiles(together):
    first, *others = together[2]
    assert first > 2
    assert others == [0, 0]


def test_a_point_has_the_bits_and_the_page_of_the_same_run_alone(together, tmp_path):
    folder = together[0] / POINTS[2].name
    trained(POINTS[2].config, tmp_path / "alone", ORIGIN)
    whole_run.complete(POINTS[2].config, tmp_path / "alone")
    alone, shared = run.load(tmp_path / "alone")[2], run.load(folder)[2]
    jax.tree.map(np.testing.assert_array_equal, alone, shared)
    for name in ("config.json", "metrics.jsonl", "result.json"):
        assert without_times(tmp_path / "alone" / name) == without_times(folder / name)
    alone, shared = (json.loads((path / "inside.json").read_text()) for path in (tmp_path / "alone", folder))
    assert shared["examples"] == alone["examples"] and len(shared["examples"]) == 2
    assert shared["result"] == json.loads((folder / "result.json").read_text())


def without_times(path):
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [{name: value for name, value in json.loads(line).items() if "second" not in name} for line in lines]


@pytest.mark.parametrize(("change", "program"), refused("program of a run"))
def test_only_numbers_that_a_program_reads_leave_it_the_same(change, program):
    before, after = make_points(CONFIG, [{}, change])
    assert (program_key(build(before.config)) == program_key(build(after.config))) == (program == "same")
    assert (alike([before, after], 2) == [[0, 1]]) == (program == "same")


def test_a_task_that_draws_its_data_by_the_seed_has_a_program_for_each_seed():
    config = default_config("boolean_map").to_dict()
    assert program_key(build(config)) == program_key(build(config))
    assert program_key(build(config)) != program_key(build({**config, "seed": 1}))


def test_points_alike_are_grouped_in_their_order_and_no_group_is_larger_than_asked():
    added = [{"model.n_layers": n, "seed": seed} for seed in range(3) for n in (1, 2)]
    assert alike(make_points(CONFIG, added), 2) == [[0, 2], [4], [1, 3], [5]]


def test_a_signal_stops_the_process_and_not_only_the_point(tmp_path, monkeypatch):
    started = []

    def stopped(_, folder, *__, **___):
        started.append(folder.name)
        raise Interrupted("stopped at step 2, which is saved")

    monkeypatch.setattr(run, "train", stopped)
    with pytest.raises(Interrupted):
        train_together(POINTS, tmp_path, lambda _: ORIGIN)
    assert started == [POINTS[0].name]

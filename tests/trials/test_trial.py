"""Trials: pairs of ordinary runs that share programs, the end of a trial, and going on with it."""

import csv
import json
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fxf
from fxf.errors import DivergedError, Interrupted, UserError
from fxf.files import to_json
from fxf.reports.compare import runs_of
from fxf.reports.run_files import FINISHED
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from fxf.training.state import run_keys
from fxf.trials import trial
from fxf.trials.evidence import evidence
from fxf.trials.plan import Arm, Budget, make_plan
from fxf.trials.trial import carry_out
from fxf.weights import draw, flatten, map_weights
from helpers import table
from small_runs import command, overrides, tiny_config

ORIGIN = {"config_file": "configs/reversal.py", "overrides": {}}
QUICK = {"checkpoint": {"every": 0}}
FIRST = Arm(tiny_config(seed=4, **QUICK), ORIGIN)
OTHER = Arm(tiny_config(optimizer={"learning_rate": 0.1}, **QUICK), ORIGIN)
DIVERGING = Arm(tiny_config(optimizer={"learning_rate": 1e38}, **QUICK), ORIGIN)
NOISE = (0.3, -0.1, 0.2, 0.0, -0.4, 0.1, -0.2, 0.25)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Returns the folder of a trial of three pairs, its verdict, what it told, and how often each pair compiled."""
    workdir, events, told, compiled = tmp_path_factory.mktemp("trial"), [], [], [0]

    def listen(event, _, **__):
        events.extend([event] if "jaxpr_to_mlir" in event or "backend_compile" in event else [])

    def tell(pair, found):
        told.append((pair, found))
        compiled.append(len(events))

    jax.monitoring.register_event_duration_secs_listener(listen)
    plan = make_plan(FIRST, OTHER, workdir, "train_loss")
    begun = len(events)
    verdict = carry_out(plan, workdir, Budget(3), tell)
    return workdir, plan, verdict, told, np.diff([begun, *compiled[1:]])


def finished_runs(folder, plan, first, other, seconds=1.0):
    """Writes the results of runs, so that none of them trains; None is a run that diverged."""
    for number, figures in enumerate(zip(first, other, strict=True)):
        for name, seed, figure in zip(("first", "other"), plan.seeds_of(number), figures, strict=True):
            path = folder / f"{name}-{seed}"
            path.mkdir()
            config = getattr(plan, name).config | {"seed": seed}
            (path / "config.json").write_text(json.dumps({"config": config}))
            if figure is None:
                (path / "diverged.json").write_text(json.dumps({"seconds": seconds}))
            else:
                (path / "result.json").write_text(json.dumps({plan.metric: figure, "wall_seconds": seconds}))


def test_only_the_first_pair_compiles(done):
    first, *others = done[4]
    assert first > 2
    assert others == [0, 0]


def test_the_runs_of_a_pair_are_ordinary_runs_of_their_configs_with_one_seed(done):
    workdir, _, verdict, *_ = done
    runs = {found.folder.name: found for found in runs_of([workdir])}
    assert sorted(runs) == [f"{name}-{seed}" for name in ("first", "other") for seed in (4, 5, 6)]
    for name, found in runs.items():
        arm, seed = (FIRST if name.startswith("first") else OTHER), int(name[-1])
        assert found.state == FINISHED
        assert found.record["config"] == {**arm.config, "seed": seed}
        assert (workdir / name / "log.txt").exists()
    figures = [(runs[f"first-{s}"].result["train_loss"], runs[f"other-{s}"].result["train_loss"]) for s in (4, 5, 6)]
    assert [(pair.first, pair.other) for pair in verdict.pairs] == figures
    assert [pair.seeds for pair in verdict.pairs] == [(4, 4), (5, 5), (6, 6)]


def test_what_a_trial_leaves_agrees_with_the_evidence_of_its_pairs(done):
    workdir, _, verdict, told, _ = done
    differences = [pair.other - pair.first for pair in verdict.pairs]
    assert verdict.evidence == evidence(differences)
    assert told == [(pair, evidence(differences[: n + 1])) for n, pair in enumerate(verdict.pairs)]
    there = json.loads((workdir / "verdict.json").read_text())
    assert there.pop("lines") == verdict.lines()
    assert there == json.loads(to_json(verdict.figures()))
    assert there["stopped"] == "all 3 seeds are used"
    rows = list(csv.DictReader((workdir / "table.csv").read_text().splitlines()))
    assert [float(row["difference"]) for row in rows] == differences
    assert [float(row["p"]) for row in rows] == [evidence(differences[: n + 1]).p for n in range(3)]


@pytest.fixture
def trained(monkeypatch):
    """Makes training quick: a run's train_loss is its seed. Returns the folders so far, and which one is stopped."""
    found = SimpleNamespace(names=[], stopped=0)

    def train(config, folder, origin, kept):
        found.names.append(folder.name)
        if len(found.names) == found.stopped:
            raise Interrupted("stopped at step 1, which is saved")
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"config": config}))
        if config["optimizer"]["learning_rate"] == 1e38:
            raise DivergedError("step 2: the loss is nan")
        result = {"train_loss": config["seed"], "exact_match": 0.5, "wall_seconds": 1.0}
        (folder / "result.json").write_text(json.dumps(result))

    monkeypatch.setattr(trial, "train_logged", train)
    return found


def test_the_same_call_again_trains_nothing(done, trained):
    workdir, plan, verdict, *_ = done
    assert carry_out(plan, workdir, Budget(3)) == verdict
    assert trained.names == []


def test_a_stopped_trial_goes_on_and_more_seeds_add_pairs(tmp_path, trained):
    plan = make_plan(FIRST, OTHER, tmp_path, "train_loss")
    trained.stopped = 4
    with pytest.raises(Interrupted):
        carry_out(plan, tmp_path, Budget(2))
    assert len(json.loads((tmp_path / "plan.json").read_text())["budgets"]) == 1
    assert [pair.seeds for pair in carry_out(plan, tmp_path, Budget(2)).pairs] == [(4, 4), (5, 5)]
    assert trained.names == ["first-4", "other-4", "first-5", "other-5", "other-5"]
    assert len(carry_out(plan, tmp_path, Budget(3)).pairs) == 3
    assert trained.names[5:] == ["first-6", "other-6"]


def test_a_run_that_diverges_counts_as_the_worse_of_its_pair_and_is_not_tried_again(tmp_path, trained):
    plan = make_plan(FIRST, DIVERGING, tmp_path, "train_loss")
    verdict = carry_out(plan, tmp_path, Budget(2))
    assert trained.names == ["first-4", "other-4", "first-5", "other-5"]
    assert [(pair.first is None, pair.other is None) for pair in verdict.pairs] == [(False, True)] * 2
    assert verdict.evidence.effect == 1.0
    assert verdict.diverged() == (0, 2)
    assert "diverged: 0 runs of the first config, 2 of the other" in "\n".join(verdict.lines())
    assert carry_out(plan, tmp_path, Budget(2)) == verdict
    assert len(trained.names) == 4


SEVERAL, UP = ([3.0] * 8, [3.0 + noise for noise in NOISE]), ([3.0] * 5, [5.0, 5.1, 4.9, 5.2, 5.0])
CLEAR = "the answer is clear"


@pytest.mark.parametrize(("of", "end"), table("ends of trials"))
def test_a_trial_ends_when_the_answer_is_clear_or_the_budget_is_spent_and_says_what_is_better(of, end, tmp_path):
    stopped, n, line = end.split(" > ")
    plan = make_plan(FIRST, OTHER, tmp_path, of["metric"])
    finished_runs(tmp_path, plan, of["first"], of["other"])
    found = carry_out(plan, tmp_path, Budget(*of["budget"]))
    assert found.stopped.startswith(stopped) and found.evidence.n == int(n)
    assert found.lines()[0].startswith(line) and line.startswith(found.verdict)
    high = json.loads((tmp_path / "verdict.json").read_text())["high"]
    assert high == (None if math.isinf(found.evidence.high) else found.evidence.high)


def test_runs_that_diverge_in_both_arms_or_one_are_differences_of_the_size_of_the_largest(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, "exact_match")
    finished_runs(tmp_path, plan, [0.5, None, 0.5, None], [0.75, 0.5, None, None])
    found = carry_out(plan, tmp_path, Budget(4))
    assert found.evidence == evidence([0.25, 0.25, -0.25, 0.0])
    assert found.figures()["diverged"] == {"first": 2, "other": 2}


@pytest.mark.parametrize("value", ["NaN", "null"])
def test_a_figure_that_is_no_number_counts_as_diverged(value, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, "train_loss")
    finished_runs(tmp_path, plan, [1.0, 2.0], [1.5, 2.5])
    (tmp_path / "other-4/result.json").write_text(f'{{"train_loss": {value}, "wall_seconds": 1.0}}')
    verdict = carry_out(plan, tmp_path, Budget(2))
    assert [(pair.first, pair.other) for pair in verdict.pairs] == [(1.0, None), (2.0, 2.5)]
    assert verdict.evidence == evidence([0.5, 0.5])
    json.loads((tmp_path / "verdict.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("result.json", '{"train_loss": "x", "wall_seconds": 1}', "first-4: no train_loss and wall_seconds"),
        ("config.json", '{"config": {"task": {}, "seed": 5}}', r"first-4: holds another run: seed \(5 there, 4 here\)"),
    ],
)
def test_a_result_that_is_not_of_the_arm_or_lacks_the_figure_is_one_line(name, text, message, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, "train_loss")
    finished_runs(tmp_path, plan, [1.0], [1.0])
    (tmp_path / "first-4" / name).write_text(text)
    with pytest.raises(UserError, match=message):
        carry_out(plan, tmp_path, Budget(2))


def test_where_shapes_agree_both_runs_of_a_pair_begin_with_the_same_weights_and_they_see_the_same_data():
    first, other = (build(tiny_config(model={"d_ff": d_ff})) for d_ff in (7, 9))
    key = run_keys(5).params
    weights = [flatten(map_weights(lambda _, weight: weight, each.model.spec)) for each in (first, other)]
    same = [path for path, weight in weights[0].items() if weight.shape == weights[1][path].shape][:5]
    assert 0 < len(same) < len(weights[0]) == len(weights[1])
    drawn = [jax.jit(lambda of=of: {path: draw(path, of[path], key) for path in same})() for of in weights]
    jax.tree.map(np.testing.assert_array_equal, *drawn)
    key = run_keys(5).data
    jax.tree.map(np.testing.assert_array_equal, first.task.batch(key, 3), other.task.batch(key, 3))


def test_the_command_prints_the_verdict_as_json(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, "train_loss")
    flags = [*overrides(seed=4, **QUICK), f"--workdir={tmp_path}", "--metric=train_loss"]
    finished_runs(tmp_path, plan, [3.0, 3.1, 3.2], [2.0, 2.5, 2.4])
    found = command("try", *flags, "--change=optimizer.learning_rate=0.1", "--seeds=3", "--json")
    assert (found.returncode, json.loads(found.stdout)["verdict"]) == (0, "no difference found"), found.stderr
    assert "pair 3  train_loss 3.2 and 2.4  2.0 s  p " in found.stderr
    assert "the other config has optimizer.learning_rate 0.1\n" in found.stderr


def test_python_has_the_same_trial(tmp_path, trained):
    other = read_config("reversal:example0")
    other.model.activation = "silu"
    found = fxf.trial("reversal:example0", other, tmp_path, metric="train_loss", seeds=2, minutes=1)
    assert (found.verdict, found.evidence.n, found.plan.named) == ("no difference found", 2, True)
    assert trained.names == ["first-0", "other-0", "first-1", "other-1"]
    null = fxf.trial(tiny_config(), None, tmp_path / "null", seeds=2)
    assert [pair.seeds for pair in null.pairs] == [(0, 1), (2, 3)]

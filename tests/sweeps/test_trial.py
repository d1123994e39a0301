"""Trials: pairs of ordinary runs that share programs, the end of a trial, and going on with it."""

import csv
import importlib
import json
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fxf
from fxf.base.errors import Interrupted, UserError
from fxf.base.files import to_json
from fxf.base.weights import flatten, initialize, map_weights
from fxf.reports.compare import runs_of
from fxf.reports.run_files import FINISHED
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from fxf.sweeps import crew
from fxf.sweeps.evidence import evidence
from fxf.sweeps.plan import Arm, Budget, Rules, make_plan
from fxf.sweeps.scales import try_scales
from fxf.sweeps.trial import carry_out
from fxf.training.state import run_keys
from fxf.verbs.flags import Parser
from helpers import table
from small_runs import ROOT, command, overrides, tiny_config

ORIGIN = {"config_file": "configs/reversal.py", "overrides": {}}
QUICK = {"checkpoint": {"every": 0}}
FIRST = Arm(tiny_config(seed=4, **QUICK), ORIGIN)
OTHER = Arm(tiny_config(optimizer={"learning_rate": 0.1}, **QUICK), ORIGIN)
WIDER = Arm(tiny_config(model={"d_ff": 9}, **QUICK), ORIGIN)
DIVERGING = Arm(tiny_config(optimizer={"learning_rate": 1e38}, **QUICK), ORIGIN)
LOSS = Rules("train_loss")
DIVERGED = "error: step 2: the loss is nan and the gradient's norm nan; training stopped\n"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Returns the folder of a trial of three pairs, its plan, its verdict, what it told, and when it compiled."""
    workdir, told, compiled = tmp_path_factory.mktemp("trial"), [], []

    def listen(event, _, **__):
        if "jaxpr_to_mlir" in event or "backend_compile" in event:
            compiled.append(len([path for path in workdir.glob("*-*") if (path / "result.json").exists()]))

    jax.monitoring.register_event_duration_secs_listener(listen)
    plan = make_plan(FIRST, OTHER, workdir, LOSS)
    compiled.clear()
    return workdir, plan, carry_out(plan, workdir, Budget(3), told.append), told, list(compiled)


def finished_runs(folder, plan, first, other, seconds=1.0):
    """Writes the results of runs, so that none of them trains; None is a run that diverged."""
    for number, figures in enumerate(zip(first, other, strict=True)):
        for name, seed, figure in zip(("first", "other"), plan.seeds_of(number), figures, strict=True):
            path = folder / f"{name}-{seed}"
            path.mkdir(parents=True)
            config = getattr(plan, name).config | {"seed": seed}
            (path / "config.json").write_text(json.dumps({"config": config}))
            if figure is None:
                (path / "ended.txt").write_text(DIVERGED)
            else:
                (path / "result.json").write_text(json.dumps({plan.metric: figure, "wall_seconds": seconds}))


def test_only_the_first_pair_compiles(done):
    assert len(done[4]) > 2
    assert max(done[4]) < 2  # how many runs had ended


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
    assert verdict.evidence == evidence([(pair.first, pair.other) for pair in verdict.pairs])
    there = json.loads((workdir / "verdict.json").read_text())
    assert there.pop("lines") == verdict.lines()
    assert there == json.loads(to_json(verdict.figures()))
    assert there["stopped"] == "all 3 seeds are used"
    rows = list(csv.DictReader((workdir / "table.csv").read_text().splitlines()))
    assert [float(row["difference"]) for row in rows] == [pair.other - pair.first for pair in verdict.pairs]
    assert told == ["at most 3 pairs of seeds, in 30 minutes at most", "3 pairs: undecided"]


def test_the_page_has_every_pair_and_every_attempt(done):
    workdir, _, verdict, *_ = done
    text = (workdir / "trial.html").read_text()
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    (trial,) = data["trials"]
    assert [dot[2:5] for dot in trial["dots"]] == [[p.first, p.other, p.other - p.first] for p in verdict.pairs]
    assert [attempt["seeds"] for attempt in trial["attempts"]] == [3]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert verdict.lines()[0] in (workdir / "trial.txt").read_text()


@pytest.fixture
def trained(monkeypatch):
    """Makes training quick: a figure is a function of the run. Returns the folders so far, and which one is stopped."""
    found = SimpleNamespace(names=[], stopped=0, figure=lambda config: config["seed"], seconds=1.0)

    def train(job, brought, kept):
        config, folder = job.config, job.folder
        found.names.append(folder.name)
        if len(found.names) == found.stopped:
            raise Interrupted("stopped at step 1, which is saved")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"config": config}))
        if config["optimizer"]["learning_rate"] == 1e38:
            (folder / "ended.txt").write_text(DIVERGED)
            return ""
        seconds = found.seconds if "measured" not in str(folder) else 0.1 * config["model"]["d_ff"]
        result = {"train_loss": found.figure(config), "exact_match": 0.5, "wall_seconds": 1.0, "train_seconds": seconds}
        (folder / "result.json").write_text(json.dumps(result))
        return ""

    monkeypatch.setattr(crew, "train", train)
    return found


def test_the_same_call_again_trains_nothing(done, trained):
    workdir, plan, verdict, *_ = done
    assert carry_out(plan, workdir, Budget(3)) == verdict
    assert trained.names == []


def test_a_stopped_trial_goes_on_and_more_seeds_add_pairs(tmp_path, trained):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    trained.stopped = 4
    with pytest.raises(Interrupted):
        carry_out(plan, tmp_path, Budget(2))
    assert len(json.loads((tmp_path / "plan.json").read_text())["budgets"]) == 1
    assert [pair.seeds for pair in carry_out(plan, tmp_path, Budget(2)).pairs] == [(4, 4), (5, 5)]
    assert trained.names == ["first-4", "other-4", "first-5", "other-5", "other-5"]
    assert len(carry_out(plan, tmp_path, Budget(3)).pairs) == 3
    assert trained.names[5:] == ["first-6", "other-6"]


def test_no_run_begins_after_the_minutes_and_pairs_that_are_whole_count(tmp_path, trained, monkeypatch):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    monkeypatch.setattr(crew.time, "monotonic", lambda: 60.0 * len(trained.names))
    found = carry_out(plan, tmp_path, Budget(8, minutes=4.5))
    assert (len(found.pairs), found.stopped) == (2, "the 4.5 minutes are spent")
    assert trained.names[-1] == "first-6"


def test_a_run_that_diverges_has_failed_and_is_not_tried_again(tmp_path, trained):
    plan = make_plan(FIRST, DIVERGING, tmp_path, LOSS)
    verdict = carry_out(plan, tmp_path)
    assert trained.names == [f"{name}-{seed}" for seed in range(4, 12) for name in ("first", "other")]
    assert [(pair.first is None, pair.other is None) for pair in verdict.pairs] == [(False, True)] * 8
    assert verdict.headline == "fails more often"
    assert verdict.stopped == "ended early: failures differ"
    assert "failed (not finite): 0 runs of the first config, 8 of the other" in verdict.lines()
    assert carry_out(plan, tmp_path) == verdict
    assert len(trained.names) == 16


@pytest.mark.parametrize(("of", "end"), table("ends of trials"))
def test_a_trial_ends_at_a_look_or_with_its_budget_and_says_what_is_better(of, end, tmp_path):
    stopped, n, line = end.split(" > ")
    plan = make_plan(FIRST, OTHER, tmp_path, Rules(of["metric"], failed=of.get("failed")))
    first = of["first"] * of["times"]
    other = [None if d is None else one + d for one, d in zip(first, of["more"] * of["times"], strict=True)]
    finished_runs(tmp_path, plan, first, other)
    found = carry_out(plan, tmp_path, Budget(of["seeds"], whole=of["whole"]))
    assert (found.stopped, found.evidence.n) == (stopped, int(n))
    assert found.headline == line and line.startswith(found.verdict.replace("undecided", ""))
    there = json.loads((tmp_path / "verdict.json").read_text())
    assert (there["effect"] is None) == stopped.startswith("ended early")
    assert there["effect"] is None or there["effect"] == pytest.approx(found.evidence.effect)


@pytest.mark.parametrize("value", ["NaN", "null"])
def test_a_figure_that_is_no_number_has_failed(value, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    finished_runs(tmp_path, plan, [1.0, 2.0], [1.5, 2.5])
    (tmp_path / "other-4/result.json").write_text(f'{{"train_loss": {value}, "wall_seconds": 1.0}}')
    verdict = carry_out(plan, tmp_path, Budget(2))
    assert [(pair.first, pair.other) for pair in verdict.pairs] == [(1.0, None), (2.0, 2.5)]
    assert verdict.evidence == evidence([(1.0, None), (2.0, 2.5)])
    json.loads((tmp_path / "verdict.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("result.json", '{"train_loss": 2.0}', "first-4: no wall_seconds"),
        pytest.param(
            "result.json", '{"loss": 2.0, "wall_seconds": 1}', "first-4: no train_loss", marks=pytest.mark.thorough
        ),
        ("config.json", '{"config": {"task": {}, "seed": 5}}', r"first-4: holds another run: seed \(5 there, 4 here\)"),
    ],
)
def test_a_result_that_is_not_of_the_arm_or_lacks_the_figure_is_one_line(name, text, message, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    finished_runs(tmp_path, plan, [1.0], [1.0])
    (tmp_path / "first-4" / name).write_text(text)
    with pytest.raises(UserError, match=message):
        carry_out(plan, tmp_path, Budget(2))


@pytest.mark.thorough
def test_runs_side_by_side_are_those_of_one_process(done, tmp_path):
    _, plan, verdict, *_ = done
    found = carry_out(plan, tmp_path, Budget(2, workers=2))
    assert [pair[:3] for pair in found.pairs] == [pair[:3] for pair in verdict.pairs[:2]]


@pytest.mark.thorough
def test_processes_know_what_a_config_file_adds(tmp_path):
    config = read_config("studies/recall")  # whose file has the task
    config.train.steps, config.train.evaluate_every, config.model.d_model, config.model.d_ff = 3, 0, 4, 4
    config.optimizer.warmup_steps, config.checkpoint.best, config.checkpoint.every = 0, "", 0
    wider = Arm({**config.to_dict(), "model": {**config.model.to_dict(), "d_ff": 5}}, {"config_file": "studies/recall"})
    plan = make_plan(Arm(config.to_dict(), wider.origin), wider, tmp_path, Rules("train_loss", rates=1))
    found = carry_out(plan, tmp_path, Budget(2, workers=2))
    assert all(math.isfinite(figure) for pair in found.pairs for figure in (pair.first, pair.other))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_otherwise_than_by_diverging_ends_the_trial_in_one_line(workers, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    train = {**OTHER.config["train"], "steps": -1}
    broken = plan._replace(first=Arm({**FIRST.config, "train": train}, ORIGIN))
    with pytest.raises(UserError, match=r"first-\d: train.steps: expected at least"):
        carry_out(broken, tmp_path, Budget(2, workers=workers))


def test_sizes_have_a_trial_each_and_one_page(tmp_path, trained):
    first, wider = (Arm(tiny_config(model={"d_model": 8, "d_ff": d_ff}, **QUICK), ORIGIN) for d_ff in (7, 9))
    found = try_scales(first, wider, tmp_path, LOSS._replace(rates=1), Budget(2))
    assert list(found) == ["half", "as given", "double"]
    models = [verdict.plan.other.config["model"] for verdict in found.values()]
    assert [(model["d_model"], model["d_ff"], model["n_layers"]) for model in models] == [
        (4, 4, 1),
        (8, 9, 1),
        (16, 18, 2),
    ]
    data = json.loads((tmp_path / "trial.html").read_text().split('id="data">')[1].split("</script>")[0])
    assert [trial["name"] for trial in data["trials"]] == list(found)


def test_where_shapes_agree_both_runs_of_a_pair_begin_with_the_same_weights_and_they_see_the_same_data():
    first, other = (build(tiny_config(model={"d_ff": d_ff})) for d_ff in (7, 9))
    key = run_keys(5).params
    weights = [flatten(map_weights(lambda _, weight: weight, each.model.spec)) for each in (first, other)]
    same = [path for path, weight in weights[0].items() if weight.shape == weights[1][path].shape][:5]
    assert 0 < len(same) < len(weights[0]) == len(weights[1])
    drawn = [jax.jit(lambda of=of: initialize({path: of[path] for path in same}, key))() for of in weights]
    jax.tree.map(np.testing.assert_array_equal, *drawn)
    jax.tree.map(np.testing.assert_array_equal, first.task.batch(key, 3), other.task.batch(key, 3))


def test_the_command_prints_the_verdict(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    flags = [*overrides(seed=4, **QUICK), f"--workdir={tmp_path}", "--metric=train_loss"]
    finished_runs(tmp_path, plan, [3.0, 3.1, 3.2], [2.0, 2.5, 2.4])
    found = command("try", *flags, "--change=optimizer.learning_rate=0.1", "--seeds=3")
    assert (found.returncode, found.stdout.partition(":")[0]) == (0, "undecided"), found.stderr
    assert "3 pairs: undecided" in found.stderr
    assert "the other config has optimizer.learning_rate 0.1\n" in found.stderr
    assert "--seeds=3: a claim about the mean takes 32 pairs" in found.stderr


def test_the_command_tries_sizes(tmp_path, trained, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    module = importlib.import_module("fxf.verbs.try")
    given = [*overrides(model={"d_model": 8}), "--change=model.d_ff=9", "--metric=train_loss", "--rates=1", "--seeds=2"]
    module.main(Parser("fxf try", module).parse([*given, "--scales", "--workers=1", f"--workdir={tmp_path}"]))
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.endswith(":")] == ["half:", "as given:", "double:"]


def test_python_has_the_same_trial(tmp_path, trained):
    other = read_config("reversal:example0")
    other.model.activation = "silu"
    found = fxf.trial("reversal:example0", other, tmp_path, metric="train_loss", seeds=2, rates=1)
    assert (found.verdict, found.evidence.n, found.plan.named) == ("undecided", 2, True)
    assert trained.names == ["first-0", "other-0", "first-1", "other-1"]
    null = fxf.trial(tiny_config(), None, tmp_path / "null", seeds=2)
    assert [pair.seeds for pair in null.pairs] == [(0, 1), (2, 3)]


def test_an_interval_is_shown_from_32_pairs_on_only(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, LOSS)
    finished_runs(tmp_path, plan, [1.0] * 9, [1.5 + 0.01 * i for i in range(9)])
    assert math.isinf(carry_out(plan, tmp_path, Budget(9, whole=True)).evidence.low)
    assert json.loads((tmp_path / "verdict.json").read_text())["low"] is None

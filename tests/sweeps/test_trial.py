"""Trials: pairs of ordinary runs that share programs, the end of a trial, and resuming it."""

import csv
import importlib
import json
import math
import re
import subprocess
from types import SimpleNamespace

import pytest

import fxf
from fxf.base.errors import Interrupted, UserError
from fxf.base.files import to_json
from fxf.runs.configs import read_config
from fxf.sweeps import crew
from fxf.sweeps.evidence import evidence
from fxf.sweeps.plan import Arm, Budget, changed, make_plan
from fxf.sweeps.trial import run_trial
from fxf.verbs.flags import Parser
from helpers import refused, table
from small_runs import ROOT, command, overrides, tiny_config

ORIGIN = {"config_file": "configs/reversal.py", "overrides": {}}
QUICK = {"checkpoint": {"every": 0}}
FIRST = Arm(tiny_config(seed=4, **QUICK), ORIGIN)
OTHER = Arm(tiny_config(optimizer={"learning_rate": 0.1}, **QUICK), ORIGIN)
WIDER = Arm(tiny_config(model={"d_ff": 9}, **QUICK), ORIGIN)
LOSS = {"metric": "train_loss"}
BEFORE = "at most 3 pairs of seeds, in 30 minutes at most; a claim about the mean takes 32 pairs"
DIVERGED = "error: step 2: the loss is nan and the gradient's norm nan; training stopped\n"


def finished_runs(folder, plan, first, other, seconds=1.0):
    """Writes the results of runs, so that none of them trains; None stands for a run that diverged."""
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


def data_of(page):
    """Returns the data of the page of trials, which must load nothing from elsewhere."""
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])["trials"]


@pytest.fixture
def trained(monkeypatch):
    """Fakes training: a metric is a function of the run. Returns the folders so far, and the one to stop."""
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
        measured = 0.1 * config["model"]["d_ff"] + int(folder.name[-1])
        seconds = measured if "measured" in str(folder) else found.seconds
        result = {"train_loss": found.figure(config), "exact_match": 0.5, "wall_seconds": 1.0, "train_seconds": seconds}
        (folder / "result.json").write_text(json.dumps(result))
        return ""

    monkeypatch.setattr(crew, "train", train)
    return found


def test_a_trials_files_agree_with_its_pairs_and_a_repeat_trains_nothing(tmp_path, trained):
    plan, workdir, told = make_plan(FIRST, OTHER, tmp_path, **LOSS), tmp_path, []
    trained.figure = lambda config: config["seed"] + 9 * config["optimizer"]["learning_rate"]
    verdict = run_trial(plan, workdir, Budget(3), told.append)
    assert [pair.seeds for pair in verdict.pairs] == [(4, 4), (5, 5), (6, 6)]
    rates = [each.config["optimizer"]["learning_rate"] for each in (FIRST, OTHER)]
    assert [(pair.first, pair.other) for pair in verdict.pairs] == [tuple(n + 9 * r for r in rates) for n in (4, 5, 6)]
    assert verdict.evidence == evidence([(pair.first, pair.other) for pair in verdict.pairs])
    there = json.loads((workdir / "verdict.json").read_text())
    assert there == json.loads(to_json({**verdict.figures(), "lines": verdict.lines()}))
    assert [there[key] for key in ("stopped", "low", "higher", "lower")] == ["all 3 seeds are used", None, 3, 0]
    assert "a mean is claimed at 32 or 64 pairs only" in str(verdict)
    rows = list(csv.DictReader((workdir / "table.csv").read_text().splitlines()))
    assert [float(row["difference"]) for row in rows] == [pair.other - pair.first for pair in verdict.pairs]
    (trial,) = data_of(workdir / "trial.html")
    assert [dot[2:5] for dot in trial["dots"]] == [[p.first, p.other, p.other - p.first] for p in verdict.pairs]
    assert [attempt["seeds"] for attempt in trial["attempts"]] == [3]
    assert told == ["the configs differ in optimizer.learning_rate", BEFORE, "3 pairs: undecided"]
    names = [f"{name}-{seed}" for seed in (4, 5, 6) for name in ("first", "other")]
    assert (run_trial(plan, workdir, Budget(3)), trained.names) == (verdict, names)


def test_a_stopped_trial_resumes_and_more_seeds_add_pairs(tmp_path, trained):
    plan = make_plan(FIRST, OTHER, tmp_path, **LOSS)
    trained.stopped = 4
    with pytest.raises(Interrupted):
        run_trial(plan, tmp_path, Budget(2))
    assert len(json.loads((tmp_path / "plan.json").read_text())["budgets"]) == 1
    assert [pair.seeds for pair in run_trial(plan, tmp_path, Budget(2)).pairs] == [(4, 4), (5, 5)]
    assert trained.names == ["first-4", "other-4", "first-5", "other-5", "other-5"]
    assert len(run_trial(plan, tmp_path, Budget(3)).pairs) == 3
    assert trained.names[5:] == ["first-6", "other-6"]


def test_no_run_starts_after_the_time_limit_and_complete_pairs_count(tmp_path, trained, monkeypatch):
    plan = make_plan(FIRST, OTHER, tmp_path, **LOSS)
    monkeypatch.setattr(crew.time, "monotonic", lambda: 60.0 * len(trained.names))
    found = run_trial(plan, tmp_path, Budget(8, minutes=4.5, whole=True))
    assert (len(found.pairs), found.stopped) == (2, "the 4.5 minutes are spent")
    assert trained.names[-1] == "first-6"


def test_a_run_that_diverges_has_failed_and_is_not_repeated(tmp_path, trained):
    plan = make_plan(FIRST, changed(FIRST, {"optimizer.learning_rate": 1e38}), tmp_path, **LOSS)
    verdict = run_trial(plan, tmp_path)
    assert trained.names == [f"{name}-{seed}" for seed in range(4, 12) for name in ("first", "other")]
    assert [(pair.first is None, pair.other is None) for pair in verdict.pairs] == [(False, True)] * 8
    assert (verdict.headline, verdict.stopped) == ("fails more often", "ended early: failures differ")
    assert "failed (not finite): 0 runs of the first config, 8 of the other" in verdict.lines()
    assert (run_trial(plan, tmp_path), len(trained.names)) == (verdict, 16)


@pytest.mark.parametrize(("of", "end"), table("ends of trials"))
def test_a_trial_ends_at_a_look_or_with_its_budget_and_says_what_is_better(of, end, tmp_path):
    stopped, n, line = end.split(" > ")
    plan = make_plan(FIRST, OTHER, tmp_path, metric=of["metric"], failed=of.get("failed"))
    first = of["first"] * of["times"]
    other = [None if d is None else one + d for one, d in zip(first, of["more"] * of["times"], strict=True)]
    finished_runs(tmp_path, plan, first, other)
    found = run_trial(plan, tmp_path, Budget(of["seeds"], whole=of["whole"]))
    assert (found.stopped, found.evidence.n) == (stopped, int(n))
    assert found.headline == line and line.startswith(found.verdict.replace("undecided", ""))
    there = json.loads((tmp_path / "verdict.json").read_text())
    none = (stopped.startswith("ended early") and int(n) < 32) or math.isnan(found.evidence.effect)
    assert (there["effect"] is None) == none
    said = [words in str(found) for words in ("nan", "of the first 32 pairs", "all pairs are equal")]
    assert said == [False, n == "40", of["more"] == [0.0]]
    if there["effect"] is not None:
        assert there["effect"] == pytest.approx(found.evidence.effect)
        said = re.search(r"(\S+) of the first config, (\S+) of the other", str(found)).groups()
        assert float(said[1]) - float(said[0]) == pytest.approx(there["effect"], abs=2e-3)


@pytest.mark.parametrize(("of", "message"), refused("results that are not of the arm"))
def test_a_result_that_is_not_of_the_arm_or_lacks_the_metric_is_one_line(of, message, tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, **LOSS)
    finished_runs(tmp_path, plan, [1.0, 1.0], [1.0, 1.0])
    (tmp_path / "first-4" / of["name"]).write_text(of["text"])
    with pytest.raises(UserError, match=message):
        run_trial(plan, tmp_path, Budget(2))


@pytest.mark.thorough
def test_runs_side_by_side_are_those_of_one_process_also_with_what_a_config_file_adds(tmp_path):
    config = read_config("studies/recall")  # its file defines the task
    config.train.steps, config.train.evaluate_every, config.model.d_model, config.model.d_ff = 3, 0, 4, 4
    config.optimizer.warmup_steps, config.checkpoint.best, config.checkpoint.every = 0, "", 0
    first = Arm(config.to_dict(), {"config_file": "studies/recall"})
    plan = make_plan(first, changed(first, {"model.d_ff": 5}), tmp_path, **LOSS, rates=1)
    one, two = (run_trial(plan, tmp_path / f"{workers}", Budget(2, workers=workers)) for workers in (1, 2))
    assert [pair[:3] for pair in one.pairs] == [pair[:3] for pair in two.pairs] and one.evidence.failed == (0, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_otherwise_than_by_diverging_ends_the_trial_in_one_line(workers, tmp_path, monkeypatch):
    pipe = subprocess.PIPE  # the other worker never answers, and needs no time to start
    starts = iter([crew._worker, lambda _: subprocess.Popen(["sleep", "120"], stdin=pipe, stdout=pipe, text=True)])
    monkeypatch.setattr(crew, "_worker", lambda n: next(starts)(n))
    plan = make_plan(FIRST, OTHER, tmp_path, **LOSS)
    train = {**OTHER.config["train"], "batch_size": -1}
    broken = plan._replace(first=Arm({**FIRST.config, "train": train}, ORIGIN))
    with pytest.raises(UserError, match=r"first-\d/log.txt: train.batch_size: expected at least"):
        run_trial(broken, tmp_path, Budget(2, workers=workers))


def test_the_command_prints_the_verdict(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, **LOSS)
    flags = [*overrides(seed=4, **QUICK), f"--workdir={tmp_path}", "--metric=train_loss"]
    finished_runs(tmp_path, plan, [3.0, 3.1, 3.2], [2.0, 2.5, 2.4])
    found = command("try", *flags, "--change=optimizer.learning_rate=0.1", "--seeds=3")
    assert (found.returncode, found.stdout.partition(":")[0]) == (0, "undecided"), found.stderr
    assert f"{BEFORE}\n3 pairs: undecided" in found.stderr


def test_the_command_tries_sizes_and_shows_them_on_one_page(tmp_path, trained, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    module = importlib.import_module("fxf.verbs.try")
    given = [*overrides(model={"d_model": 8}), "--change=model.d_ff=9", "--metric=train_loss", "--rates=1", "--seeds=2"]
    module.main(Parser("fxf try", module).parse([*given, "--scales", "--workers=1", f"--workdir={tmp_path}"]))
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.endswith(":")] == ["half:", "as given:", "double:"]
    assert [trial["name"] for trial in data_of(tmp_path / "trial.html")] == ["half", "as given", "double"]
    sizes = {"half": (4, 4, 1), "as_given": (8, 9, 1), "double": (16, 18, 2)}
    for folder, expected in sizes.items():
        model = json.loads((tmp_path / folder / "other-0/config.json").read_text())["config"]["model"]
        assert (model["d_model"], model["d_ff"], model["n_layers"]) == expected


def test_python_has_the_same_trial(tmp_path, trained):
    other = read_config("reversal:example0")
    other.model.activation = "silu"
    found = fxf.trial("reversal:example0", other, tmp_path, metric="train_loss", seeds=2, rates=1)
    assert (found.verdict, found.evidence.n, found.lines()[-1]) == ("undecided", 2, "the metric was named beforehand")
    assert trained.names == ["first-0", "other-0", "first-1", "other-1"]
    fxf.trial(tiny_config(), None, tmp_path / "null", seeds=2, match="seconds")
    (trial,) = data_of(tmp_path / "null/trial.html")
    assert [dot[:2] for dot in trial["dots"]] == [[0, 1], [2, 3]] and not (tmp_path / "null/measured").exists()

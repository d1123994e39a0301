"""The plan of a trial: which metric decides, and how. It is written before the runs and stays unchanged."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from fxf.base.errors import UserError
from fxf.runs.configs import read_config
from fxf.sweeps.evidence import TEST
from fxf.sweeps.plan import Arm, Budget, choose_metric, keep_plan, make_plan, other_config, with_changes
from helpers import refused, table
from small_runs import text_config, tiny_config

ORIGIN = {"config_file": "reversal", "overrides": {}}
FIRST, OTHER = Arm(tiny_config(seed=4), ORIGIN), Arm(tiny_config(seed=9, optimizer={"learning_rate": 0.1}), ORIGIN)


@pytest.mark.parametrize(("of", "found"), table("metric of a trial"))
def test_the_metric_is_one_of_the_tasks_and_its_direction_is_known(of, found):
    task, config = SimpleNamespace(metrics=of["metrics"]), {"data": {"test": of["test"]}}
    assert choose_metric(SimpleNamespace(task=task, config=config), of["metric"]) == tuple(found.split())


@pytest.mark.parametrize(("of", "message"), refused("configs of a trial"))
def test_configs_whose_metrics_mean_different_things_are_refused(of, message, tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"{i} and {i * i}\n" for i in range(90)))
    tokens, path = {"tokenizer": "bpe", "vocab_size": 270}, tmp_path / "text.txt"
    configs = [{**text_config(path, data=tokens | x.get("data", {})), **x.get("whole", {})} for x in ({}, of)]
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        make_plan(*(Arm(config, ORIGIN) for config in configs), tmp_path, metric=of["metric"])


@pytest.mark.parametrize(("of", "rates"), table("rates of a trial"))
def test_three_rates_are_tried_unless_the_configs_differ_only_in_the_rate(of, rates, tmp_path):
    other = Arm({**tiny_config(**of["sections"]), **of.get("whole", {})}, ORIGIN) if "sections" in of else None
    assert make_plan(FIRST, other, tmp_path, rates=of["given"]).rates == int(rates)


def test_each_config_of_a_trial_has_the_files_of_its_own_folder(tmp_path):
    arms = []
    for n in "23":
        (tmp_path / n).mkdir()
        (tmp_path / n / "versions.py").write_text(f"def scaled(x):\n    return {n} * x\n")
        named = tiny_config(model={"activation": "versions:scaled"})
        arms.append(Arm(named, {"config_file": str(tmp_path / n / "versions.py")}))
    content = make_plan(*arms, tmp_path / "trial").content
    assert content["first"].keys() == content["other"].keys() and content["first"] != content["other"]
    assert arms[0].built().program_key() != arms[1].built().program_key() != arms[0].built().program_key()


def test_the_plan_records_all_that_decides_and_every_attempt_and_another_one_is_refused(tmp_path):
    plan = make_plan(FIRST, OTHER, tmp_path, metric="train_loss", failed=2.5, rates=5, match="flops")
    for seeds in (7, 7, 9):
        keep_plan(plan, Budget(seeds, 2.5), tmp_path)
    there = json.loads((tmp_path / "plan.json").read_text())
    assert (there["first"], there["other"]) == (FIRST.config, {**OTHER.config, "seed": 4})
    assert (there["metric"], there["better"], there["named"]) == ("train_loss", "lower", True)
    assert [there[name] for name in ("failed", "rates", "match", "null", "test")] == [2.5, 5, "flops", False, TEST]
    assert {"code", "versions", "git_commit", "device", "origins", "content"} <= set(there)
    assert [(each["seeds"], each["minutes"]) for each in there["budgets"]] == [(7, 2.5), (7, 2.5), (9, 2.5)]
    for changed, message in (
        (plan._replace(failed=0.5), r"failed \(2.5 there, 0.5 here\)"),
        (plan._replace(metric="exact_match", better="higher"), r"metric \(train_loss there, exact_match here\)"),
        (plan._replace(other=FIRST), r"other.optimizer.learning_rate \(0.1 there"),
        (plan._replace(content={"first": {"data": "1"}}), r"content.first.data \(absent there"),
    ):
        refused = rf"plan.json: the plan of another trial: .*{message}.*; use another --workdir"
        with pytest.raises(UserError, match=refused):
            keep_plan(changed, Budget(9, 2.5), tmp_path)


CHANGED = Arm(tiny_config(), {"config_file": "reversal", "overrides": {"seed": 3}})


def test_another_config_gets_the_keys_that_the_command_line_sets_for_both():
    found = other_config("reversal:example0", {"train.steps": 7, "optimizer.learning_rate": 1e-5, "log.report": False})
    expected = read_config("reversal:example0").to_dict()
    expected["train"]["steps"], expected["optimizer"]["learning_rate"], expected["log"]["report"] = 7, 1e-5, False
    assert found.config == expected
    assert found.origin["overrides"] == {"train.steps": 7, "optimizer.learning_rate": 1e-5, "log.report": False}
    with pytest.raises(UserError, match=r"^--other=characters: task.n_tokens: unknown key"):
        other_config("characters", {"task.n_tokens": 3})


def test_a_change_applies_only_to_the_other_config_and_a_run_records_all_changes(tmp_path):
    before = tiny_config()
    found = with_changes(CHANGED, ["model.n_layers=2", "model.activation=silu", "train.skip_nonfinite=1"])
    changes = {"model": {"n_layers": 2, "activation": "silu"}, "train": {"skip_nonfinite": 1}}
    assert (found.config, CHANGED.config) == (tiny_config(**changes), before)
    overrides = {"seed": 5, "model.n_layers": 2, "model.activation": "silu", "train.skip_nonfinite": 1}
    assert found.job(2**32 + 5, tmp_path).origin == {"config_file": "reversal", "overrides": overrides}

"""The plan of a trial, written to plan.json before its runs begin."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fxf.base.config import Field, checked, differences, differing_keys, one_of, with_values
from fxf.base.errors import UserError
from fxf.base.files import is_remote, read_json, write_atomically
from fxf.reports.best import why_not_alike
from fxf.reports.compare import TOKENIZER
from fxf.reports.figures import HIGHER, LOWER, figure
from fxf.reports.run_files import CONFIG
from fxf.runs import configs, guests
from fxf.runs.code_version import made_by
from fxf.runs.evaluator import scored_of, unit_of
from fxf.runs.experiment import Experiment, build
from fxf.runs.flops import flops_per_token
from fxf.sweeps.crew import Job
from fxf.sweeps.evidence import TEST
from fxf.sweeps.points import TABLE

PLAN = "plan.json"
RATE = "optimizer.learning_rate"
Digests = dict[str, str]  # of files, by name
ALWAYS = ("train_loss", "train_seconds", "tokens_per_second")  # metrics of every run, besides those of its task


class Arm(NamedTuple):
    """A nested config with every key, and its origin, as in config.json."""

    config: dict[str, Any]
    origin: dict[str, Any]

    def built(self) -> Experiment:
        """Returns the experiment. Until another arm is built, module:function names resolve in this config's folder."""
        configs.load_file(self.origin)
        return build(self.config)

    def job(self, seed: int, folder: Path) -> Job:
        """Returns the job that trains the config with a seed."""
        config, origin = changed(self, {"seed": seed % 2**32})  # a seed has 32 bits
        return Job(config, folder, origin)


class Budget(NamedTuple):
    """The most that a call may spend.

    Attributes:
      seeds: maximum number of pairs of seeds.
      minutes: no run begins after these.
      whole: whether looks before 32 pairs cannot end the trial, so that the effect is not biased by an early end.
      workers: processes that train in parallel, each on a part of the cores.
    """

    seeds: int = 32
    minutes: float = 30.0
    whole: bool = False
    workers: int = 1


class Plan(NamedTuple):
    """The two configs of a trial, and the rules that decide between them.

    Attributes:
      metric: the metric of result.json that decides.
      better: `lower` or `higher`.
      named: whether the user named the metric.
      null: whether both arms are the same config, and the two runs of a pair differ in their seeds.
      content: digests of each arm's data and config files, by name.
      failed, rates, match: as in `make_plan`.
    """

    first: Arm
    other: Arm
    metric: str
    better: str
    named: bool
    null: bool
    content: dict[str, dict[str, str]]
    failed: float | None
    rates: int
    match: str

    @property
    def arms(self) -> dict[str, Arm]:
        """Both arms by name."""
        return {"first": self.first, "other": self.other}

    def seeds_of(self, index: int) -> tuple[int, int]:
        """Returns the seeds of the two runs of a pair, by the pair's index."""
        seed = self.first.config["seed"]
        return (seed + 2 * index, seed + 2 * index + 1) if self.null else (seed + index, seed + index)

    def record(self) -> dict[str, Any]:
        """Returns the entries of plan.json that may not change when the trial is resumed."""
        return {**self._asdict(), "first": self.first.config, "other": self.other.config, "test": TEST}


def other_config(other: str, overrides: Mapping[str, Any]) -> Arm:
    """Reads the arm FILE[:ARGUMENT] or NAME[:ARGUMENT], and sets the keys that the command line sets for both arms.

    Raises:
      UserError: there is no such config, or it lacks one of the keys.
    """
    changes = [(key, str(value)) for key, value in overrides.items()]
    config, _ = configs.with_changes(configs.read_config(other, "--other"), changes, f"--other={other}: ")
    return Arm(config.to_dict(), configs.origin_of(other, overrides))


def with_changes(arm: Arm, changes: Sequence[str]) -> Arm:
    """Returns the arm with the changes KEY=VALUE of --change.

    Raises:
      UserError: a change is not a valid KEY=VALUE, or changes the seed.
    """
    typed = [(change.partition("=")[0], change.partition("=")[2] if "=" in change else None) for change in changes]
    _, values = configs.with_changes(ConfigDict(arm.config).lock(), typed, "--change=")
    if "seed" in values:
        raise UserError("--change=seed: the pairs of a trial set the seed; --null compares seeds alone")
    return changed(arm, values)


def changed(arm: Arm, changes: Mapping[str, Any]) -> Arm:
    """Returns the arm with other values of keys. Its origin lists them as overrides."""
    overrides = {**arm.origin.get("overrides", {}), **changes}
    return Arm(with_values(arm.config, changes), {**arm.origin, "overrides": overrides})


def make_plan(
    first: Arm,
    other: Arm | None,
    workdir: Path,
    *,
    metric: str = "",
    failed: float | None = None,
    rates: int | None = None,
    match: str = "steps",
) -> Plan:
    """Makes the plan of a trial. Builds both arms to check them, which prepares their data.

    Args:
      other: the other arm; None for the null trial of the first arm against itself.
      metric: the metric that decides, by default the task's first. A prefix says which values are better: - lower ones,
        + higher ones.
      failed: a run has failed if its metric is worse than this, and in any case if its loss is not finite.
      rates: number of learning rates to try for each config before the pairs; 1 keeps the configs' own. By default 3,
        but 1 in a null trial or if the configs differ in nothing but the rate.
      match: what both configs spend equally: `steps` (unchanged), or `flops` or `seconds`, by other steps of `other`.

    Raises:
      UserError: a config is wrong, the arms are the same or score different data, one lacks the metric or has it in
        another unit, it is unknown whether lower or higher is better, or a rule is wrong.
    """
    of_a_sweep = (workdir / TABLE).exists() and not (workdir / PLAN).exists()
    if is_remote(workdir) or (workdir / CONFIG).exists() or of_a_sweep:
        raise UserError(f"--workdir: {workdir}: a trial needs a local folder of its own, not of a run, model or sweep")
    one_of(match, ("steps", "flops", "seconds"), "--match")
    failed = None if failed is None else checked(failed, Field(float, {}), "--failed")
    null, other = other is None, other or first
    other = other._replace(config={**other.config, "seed": first.config["seed"]})
    first_built, decides, first_content = _read("first", first, workdir, metric, match)
    other_built, _, other_content = _read("other", other, workdir, metric, match)
    # Building adds missing keys: a change may name an optimizer that has keys of its own.
    first, other = first._replace(config=first_built.config), other._replace(config=other_built.config)
    if not null and (first.config, first_content) == (other.config, other_content):
        raise UserError("the two configs of the trial are the same; --null tries a config against itself")
    _require_same_scores((first_built, other_built), decides[0])
    rates = (1 if null or differing_keys(first.config, other.config) == [RATE] else 3) if rates is None else rates
    if rates not in range(1, 2 if null else 100, 2):
        raise UserError(f"--rates: expected an odd number, and 1 of a null trial, got {rates}")
    content = {"first": first_content, "other": other_content}
    return Plan(first, other, *decides, bool(metric), null, content, failed, rates, match)


def _read(name: str, arm: Arm, workdir: Path, metric: str, match: str) -> tuple[Experiment, tuple[str, str], Digests]:
    """Returns an arm's experiment, its `choose_metric`, and the digests of its data and config files.

    Raises:
      UserError: as `make_plan`; the message names the arm.
    """
    try:
        if arm.config["parallel"]["processes"] != 1:
            raise UserError("parallel.processes: the runs of a trial share one process; leave it at 1")
        experiment = arm.built()
        experiment.layout()  # raises a UserError if the devices do not fit, before the other config's runs
        decides = choose_metric(experiment, metric)
        content = {**experiment.task.digests(), **guests.digests(arm.config, workdir)}
        if match == "flops" and (lost := flops_per_token(experiment).uncounted):
            raise UserError(f"--match=flops: {', '.join(lost)} cannot be counted; take --match=seconds")
        return experiment, decides, content
    except UserError as error:
        raise UserError(f"the {name} config: {error}") from None


def _require_same_scores(arms: tuple[Experiment, Experiment], metric: str) -> None:
    """Raises a UserError if two experiments score different data, or have the metric in different units."""
    if differing := differing_keys(*map(scored_of, arms)):
        raise UserError(f"the two configs score different data: {', '.join(differing)}")
    units, tokenizers = {unit_of(arm) for arm in arms}, {arm.task.files.get(TOKENIZER) for arm in arms}
    unknown = max(arm.task.figures().get("unknown_share", 0) for arm in arms) if len(tokenizers) > 1 else 0
    if why := why_not_alike(metric, units, tokenizers, unknown):
        bits = [name.removeprefix("-") for name in arms[0].task.metrics if "bits_per" in name]
        named = "" if metric in bits or len(units) > 1 else f"; name {' or '.join(bits) or 'another metric'}"
        raise UserError(f"--metric: {metric}: {why}{named}")


def choose_metric(experiment: Experiment, metric: str = "") -> tuple[str, str]:
    """Returns the name of a metric of result.json, and whether `lower` or `higher` is better.

    By default it is the task's first metric. With a test part, the test loss stands for the validation loss.

    Raises:
      UserError: the run has no such metric, or it is unknown whether lower or higher is better.
    """
    has_test = experiment.config.get("data", {}).get("test")
    metrics = [re.sub("^-validation_loss", "-test_loss", m) if has_test else m for m in experiment.task.metrics]
    in_result = {m.removeprefix("-"): m for m in reversed(metrics)}
    name, known = metric.lstrip("+-") or metrics[0].removeprefix("-"), [*in_result, *ALWAYS]
    one_of(name, known, "--metric")
    if metric not in ("", name):
        return name, LOWER if metric.startswith("-") else HIGHER
    if in_result.get(name, "").startswith("-"):
        return name, LOWER
    if better := figure(name).better or (HIGHER if name in metrics and f"-{name}" not in metrics else ""):
        return name, better
    raise UserError(f"--metric: {name}: it is unknown which is better; write -{name} for lower, +{name} for higher")


def keep_plan(plan: Plan, budget: Budget, workdir: Path) -> None:
    """Writes plan.json, or checks it against `plan` if it exists, and adds the budget of this attempt.

    Raises:
      UserError: the folder holds another trial, or its plan is damaged.
    """
    path, record, made = workdir / PLAN, plan.record(), made_by()
    origins = {"first": plan.first.origin, "other": plan.other.origin}
    new = {**record, "origins": origins, **made, "budgets": []}
    saved = read_plan(workdir) if path.exists() else new
    record |= {"code": made["code"], "versions": made["versions"]}
    if differing := differences({name: saved.get(name, "absent") for name in record}, record):
        raise UserError(f"{path}: the plan of another trial: {differing}; use another --workdir")
    attempt = {**budget._asdict(), "time": time.strftime("%F %T")}
    write_plan(workdir, {**saved, "budgets": [*saved["budgets"], attempt]})


def read_plan(workdir: Path) -> dict[str, Any]:
    """Returns the object in plan.json. Raises a UserError if it is damaged."""
    return read_json(workdir / PLAN, "a trial's plan")


def write_plan(workdir: Path, content: dict[str, Any]) -> None:
    """Writes plan.json."""
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(workdir / PLAN, json.dumps(content, indent=2) + "\n")

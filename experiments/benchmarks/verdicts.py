"""How often trials are right: null trials, planted effects, and seeds in one process beside processes of their own.

    python experiments/benchmarks/verdicts.py            # all; the same command goes on where it was stopped
    python experiments/benchmarks/verdicts.py --only=null,shifted,changed,together

null      200 trials of a small reversal config against itself, each of at most 10 pairs. Every pair has two seeds of
          its own. Two figures decide, each in trials of its own: train_loss, and exact_match, which is not Gaussian.
shifted   80 trials of the same runs, with 0.2 nats taken from the other run's train_loss.
changed   20 trials of a small character model against one with a 5 % higher learning rate, whose effect is about
          0.01 nats. A pair has one seed.
together  the time of 32 runs of reversal:example0 by one `fxf try --null`, beside that of `fxf train` for each.

A trial has the evidence and the rule of `fxf try`, and looks after each pair. Runs are trained once. Their figures are
kept in experiments/results/verdicts/, with the configs and the table that this script makes of them.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import csv
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags

from fxf.files import write_atomically
from fxf.machine.compiled import CompiledByShape
from fxf.pages.text_tables import Row, to_csv, to_markdown
from fxf.runs import cli
from fxf.runs.code_version import made_by
from fxf.runs.command_line import read_config
from fxf.runs.experiment import build
from fxf.training.log import Clock
from fxf.training.step import make_train_steps
from fxf.trials.evidence import evidence

RESULTS = Path(__file__).parents[1] / "results/verdicts"
KINDS = ("null", "shifted", "changed", "together")
ONLY = flags.DEFINE_list("only", list(KINDS), "the kinds to measure; the table has all that are there")
LEVEL = 0.05
QUIET = {"log.tensorboard": False, "log.report": False, "checkpoint.every": 0}
SMALL_REVERSAL = {
    **{"model.n_layers": 1, "model.d_model": 16, "model.d_ff": 16, "train.steps": 60, "train.batch_size": 8},
    **{"optimizer.learning_rate": 2e-2, **QUIET},
}
SMALL_CHARACTERS = {
    **{"model.n_layers": 1, "model.d_model": 32, "model.d_ff": 64, "model.n_heads": 2, "task.length": 32},
    **{"train.steps": 200, "optimizer.learning_rate": 3e-3, "data.test": 0.02, **QUIET},
}
CHANGE = {"optimizer.learning_rate": 3.15e-3}


class Kind(NamedTuple):
    """Trials of one kind.

    Attributes:
      first, other: the names of the arms' runs.
      metrics: the figures that decide, each in trials of its own.
      seeds: the most pairs of a trial.
      two_seeds: whether the runs of a pair have two seeds.
      shift: what is added to the other run's figure.
    """

    first: str
    other: str
    metrics: tuple[str, ...]
    trials: int
    seeds: int
    two_seeds: bool = True
    shift: float = 0.0


TRIALS = {
    "null": Kind("reversal", "reversal", ("train_loss", "exact_match"), 200, 10),
    "shifted": Kind("reversal", "reversal", ("train_loss",), 80, 24, shift=-0.2),
    "changed": Kind("characters", "characters_changed", ("test_loss",), 20, 16, two_seeds=False),
}
FIGURES = {
    "reversal": ("train_loss", "exact_match"),
    "characters": ("test_loss",),
    "characters_changed": ("test_loss",),
}


def config_of(name: str) -> dict[str, Any]:
    """Returns the config of an arm's runs."""
    if name == "reversal":
        config, changes = read_config("reversal:example0"), SMALL_REVERSAL
    else:
        config, changes = read_config("characters"), SMALL_CHARACTERS | (CHANGE if name.endswith("changed") else {})
    config.update_from_flattened_dict(changes)
    return build(config).config


class Runs:
    """The figures of an arm's runs by seed, kept in a CSV file; a run that is not there is trained, in memory.

    It is the run of `fxf train`, by the same programs, without a run folder, whose files take most of so short a run.
    """

    def __init__(self, name: str) -> None:
        self.names, self.path = ("seed", *FIGURES[name], "seconds"), RESULTS / f"{name}.csv"
        self.experiment = build(config_of(name))
        RESULTS.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            record = {"config": self.experiment.config, **made_by()}
            write_atomically(RESULTS / f"{name}.json", json.dumps(record, indent=2) + "\n")
            self.path.write_text(",".join(self.names) + "\n")
        with self.path.open() as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        self.found = {int(row["seed"]): row for row in rows}
        self.layout = self.experiment.layout()
        n_steps = min(self.experiment.log.every, self.experiment.train.steps)
        steps = make_train_steps(self.experiment.trainer(self.layout), self.experiment.task.batch, n_steps)  # type: ignore[arg-type]
        self.steps = CompiledByShape(steps, nullcontext)
        self.evaluator = self.experiment.evaluator(Clock(0.0), self.layout)

    def __getitem__(self, seed: int) -> dict[str, float]:
        if seed not in self.found:
            started = time.perf_counter()
            result = self.train(seed)
            result |= {"seed": seed, "seconds": round(time.perf_counter() - started, 3)}
            self.found[seed] = {name: result[name] for name in self.names}
            with self.path.open("a") as file:
                file.write(",".join(str(value) for value in self.found[seed].values()) + "\n")
        return self.found[seed]

    def train(self, seed: int) -> dict[str, Any]:
        """Returns the figures of a run."""
        of_seed = self.experiment._replace(config=self.experiment.config | {"seed": seed})
        numbers = jax.device_put(of_seed.hyperparameters(), self.layout.replicated)
        state, loss, left = of_seed.new_state(self.layout), 0.0, self.experiment.train.steps
        while left:
            n = min(self.experiment.log.every, left)
            state, metrics = self.steps(state, numbers, np.int32(n))
            loss, left = float(metrics["loss_sum"][:n].sum() / metrics["weight_sum"][:n].sum()), left - n
        return {"train_loss": loss, **self.experiment.task.test(self.evaluator(state.params))}


def trials_of(kind: Kind, metric: str) -> Iterator[Row]:
    """Yields what each trial of a kind found: its verdict, pairs, seconds, p, and effect."""
    first, other = Runs(kind.first), Runs(kind.other)
    for number in range(kind.trials):
        differences: list[float] = []
        seconds = 0.0
        for pair in range(number * kind.seeds, (number + 1) * kind.seeds):  # no two trials of a kind share a run
            seeds = (2 * pair, 2 * pair + 1) if kind.two_seeds else (pair, pair)
            runs = first[seeds[0]], other[seeds[1]]
            differences.append(runs[1][metric] + kind.shift - runs[0][metric])
            seconds += runs[0]["seconds"] + runs[1]["seconds"]
            found = evidence(differences, LEVEL)
            if found.is_clear:
                break
        sign = (found.high < 0) - (found.low > 0)
        verdict = ("higher", "neither", "lower")[sign + 1]
        yield {"trial": number, "verdict": verdict, "pairs": found.n, "seconds": seconds, **found._asdict()}


def summary(name: str, metric: str, rows: list[Row], kind: Kind) -> Row:
    """Returns a row of the table: how many trials found a difference, with the interval that their number allows."""
    wrong = name == "null"
    right = sum(row["verdict"] == ("neither" if wrong else "lower") for row in rows)
    clear = len(rows) - right if wrong else right
    low, high = binomial_interval(clear, len(rows))
    return {
        "trials": name,
        "metric": metric,
        "number": len(rows),
        "lower": sum(row["verdict"] == "lower" for row in rows),
        "higher": sum(row["verdict"] == "higher" for row in rows),
        "share": f"{clear / len(rows):.3f} ({low:.3f} to {high:.3f})",
        "pairs, median": statistics.median(row["pairs"] for row in rows),
        "most": max(row["pairs"] for row in rows),
        "at most": kind.seeds,
        "minutes, mean": statistics.fmean(row["seconds"] for row in rows) / 60,
    }


def binomial_interval(k: int, n: int) -> tuple[float, float]:
    """Returns the shares that k of n do not reject at 0.05 (Clopper and Pearson 1934)."""

    def at_most(k: int, share: float) -> float:
        return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k + 1))

    grid = [i / 10_000 for i in range(10_001)]
    low = next((share for share in grid if 1 - at_most(k - 1, share) > 0.025), 1.0)
    high = next((share for share in reversed(grid) if at_most(k, share) > 0.025), 0.0)
    return low, high


def true_effect() -> dict[str, float]:
    """Returns mean and standard error of the change's effect over all pairs of the trials."""
    runs = [Runs(name).found for name in ("characters", "characters_changed")]
    values = [runs[1][seed]["test_loss"] - runs[0][seed]["test_loss"] for seed in runs[0].keys() & runs[1].keys()]
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"pairs": len(values), "effect": statistics.fmean(values), "standard_error": error}


def together(n: int = 32, n_alone: int = 4) -> None:
    """Writes the seconds of n runs by one process, and those of some processes of a run each.

    Seconds of the processors are what counts, because other work on the machine does not change them.
    """
    path = RESULTS / "together.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"alone": []}

    def seconds(*arguments: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-P", "-m", "fxf", *arguments, f"--workdir={folder}/runs", "--json"]
            started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            figures = {"cpu": round(cpu, 3), "wall": round(time.perf_counter() - started, 3)}
            return figures | {"runs": 2 * json.loads(printed).get("pairs", 0.5)}

    config = "--config=reversal:example0"
    if "together" not in found:
        seconds("train", config)  # so that the compiled programs are kept for all
        found["together"] = seconds("try", config, "--null", f"--seeds={n // 2}", "--minutes=60")
    while len(found["alone"]) < n_alone:
        write_atomically(path, json.dumps(found | made_by(), indent=2) + "\n")
        found["alone"].append(seconds("train", config, f"--config.seed={len(found['alone'])}"))
    of_n = statistics.fmean(run["cpu"] for run in found["alone"]) * found["together"]["runs"]
    found["ratio"] = round(found["together"]["cpu"] / of_n, 3)
    write_atomically(path, json.dumps(found | made_by(), indent=2) + "\n")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    rows: list[Row] = []
    for name, kind in TRIALS.items():
        for metric in kind.metrics:
            path = RESULTS / f"{name}_{metric}.csv"
            if name in ONLY.value:
                found = []
                for row in trials_of(kind, metric):
                    found.append(row)
                    print(name, metric, row["trial"], row["verdict"], row["pairs"], f"{row['p']:.3g}", flush=True)
                write_atomically(path, to_csv(found))
            if path.exists():
                with path.open() as file:
                    read: list[Row] = [
                        {**row, "pairs": int(row["pairs"]), "seconds": float(row["seconds"])}
                        for row in csv.DictReader(file)
                    ]
                rows.append(summary(name, metric, read, kind))
    record: dict[str, Any] = {"level": LEVEL, "table": rows}
    if (RESULTS / "changed_test_loss.csv").exists():
        record["effect_of_the_change"] = true_effect()
    if "together" in ONLY.value:
        together()
    write_atomically(RESULTS / "table.json", json.dumps(record, indent=2) + "\n")
    write_atomically(RESULTS / "table.md", to_markdown(rows, rows[0] if rows else ()))
    print(to_markdown(rows, rows[0] if rows else ()))


if __name__ == "__main__":
    cli.run(main)

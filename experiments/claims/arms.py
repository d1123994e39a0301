"""The arms of the paired claims: configs that differ in what a claim is about, each trained with several seeds.

An arm with `rates` is first tuned with `TUNING` seeds per rate; while the best rate is the lowest or the highest tried,
half or twice that rate is tried too. The measured runs have other seeds and the best rate. So each arm gets the same
effort, and both a lower and a higher rate are worse than its own. An arm without `rates` has one rate.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import fxf
from fxf.base.errors import DivergedError
from fxf.runs import configs, run
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import ProgramCache, build

SEEDS = 8
TUNING = (100, 101)
RATE, MOST_RATES = "optimizer.learning_rate", 7
RATES = (6e-3, 1.2e-2, 2.4e-2)
NOT_FINITE = 99.0  # the metric of a tuning run whose loss was not finite
Changes = Mapping[str, Any]
QUIET: Changes = {"log.tensorboard": False, "log.report": False}


class Arm(NamedTuple):
    """A config with changed keys.

    Attributes:
      scorings: other ways to score the trained runs: changed keys by name.
      rates: learning rates to choose from by `figure`, each twice the one before.
      figure: a metric of result.json; lower is better.
      faster: also train at this multiple of the rate; `harm` is how much worse the metric then is.
    """

    config: str
    changes: Changes
    scorings: Mapping[str, Changes] = {}
    rates: Sequence[float] = ()
    figure: str = "test_loss"
    faster: float = 0


def _small(length: int, **model: Any) -> dict[str, Any]:
    """Returns the keys of a small character model of the phrase book: 250 steps of 8 windows."""
    sizes = {"n_layers": 2, "d_model": 64, "d_ff": 192, "n_heads": 4, "max_len": length, "positions": "sinusoidal"}
    return {
        "data.test": 0.02,
        "task.length": length,
        "train.steps": 250,
        "train.batch_size": 8,
        "optimizer.warmup_steps": 20,
        **{f"model.{name}": value for name, value in {**sizes, **model}.items()},
    }


def _deep(block: str, warmup: int) -> dict[str, Any]:
    """Returns the keys of eight blocks, trained with or without a warm-up."""
    return {**_small(64, n_layers=8, block=block, scan_blocks=True), "optimizer.warmup_steps": warmup}


_BASE = _small(64)
_SHORT = {"model.max_len": 128, "train.batch_size": 16}
_LONG = {"long": {"task.length": 128}}
_WORDS = {
    **{"model.n_layers": 2, "model.d_model": 64, "model.d_ff": 192, "model.max_len": 64, "task.length": 64},
    **{"model.positions": "sinusoidal", "data.test": 0.02, "train.steps": 250, "train.batch_size": 8},
    # Without the scale, embeddings are small beside the sinusoids, and tied ones start too small.
    **{"optimizer.warmup_steps": 20, "model.scaled_embeddings": True},
}
_TRANSLATION = {
    **{"model.n_layers": 1, "model.d_model": 64, "model.d_ff": 128, "train.steps": 300, "train.evaluate_every": 300},
    **{"data.batch_tokens": 1024, "checkpoint.every": 0},
}
_RECALL = {
    **{"task.n_tokens": 20, "task.max_length": 10, "task.longer": 0, "task.examples": 1000, "model.max_len": 22},
    **{"model.n_layers": 2, "train.steps": 600, "train.batch_size": 32, "checkpoint.every": 0},
}
_SUMS = {"task.base": 10, "task.delay": 3}


def _characters(faster: float = 0, rates: Sequence[float] = RATES, **keys: Any) -> Arm:
    """Returns a tuned arm: the small character model with changed model keys."""
    return Arm("characters", {**_BASE, **{f"model.{name}": value for name, value in keys.items()}}, {}, rates,
               faster=faster)  # fmt: skip


ARMS: dict[str, Arm] = {
    "base": _characters(faster=10),
    "qk_norm": _characters(faster=10, qk_norm=True),
    "gelu": _characters(activation="gelu"),
    "swiglu": _characters(gated=True, activation="silu", d_ff=128),
    "rms": _characters(norm="rms"),
    "rotary": _characters(positions="rotary"),
    "muon": Arm("characters", {**_BASE, "optimizer.name": "muon"}, rates=(7.5e-3, 1.5e-2, 3e-2)),
    "one_kv_head": _characters(n_kv_heads=1),
    "no_biases": _characters(attention_bias="none", feed_forward_bias=False, final_bias=False),
    "separate": Arm("documents", _WORDS, rates=RATES),
    "tied": Arm("documents", {**_WORDS, "model.tied_embeddings": True}, rates=RATES),
    "base_one_rate": Arm("characters", _BASE),
    "no_positions": Arm("characters", {**_BASE, "model.positions": "none"}),
    "alibi": Arm("characters", {**_small(32, positions="alibi"), **_SHORT}, _LONG),
    "sinusoidal": Arm("characters", {**_small(32), **_SHORT}, _LONG),
    "pre_norm": Arm("characters", _deep("pre_norm", 0)),
    "pre_norm_warmup": Arm("characters", _deep("pre_norm", 60)),
    "post_norm": Arm("characters", _deep("post_norm", 0)),
    "post_norm_warmup": Arm("characters", _deep("post_norm", 60)),
    "translation": Arm("translation", _TRANSLATION, {"beam": {"decode.beam_width": 5}}),
    "smoothed": Arm("translation", {**_TRANSLATION, "train.label_smoothing": 0.1}),
    "softmax": Arm("reversal", _RECALL),
    "linear": Arm("reversal", {**_RECALL, "model.attention": "linear"}),
    "softmax_sums": Arm("studies/expressive", _SUMS),
    "expressive_sums": Arm("studies/expressive", {**_SUMS, "model.attention": "expressive"}),
}


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Tunes an arm, trains it with each seed, and returns config, tuning and the metrics of its runs."""
    arm, kept = ARMS[name], ProgramCache()
    about: dict[str, Any] = {"config": arm.config, "changes": dict(arm.changes)}
    if arm.rates:

        def loss(rate: float) -> float:
            tried = [_run(at(arm, rate), seed, folder / f"rate_{rate:g}_seed_{seed}", kept) for seed in TUNING]
            return fmean(run.get(arm.figure, NOT_FINITE) for run in tried)

        about["tuning"] = tuned(loss, arm.rates)
        arm = at(arm, best_rate(about["tuning"]))
        about["changes"] = dict(arm.changes)
    runs = [_run(arm, seed, folder / f"seed_{seed}", kept) for seed in range(SEEDS)]
    if arm.faster:
        fast = at(arm, arm.faster * arm.changes[RATE])
        for run in runs:
            harmed = _run(fast, run["seed"], folder / f"fast_seed_{run['seed']}", kept)
            # A run with a non-finite loss counts as a uniform guess.
            run["harm"] = harmed.get(arm.figure, math.log(run["vocabulary"])) - run[arm.figure]
    return {**about, "runs": runs}


def at(arm: Arm, rate: float) -> Arm:
    """Returns the arm with this learning rate."""
    return arm._replace(changes={**arm.changes, RATE: rate})


def tuned(loss: Callable[[float], float], rates: Sequence[float]) -> list[list[float]]:
    """Returns [rate, loss] in increasing order of rate, with more rates until the best lies between two others."""
    found = {rate: loss(rate) for rate in rates}
    while len(found) < MOST_RATES and (best := min(found, key=found.__getitem__)) in (min(found), max(found)):
        further = best / 2 if best == min(found) else 2 * best
        found[further] = loss(further)
    return [list(pair) for pair in sorted(found.items())]


def best_rate(tuning: Sequence[Sequence[float]]) -> float:
    return min(tuning, key=lambda pair: pair[1])[0]


def is_bracketed(results: Mapping[str, Any]) -> bool:
    """Returns whether a lower and a higher rate than the best were tried, both worse."""
    rates = [rate for rate, _ in results.get("tuning", ())]
    return bool(rates) and min(rates) < best_rate(results["tuning"]) < max(rates)


def _run(arm: Arm, seed: int, folder: Path, kept: ProgramCache) -> dict[str, Any]:
    """Returns a run's metrics; trains it unless the folder has it."""
    config, changes = fxf.read_config(arm.config), {**QUIET, **arm.changes, "seed": seed}
    config.update_from_flattened_dict(changes)
    origin = configs.origin_of(arm.config, changes)
    try:
        figures = _numbers(run.train(config.to_dict(), folder, origin, kept=kept))
    except DivergedError as error:
        return {"seed": seed, "error": str(error)}
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["validation_loss"] for record in records if "validation_loss" in record]
    figures |= {"validation_loss": losses[-1]} if losses else {}
    for scoring, keys in arm.scorings.items():
        figures |= {f"{scoring}/{name}": value for name, value in _numbers(_scored(folder, config, keys)).items()}
    return {"seed": seed, **figures}


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Returns a result's numbers, without those that depend on the machine's speed."""
    slow = ("seconds", "per_second", "bytes", "goodput")
    return {name: value for name, value in result.items() if isinstance(value, int | float) and not name.endswith(slow)}


def _scored(folder: Path, config: Any, changes: Changes) -> dict[str, Any]:
    """Returns the test metrics of a trained run with changed keys."""
    changed = config.copy_and_resolve_references()
    changed.update_from_flattened_dict(changes)
    experiment = build(changed)
    evaluator = Evaluators(experiment, experiment.layout_of_one_copy())
    return experiment.task.test(evaluator(fxf.load(folder).params))

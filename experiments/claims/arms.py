"""The arms of the paired claims: configs that differ in what a claim is about, each trained with several seeds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fxf
from fxf.errors import UserError
from fxf.runs import configs, guests, run
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import build
from fxf.runs.programs import Kept
from fxf.training.log import Clock

SEEDS = 8
Changes = Mapping[str, Any]
QUIET: Changes = {"log.tensorboard": False, "log.report": False}


class Arm(NamedTuple):
    """A config with some keys changed.

    Attributes:
      scorings: other ways to score the trained runs: the keys that each changes, by name.
    """

    config: str
    changes: Changes
    scorings: Mapping[str, Changes] = {}


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
    """Returns the keys of eight blocks, whose training begins with or without a warm-up."""
    return {**_small(64, n_layers=8, block=block, scan_blocks=True), "optimizer.warmup_steps": warmup}


_BASE = _small(64)
_FAST = {"optimizer.learning_rate": 4e-2}  # ten times the rate of the others
_SHORT = {"model.max_len": 128, "train.batch_size": 16}
_LONG = {"long": {"task.length": 128}}
_WORDS = {
    **{"model.n_layers": 2, "model.d_model": 64, "model.d_ff": 192, "model.max_len": 64, "task.length": 64},
    **{"model.positions": "sinusoidal", "data.test": 0.02, "train.steps": 250, "train.batch_size": 8},
    "optimizer.warmup_steps": 20,
}
_TRANSLATION = {
    **{"model.n_layers": 1, "model.d_model": 64, "model.d_ff": 128, "train.steps": 300, "train.evaluate_every": 300},
    **{"data.batch_tokens": 1024, "checkpoint.every": 0},
}
# Layers of configs/studies. They stand at the head of the blocks, as a block more.
_TURNS = {
    **{"model.blocks": "turns:Turns(); attention+feed_forward", "model.attention": "turns:OfTokens"},
    "model.positions": "none",
}
_WALKS = {
    **{"model.blocks": "walks:Walks(); attention+feed_forward", "model.attention": "walks:Tape"},
    **{"model.layers": {"Walks": {"n_walks": 144}}, "model.positions": "none"},
}
_RECALL = {
    **{"task.n_tokens": 20, "task.max_length": 10, "task.longer": 0, "task.examples": 1000, "model.max_len": 22},
    **{"model.n_layers": 2, "train.steps": 600, "train.batch_size": 32, "checkpoint.every": 0},
}
_SUMS = {"task.base": 10, "task.delay": 3}

ARMS: dict[str, Arm] = {
    "base": Arm("characters", _BASE),
    "swiglu": Arm("characters", {**_BASE, "model.gated": True, "model.activation": "silu", "model.d_ff": 128}),
    "gelu": Arm("characters", {**_BASE, "model.activation": "gelu"}),
    "rms": Arm("characters", {**_BASE, "model.norm": "rms"}),
    "one_kv_head": Arm("characters", {**_BASE, "model.n_kv_heads": 1}),
    "no_biases": Arm(
        "characters",
        {**_BASE, "model.attention_bias": "none", "model.feed_forward_bias": False, "model.final_bias": False},
    ),
    "rotary": Arm("characters", {**_BASE, "model.positions": "rotary"}),
    "turns": Arm("characters", {**_BASE, **_TURNS, "model.n_layers": 3}),
    "walks": Arm("characters", {**_BASE, **_WALKS, "model.n_layers": 3}),
    "no_positions": Arm("characters", {**_BASE, "model.positions": "none"}),
    "muon": Arm("characters", {**_BASE, "optimizer.name": "muon", "optimizer.learning_rate": 1.5e-2}),
    "fast_rate": Arm("characters", {**_BASE, **_FAST}),
    "fast_rate_qk_norm": Arm("characters", {**_BASE, **_FAST, "model.qk_norm": True}),
    "alibi": Arm("characters", {**_small(32, positions="alibi"), **_SHORT}, _LONG),
    "sinusoidal": Arm("characters", {**_small(32), **_SHORT}, _LONG),
    "pre_norm": Arm("characters", _deep("pre_norm", 0)),
    "pre_norm_warmup": Arm("characters", _deep("pre_norm", 60)),
    "post_norm": Arm("characters", _deep("post_norm", 0)),
    "post_norm_warmup": Arm("characters", _deep("post_norm", 60)),
    "separate": Arm("documents", _WORDS),
    "tied": Arm("documents", {**_WORDS, "model.tied_embeddings": True}),
    "translation": Arm("translation", _TRANSLATION, {"beam": {"decode.beam_width": 5}}),
    "smoothed": Arm("translation", {**_TRANSLATION, "train.label_smoothing": 0.1}),
    "softmax": Arm("reversal", _RECALL),
    "linear": Arm("reversal", {**_RECALL, "model.attention": "linear"}),
    "softmax_sums": Arm("studies/expressive", _SUMS),
    "expressive_sums": Arm("studies/expressive", {**_SUMS, "model.attention": "expressive"}),
}


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Trains an arm with each seed, and returns its config and the figures of its runs."""
    guests.search(configs.folder() / "studies")
    arm, kept = ARMS[name], Kept()
    runs = [_run(arm, seed, folder / f"seed_{seed}", kept) for seed in range(SEEDS)]
    return {"config": arm.config, "changes": dict(arm.changes), "runs": runs}


def _run(arm: Arm, seed: int, folder: Path, kept: Kept) -> dict[str, Any]:
    """Returns the figures of a run, trained unless it is in the folder already."""
    config, changes = fxf.read_config(arm.config), {**QUIET, **arm.changes, "seed": seed}
    config.update_from_flattened_dict(changes)
    origin, clock = configs.origin_of(arm.config, changes), Clock()
    try:
        figures = _numbers(run.train(config.to_dict(), folder, clock, origin, kept=kept))
    except UserError as error:
        return {"seed": seed, "error": str(error)}  # the loss was not finite
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["validation_loss"] for record in records if "validation_loss" in record]
    figures |= {"validation_loss": losses[-1]} if losses else {}
    for scoring, keys in arm.scorings.items():
        figures |= {f"{scoring}/{name}": value for name, value in _numbers(_scored(folder, config, keys)).items()}
    return {"seed": seed, **figures}


def _numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of a result that do not depend on the speed of the machine."""
    slow = ("seconds", "per_second", "bytes")
    return {name: value for name, value in result.items() if isinstance(value, int | float) and not name.endswith(slow)}


def _scored(folder: Path, config: Any, changes: Changes) -> dict[str, Any]:
    """Returns the figures of the test of a trained run with some keys changed."""
    changed = config.copy_and_resolve_references()
    changed.update_from_flattened_dict(changes)
    experiment = build(changed)
    evaluator = Evaluators(experiment, Clock(), experiment.layout_of_one_copy())
    return experiment.task.test(evaluator(fxf.load(folder).params))

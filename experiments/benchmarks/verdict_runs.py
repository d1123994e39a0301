"""Runs for `experiments.benchmarks.verdicts`: pools of one config with many seeds, and planted effects."""

import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.runner import RESULTS, ROOT
from fxf.base.errors import UserError
from fxf.layers.attention import Attention
from fxf.layers.layer import Places
from fxf.reports.tables import Row
from fxf.runs import configs, guests
from fxf.runs.experiment import Experiment, build
from fxf.training.state import init_state, run_keys
from fxf.training.step import train_step

KEPT = RESULTS / "verdicts"
SEEDS, AT_ONCE = 256, 32
TEST_SEED, TEST_BATCHES = 2**31 - 9, 8
Changes = Mapping[str, Any]

_TINY = {"model.n_layers": 1, "model.n_heads": 2, "model.d_model": 16, "model.d_ff": 32}
_QUIET = {"log.tensorboard": False, "log.report": False, "checkpoint.every": 0}
_TEXT = {
    **{"task.length": 32, "train.steps": 150, "train.batch_size": 8, "model.n_layers": 1, "model.n_heads": 2},
    **{"model.d_model": 32, "model.d_ff": 64, "model.max_len": 32, "model.positions": "sinusoidal"},
    **{"optimizer.learning_rate": 3e-2, "optimizer.warmup_steps": 20, "data.test": 0.02},
}
_REVERSAL = {**_TINY, "train.steps": 250, "train.batch_size": 16, "optimizer.learning_rate": 1e-2}


class Pool(NamedTuple):
    """A config, changed keys, and the metrics to keep."""

    config: str
    changes: Changes
    figures: tuple[str, ...]


POOLS = {
    # The rate is high: one run in twenty stays below exact match 1, and one of 256 below 0.5.
    "reversal": Pool(
        "reversal:example0",
        {**_REVERSAL, "train.steps": 120, "optimizer.learning_rate": 1e-1},
        ("loss", "exact"),
    ),
    "text": Pool(
        "characters", {**_TEXT, "model.d_model": 16, "model.d_ff": 32, "optimizer.learning_rate": 1e-2}, ("loss",)
    ),
    "recall": Pool(
        "studies/recall",
        {**_TINY, "model.n_layers": 2, "model.n_heads": 1, "model.d_model": 32, "task.pairs": 2}
        | {"train.steps": 400, "train.batch_size": 16, "optimizer.learning_rate": 1e-2},
        ("loss", "accuracy"),
    ),
}


def config_of(name: str, changes: Changes) -> dict[str, Any]:
    """Returns a shipped config with some keys changed."""
    guests.search(configs.folder() / "studies")
    guests.search(ROOT / "experiments/benchmarks")
    config = fxf.read_config(name)
    config.update_from_flattened_dict({**_QUIET, **changes})
    return config.to_dict()


def train_pool(name: str) -> list[Row]:
    """Returns the metrics of a pool's runs by seed; seeds train together in one program."""
    pool = POOLS[name]
    run = jax.jit(jax.vmap(_run_of(build(config_of(pool.config, pool.changes)))))
    rows: list[Row] = []
    for start in range(0, SEEDS, AT_ONCE):
        seeds = np.arange(start, start + AT_ONCE, dtype=np.uint32)
        found = jax.device_get(run(seeds))
        rows += [
            {"seed": int(seed), **{name: float(found[name][i]) for name in pool.figures}}
            for i, seed in enumerate(seeds)
        ]
    return rows


def _run_of(experiment: Experiment) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Returns a function from a seed to a run's scores on held-out batches, which are the same for all seeds.

    Exact match is that of greedy decoding: an answer is exact if and only if each token is the most probable one after
    the correct ones.
    """
    model, task = experiment.model, experiment.task
    trainer = experiment.trainer(experiment.layout())

    def run(seed: jax.Array) -> dict[str, jax.Array]:
        keys, numbers = run_keys(seed), experiment.hyperparameters()
        state = init_state(model, trainer.optimizer, keys.params)

        def step(state: Any, _: None) -> tuple[Any, None]:
            batch = task.batch(jax.random.fold_in(keys.data, state.step), state.step)
            return train_step(trainer, state, batch, numbers)[0], None

        state, _ = jax.lax.scan(step, state, None, length=experiment.train.steps)
        return scores(state.params)

    def scores(params: Any) -> dict[str, jax.Array]:
        tested = run_keys(TEST_SEED).data
        steps = [(jax.random.fold_in(tested, i), jnp.int32(i)) for i in range(TEST_BATCHES)]
        found = [_scores(model, params, task.batch(*step)) for step in steps]
        return {name: jnp.stack([each[name] for each in found]).mean() for name in found[0]}

    return run


def _scores(model: Any, params: Any, batch: Any) -> dict[str, jax.Array]:
    logits_BTV, weights = model.apply(params, batch).astype(jnp.float32), batch["weights"]
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits_BTV), batch["targets"][..., None], -1)[..., 0]
    right = (logits_BTV.argmax(-1) == batch["targets"]) * weights
    exact = ((right == weights).all(-1) * (weights.sum(-1) > 0)).sum() / jnp.maximum(1, (weights.sum(-1) > 0).sum())
    return {"loss": -(log_p * weights).sum() / weights.sum(), "exact": exact, "accuracy": right.sum() / weights.sum()}


class Unmasked(Attention):
    """Attention without its causal mask: tokens see later ones, if there are any."""

    def seen(self, queries: Places, keys: Places, reads: Any = None) -> Any:
        return super().seen(queries.replace(order=None), keys, reads)


class Planted(NamedTuple):
    """A trial with a known answer: a base config, the keys that the other changes, and the trial's settings."""

    config: str
    base: Changes
    changes: Changes
    rules: Mapping[str, Any]


_OF_REVERSAL = {"metric": "exact_match", "rates": 1, "whole": True}
_OF_TEXT = {"metric": "test_loss", "rates": 1, "whole": True}
_GELU = Planted("characters", _TEXT, {"model.activation": "gelu"}, {**_OF_TEXT, "rates": 3})
PLANTED: dict[str, Planted] = {
    "rate": Planted("characters", _TEXT, {"optimizer.learning_rate": 12e-2}, _OF_TEXT),
    "mask": Planted("reversal:example0", _REVERSAL, {"model.attention": "verdict_runs:Unmasked"}, _OF_REVERSAL),
    "width": Planted("characters", _TEXT, {"model.d_model": 16, "model.d_ff": 32}, _OF_TEXT),
    **{f"gelu_{seed}": _GELU._replace(base={**_TEXT, "seed": seed}) for seed in (0, 100, 200)},
}


def run_planted(name: str, workers: int = 2) -> dict[str, Any]:
    """Returns the outcome of a trial of a planted effect; its runs stay in runs/planted until it has ended."""
    planted, workdir = PLANTED[name], ROOT / "runs/planted" / name
    first = config_of(planted.config, planted.base)
    other = config_of(planted.config, {**planted.base, **planted.changes})
    found = fxf.trial(first, other, workdir, workers=workers, minutes=60, **planted.rules)
    if found.stopped.endswith("are spent"):
        raise UserError(f"{found.stopped}; the same command resumes it")
    shutil.rmtree(workdir)
    return found.figures()

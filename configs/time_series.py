"""Delayed-sum time series (seed 002, XOR code): numbers 0 to 9 and delay 1, or any other base and delay.

fxf train --config=time_series --workdir=runs/time_series
fxf train --config=time_series --config.task.base=16 --config.task.delay=5 --workdir=runs/x

It reaches exact_match 1 in seconds of one core, half of them for compilation. The sweep tries other delays and bases.
Long delays in large bases take longest: one number alone says nothing about a sum, so until the model attends to both
numbers, the loss stays that of a guess. With the argument `linear` it has the seed's linear attention, which has no
feature map and the memory W_m = W_m−1 + V_m ⊗ K_m.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

EXPECTED = {name: {"exact_match": 1} for name in ("", "linear")}

ARGUMENTS = ("default", "linear")


def get_config(argument: str = "default") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    config = default_config(task="primer.time_series:TIME_SERIES")
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 1, 64, 256, 8
    config.model.max_len = config.task.length
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 6e-3, "cosine", 20
    config.optimizer.name, config.optimizer.weight_decay = "adamw", 0.1
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 1200, 64
    if argument == "linear":
        config.model.attention, config.model.feature_map = "linear", "none"
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid({"task.delay": range(1, 6), "task.base": range(2, 17)}):
        add(**point)

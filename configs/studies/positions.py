"""Study: with which positions does a decoder, trained to reverse at most 10 symbols, reverse 15, 20, 25 and 30?

fxf sweep --config=studies/positions --workdir=runs/studies/positions --workers=1
"""

from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

PLAIN, VARIED = ("none", "sinusoidal", "rotary", "alibi"), ("sinusoidal", "rotary")


def get_config() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.n_tokens, config.task.max_length, config.task.examples = 20, 10, 200
    config.task.longer, config.task.longer_every = 20, 5
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 64, 128, 4
    config.model.max_len, config.model.norm_epsilon_in, config.model.scan_blocks = 62, "variance", True
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 5e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 1500, 32, 250
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    kinds: list[dict[str, Any]] = [
        *({"model.positions": kind} for kind in PLAIN),
        *({"model.positions": kind, "model.position_range": 128, "model.position_gap": 2} for kind in VARIED),
        *({"model.positions": kind, "model.position_stretch": 3.0} for kind in VARIED),
    ]
    for kind in kinds:
        for point in grid({"optimizer.learning_rate": [5e-3, 1e-2], "seed": range(2)}):
            add(**kind, **point)

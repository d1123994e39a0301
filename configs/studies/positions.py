"""Study: which positions let a decoder, trained to reverse at most 20 symbols, reverse 30, 40, 50 and 60?

fxf sweep --config=studies/positions --workdir=runs/studies/positions --workers=2
"""

from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config

PLAIN = ("none", "learned", "sinusoidal", "rotary", "alibi")


def get_config() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.max_length, config.task.longer, config.task.longer_every, config.task.examples = 20, 40, 10, 1000
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 3, 64, 256, 4
    config.model.max_len, config.model.norm_epsilon_in = 122, "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 3e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 1500, 64
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    drawn = {"model.position_range": 1024, "model.position_gap": 8}
    kinds: list[dict[str, Any]] = [
        *({"model.positions": kind} for kind in PLAIN),
        *({"model.positions": kind, **drawn} for kind in ("learned", "sinusoidal", "rotary")),
        *({"model.positions": kind, "model.position_stretch": 3.0} for kind in ("sinusoidal", "rotary")),
    ]
    for kind in kinds:
        add(**kind)

"""Study: can a decoder reverse 1,000 symbols after training on at most 40, if tokens make the positions of attention?

fxf train --config=studies/turns --workdir=runs/turns
fxf sweep --config=studies/turns --workdir=runs/studies/turns --workers=2 --together=10
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

LONGEST = 1000


def get_config() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.max_length, config.task.longer, config.task.longer_every = 40, LONGEST - 40, 100
    config.task.examples = 100
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 1, 64, 128, 4
    config.model.positions, config.model.window, config.model.max_len = "turns", 8, 2 * LONGEST + 2
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 5e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.model.turns_settle_at = 800, 64, 400
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    at_most_20 = {"task.max_length": 20, "task.longer": LONGEST - 20}
    rotary = {"model.positions": "rotary", "model.turns_settle_at": 0}
    mirrored = {**rotary, "task.mirrored": True, "model.window": 2}
    for keys, n_seeds in (
        ({}, 5),
        (at_most_20, 5),
        ({**at_most_20, **mirrored}, 5),
        ({"model.window": 0}, 2),
        (rotary, 2),
    ):
        for point in grid({"seed": range(n_seeds)}):
            add(**keys, **point)

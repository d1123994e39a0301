"""Study: do models of widths 64 to 512 share their best learning rate, with and without model.base_width?

fxf sweep --config=studies/width --workdir=runs/studies/width --workers=1
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

BASE, HEAD_DIM = 64, 16
SEEDS = {512: 1, 256: 1, 128: 2, 64: 2}  # number of seeds by width


def sizes(width: int) -> dict[str, int]:
    """Returns the keys that grow with the width."""
    return {"model.d_model": width, "model.d_ff": 2 * width, "model.n_heads": width // HEAD_DIM}


def get_config() -> ConfigDict:
    config = default_config(task="language_model")
    config.data.test = 0.005
    config.task.length = config.model.max_len = 64
    config.model.n_layers, config.model.head_dim, config.model.positions = 2, HEAD_DIM, "rotary"
    config.model.d_model, config.model.d_ff, config.model.n_heads = sizes(BASE).values()
    config.model.norm_epsilon_in = "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 2**-6, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size = 100, 4
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for width, n_seeds in SEEDS.items():
        for base, lowest in ((BASE, -8), (0, -10)):
            if width > BASE or base:  # at its own width the base is the ordinary model
                rates = [2.0**k for k in range(lowest, lowest + 5)]
                for point in grid({"optimizer.learning_rate": rates, "seed": range(n_seeds)}):
                    add(**sizes(width), **{"model.base_width": base}, **point)

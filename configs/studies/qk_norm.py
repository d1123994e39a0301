"""Study: does normalizing queries and keys make the final loss less sensitive to the learning rate?

fxf sweep --config=studies/qk_norm --workdir=runs/studies/qk_norm --workers=1
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

WIDTHS = (64, 128)


def get_config() -> ConfigDict:
    config = default_config(task="language_model")
    config.data.test = 0.005
    config.task.length = config.model.max_len = 64
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 64, 128, 2
    config.model.positions, config.model.norm_epsilon_in = "rotary", "variance"
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size = 150, 4
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    rates = [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1]
    for width in WIDTHS:
        sizes = {"model.d_model": width, "model.d_ff": 2 * width}
        for point in grid({"model.qk_norm": [False, True], "optimizer.learning_rate": rates, "seed": range(2)}):
            add(**sizes, **point)

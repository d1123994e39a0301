"""Study: does a law fitted to small runs forecast the loss of a much larger run?

python -m experiments.studies.forecast.text fra.txt sentences.txt
fxf sweep --config=studies/forecast --config.data.path=sentences.txt --workdir=runs/studies/forecast

fra.txt has Tatoeba's English and French sentences, from manythings.org/anki; it does not come with fxf.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

BASE, HEAD_DIM, N_LAYERS = 64, 16, 2
WIDTHS, LARGE = (32, 48, 64, 80, 96), 240  # widths that the law is fitted to, and the width that it forecasts
TOKENS_PER_WEIGHT = 20
ROWS, LENGTH = 16, 128  # of a batch


def sizes(width: int) -> dict[str, int]:
    """Returns the keys that grow with the width; the weights of the table of characters do not count."""
    weights = 12 * N_LAYERS * width**2
    return {
        "model.d_model": width,
        "model.d_ff": 4 * width,
        "model.n_heads": width // HEAD_DIM,
        "train.steps": round(TOKENS_PER_WEIGHT * weights / (ROWS * LENGTH)),
    }


def get_config() -> ConfigDict:
    config = default_config(task="language_model")
    config.data.validation, config.data.test = 0.01, 0.02
    config.task.length = config.model.max_len = LENGTH
    config.task.bos = False
    config.model.n_layers, config.model.head_dim, config.model.positions = N_LAYERS, HEAD_DIM, "rotary"
    config.model.d_model, config.model.d_ff, config.model.n_heads, config.train.steps = sizes(BASE).values()
    config.model.base_width, config.model.tied_embeddings, config.model.norm_epsilon_in = BASE, True, "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 2**-7, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.batch_size = ROWS
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for width in WIDTHS:
        for point in grid({"seed": range(3)}):
            add(**sizes(width), **point)
    add(**sizes(LARGE), seed=0)

"""Sequence reversal (seed 004): 50 symbols, lengths 1 to 25, or one of the seed's three problems.

fxf train --config=reversal --workdir=runs/reversal
fxf sweep --config=reversal:example0 --workdir=runs/sweep --workers=2

argument            problem                                  scored, EXPECTED below
(none)              50 symbols, lengths 1 to 25              10,000 unseen sequences
short               20 symbols, lengths 1 to 8, 600 steps    the plain model beside those of configs/ideas
example0, 1, 2      the seed's, with a good recipe           all 100, 36, 336 sequences
notebook0, 1, 2     the seed's, by its notebook's procedure  a loss of at most 0.3 after notebook0's steps

The default takes two or three minutes on two cores, and an example seconds, mostly for compilation.
The sweep has 24 runs: one block or two, four learning rates, three seeds.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.base.config import one_of
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

# With seed 0.
EXPECTED = {name: {"exact_match": 1} for name in ("", "example0", "example1", "example2")}

# Seed 004's demo examples: number of symbols, minimum and maximum length, and the steps of its notebook.
EXAMPLES = {"0": (10, 2, 2, 6000), "1": (3, 2, 3, 6000), "2": (4, 2, 4, 16000)}
ARGUMENTS = ("default", "short", *(f"{kind}{number}" for kind in ("example", "notebook") for number in EXAMPLES))


def get_config(argument: str = "default") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    if argument in ("default", "short"):
        return _short() if argument == "short" else _default()
    kind, number = argument[:-1], argument[-1:]
    n_tokens, min_length, max_length, steps = EXAMPLES[number]
    config = default_config(task="reversal")
    config.task.n_tokens, config.task.min_length, config.task.max_length = n_tokens, min_length, max_length
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 128, 256, 2
    config.model.max_len = 2 * max_length + 3
    if kind == "notebook":
        config.model.init, config.model.block = "uniform", "idea"
        config.optimizer.name, config.optimizer.learning_rate = "sgd", 0.001
        config.train.steps, config.train.batch_size = steps, 4
        return config
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 2e-3, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = {"0": 200, "1": 500, "2": 900}[number], 16
    return config


def sweep(add: Callable) -> None:
    rates = [1e-4, 2e-4, 4e-4, 8e-4]
    for point in grid({"model.n_layers": [1, 2], "optimizer.learning_rate": rates, "seed": range(3)}):
        add(**point)


def _default() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.longer = 5
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 64, 128, 4
    config.model.max_len = 2 * (25 + 5) + 2
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 5e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 2500, 64  # with 1,500 not every seed ends near 1
    config.checkpoint.every = 500
    return config


def _short() -> ConfigDict:
    config = _default()
    config.task.n_tokens, config.task.max_length, config.task.longer, config.task.examples = 20, 8, 4, 1000
    config.model.max_len, config.train.steps, config.train.batch_size, config.checkpoint.every = 26, 600, 32, 0
    return config

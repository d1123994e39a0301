"""Study: does a short training rank three kinds of positions as the table of Ruoss et al. 2023 does?

fxf sweep --config=studies/ranking --workdir=runs/studies/ranking --workers=1 --together=2

The encoder of problems_tape, with fewer blocks, strings and steps.
"""

from collections.abc import Callable, Sequence

from deletang.problems import PROBLEMS
from ml_collections import ConfigDict

from fxf.runs.configs import read_config
from fxf.sweeps.points import grid

KINDS = ("none", "sinusoidal", "alibi")
PROBLEMS_OF_CLAIM = ("bucket_sort", "even_pairs", "reverse_string", "cycle_navigation", "odds_first")
OTHERS = tuple(name for name in PROBLEMS if name not in PROBLEMS_OF_CLAIM)  # of the third test
RATES, LONGER = (1e-3, 2e-3, 3e-3), 2400  # of the second test
FEW, MANY = 16, 128  # strings of each length if answers are long, and if they have one symbol


def get_config() -> ConfigDict:
    config = read_config("studies/problems_tape")
    config.task.score_every, config.task.longest, config.task.examples = 180, 360, FEW
    config.model.n_layers, config.model.dropout = 2, 0.0
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 3e-3, "cosine", 50
    config.train.steps, config.train.batch_size = 600, 16
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    add_kinds(add, PROBLEMS_OF_CLAIM)
    add_longer(add)
    add_kinds(add, OTHERS)


def add_kinds(add: Callable[..., None], problems: Sequence[str]) -> None:
    """Adds the points of the first test, or of the third."""
    for problem in problems:
        examples = MANY if PROBLEMS[problem].tape(40) == 1 else FEW
        for point in grid({"model.positions": KINDS, "seed": range(2)}):
            add(**{"task.problem": problem, "task.examples": examples}, **point)


def add_longer(add: Callable[..., None]) -> None:
    """Adds the points of the second test: sinusoids on bucket sort with more steps and several rates."""
    for point in grid({"optimizer.learning_rate": RATES, "seed": range(2)}):
        longer = {"train.steps": LONGER, "model.positions": "sinusoidal"}
        add(**{"task.problem": "bucket_sort", "task.examples": FEW}, **longer, **point)

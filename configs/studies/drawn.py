"""Study: do positions drawn from a larger range beat plain ones on longer strings, as Ruoss et al. 2023 found?

fxf sweep --config=studies/drawn --workdir=runs/studies/drawn --workers=1 --together=3

The encoder of problems_tape, with fewer blocks, strings and steps, and Muon instead of Adam.
"""

from collections.abc import Callable

from deletang.problems import PROBLEMS
from ml_collections import ConfigDict

from fxf.runs.configs import read_config
from fxf.sweeps.points import grid

RANGE = 2048  # the positions that are drawn from; 0 draws none
KINDS = (("sinusoidal", 0), ("rotary", 0), ("rotary", RANGE))
PROBLEMS_OF_CLAIM = ("even_pairs", "bucket_sort", "missing_duplicate", "reverse_string", "odds_first")
OTHERS = ("cycle_navigation", "stack_manipulation", "duplicate_string")  # of the second test
FEW, MANY = 32, 256  # strings of each length if answers are long, and if they have one symbol


def get_config() -> ConfigDict:
    config = read_config("studies/problems_tape")
    config.task.score_every, config.task.longest, config.task.examples = 180, 360, FEW
    config.model.n_layers, config.model.dropout, config.model.max_len = 3, 0.0, RANGE
    config.optimizer.name, config.optimizer.learning_rate = "muon", 1e-2
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 50
    config.train.steps, config.train.batch_size, config.log.every = 1500, 32, 250
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for problem in PROBLEMS_OF_CLAIM + OTHERS:
        examples = MANY if PROBLEMS[problem].tape(40) == 1 else FEW
        for positions, drawn_from in KINDS:
            kind = {"model.positions": positions, "task.position_range": drawn_from}
            for point in grid({"seed": range(3)}):
                add(**{"task.problem": problem, "task.examples": examples}, **kind, **point)

"""Study: how do walks along the tokens fare on all fifteen problems by the score of Ruoss et al. 2023?

fxf sweep --config=studies/breadth --workdir=runs/studies/breadth --workers=1

Model and training are those of studies/length. The scored lengths are near the middles of equal parts of the papers'
range.
"""

from collections.abc import Callable

from deletang.problems import PROBLEMS
from ml_collections import ConfigDict

from fxf.runs.configs import read_config
from fxf.sweeps.points import grid

# Problems with three seeds; the others have one. The last one's answers take longest to decode, so it is swept last.
SEVERAL = (
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
    *("reverse_string", "odds_first", "stack_manipulation", "binary_addition", "duplicate_string"),
)
FEW, MANY = 32, 256  # strings of each length if answers are long, and if they have one symbol


def get_config() -> ConfigDict:
    config = read_config("studies/length")
    config.task.score_every, config.task.longest = 92, 460
    config.task.examples = FEW
    return config


def sweep(add: Callable[..., None]) -> None:
    for problem in (*SEVERAL[:-1], *(name for name in PROBLEMS if name not in SEVERAL), SEVERAL[-1]):
        examples = MANY if PROBLEMS[problem].tape(40) == 1 else FEW
        for point in grid({"seed": range(3 if problem in SEVERAL else 1)}):
            add(**{"task.problem": problem, "task.examples": examples}, **point)

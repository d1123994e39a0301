"""Study: which problems does a decoder solve at 500 symbols after training on at most 40, by walks along the tokens?

fxf sweep --config=studies/length --workdir=runs/studies/length --workers=2

Walks, model and training are those of walks.py.
"""

from collections.abc import Callable

from deletang.problems import PROBLEMS
from ml_collections import ConfigDict

from fxf.runs.configs import read_config
from fxf.sweeps.points import grid

# The problems of the claim, which has five seeds of each; the others have one.
CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)


def get_config() -> ConfigDict:
    return read_config("studies/walks")


def sweep(add: Callable[..., None]) -> None:
    for problem in CLAIMED:
        for point in grid({"seed": range(5)}):
            add(**{"task.problem": problem}, **point)
    for problem in PROBLEMS:
        if problem not in CLAIMED:
            add(**{"task.problem": problem})
    for problem in CLAIMED:
        add(**{"task.problem": problem, "model.positions": "rotary", "model.n_walks": 32})

"""What counts in the answers of scored strings, and the figures that follow."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fxf.tasks.length.problem import Drawn, Problem

SHRINK = 0.8  # from one size of the arrays of scored strings to the next


class Compared(NamedTuple):
    """What a model answered to N strings of a length.

    Attributes:
      right_NU: whether the token at a place is right.
      counts_NU: the places of the answers and of their ends.
      symbols_NU: those that the papers count: an answer's end only where its length does not follow from the string's.
      found_NU: the tokens that the model gives.
    """

    right_NU: np.ndarray
    counts_NU: np.ndarray
    symbols_NU: np.ndarray
    found_NU: np.ndarray


FIGURES: dict[str, Callable[[Compared], float]] = {
    "exact_match": lambda it: float((it.right_NU | ~it.counts_NU).all(1).mean()),
    "token_accuracy": lambda it: float(it.right_NU[it.counts_NU].mean()),
    "symbol_accuracy": lambda it: float(it.right_NU[it.symbols_NU].mean()),
}


def scores(by_length: dict[str, Compared]) -> dict[str, float]:
    """Returns each figure of the lengths of training, of each longer length, and as the mean over the longer ones.

    Args:
      by_length: the suffix of the figures' names and what the model answered; first of all "", the lengths of training.
    """
    found: dict[str, float] = {}
    for name, figure in FIGURES.items():
        of_each = {f"{name}{suffix}": figure(compared) for suffix, compared in by_length.items()}
        of_longer = list(of_each.values())[1:]
        found |= of_each | ({f"{name}_longer": float(np.mean(of_longer))} if of_longer else {})
    return found


def size_of(length: int, longest: int) -> int:
    """Returns the size of the arrays in which strings of a length are scored: one of a few, each compiled once."""
    size = longest
    while int(SHRINK * size) >= length:
        size = int(SHRINK * size)
    return size


def cut(drawn: Drawn, longest: int, problem: Problem) -> Drawn:
    """Returns strings of at most this length in arrays of just that size."""
    n_answer = max(problem.tape(n) for n in range(1, longest + 1))
    return Drawn(drawn.symbols_P[:, :longest], drawn.length, drawn.answer_U[:, :n_answer], drawn.answer_length)

"""The order of an epoch's examples, and the rows of a batch that a process reads."""

import numpy as np


def shuffling(seed: int, epoch: int, source: int = 0) -> np.random.Generator:
    """Returns the random numbers of a source's epoch, from a hash of all, so that no two share an order."""
    return np.random.default_rng((seed, epoch, source))


def share(n_rows: int, process: tuple[int, int]) -> slice:
    """Returns the rows of a batch that a process reads. The batch is the same whatever the number of processes.

    Each process reads as many rows in a row, of which the last ones may be beyond the batch.

    Args:
      process: (index, count).
    """
    index, count = process
    size = -(-n_rows // count)
    return slice(index * size, (index + 1) * size)

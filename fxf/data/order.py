"""The order of an epoch's examples, and the rows of a batch that a process reads."""

import numpy as np


def shuffling(seed: int, epoch: int, source: int = 0) -> np.random.Generator:
    """Returns the generator that shuffles a source's epoch. Its seed hashes all three, so no two share an order."""
    return np.random.default_rng((seed, epoch, source))


def share(n_rows: int, process: tuple[int, int]) -> slice:
    """Returns the rows of a batch that a process reads. The batch does not depend on the number of processes.

    Each process reads the same number of consecutive rows. The last rows may lie beyond the batch.

    Args:
      process: (index, count).
    """
    index, count = process
    size = -(-n_rows // count)
    return slice(index * size, (index + 1) * size)

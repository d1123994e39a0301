"""A split of a large domain of sequences by hash: the sequences held out from training, and samples of them."""

from typing import Any

import numpy as np

SHARE = 16


def held_out(sequences: Any) -> Any:
    """Returns whether each row is held out, as one row in sixteen is. Rows are NumPy or JAX tokens, padded with 0."""
    multipliers = np.cumprod(np.full(sequences.shape[-1], 0x9E3779B1, np.uint32), dtype=np.uint32)  # modulo 2^32
    mixed = (sequences.astype("uint32") * multipliers[None]).sum(-1, dtype="uint32")
    for shift in (16, 13):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(0x85EBCA6B)
    return mixed >> np.uint32(16) & np.uint32(SHARE - 1) == 0


def drawn_for(n: int) -> int:
    """Returns the number of rows to draw for n held-out rows; about 2n of those drawn are held out."""
    return 2 * SHARE * n


def sample_held_out(drawn: np.ndarray, n: int) -> np.ndarray:
    """Returns the first n distinct held-out rows of `drawn`, or all of them if there are fewer."""
    drawn = drawn[held_out(drawn)]
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:n]]

"""Which sequences of a large domain never count in training, and samples of them."""

from typing import Any

import numpy as np

SHARE = 16


def held_out(sequences: Any) -> Any:
    """Returns a bool a row: True for one sequence in sixteen. Rows are token arrays padded with 0, NumPy's or JAX's."""
    multipliers = np.cumprod(np.full(sequences.shape[-1], 0x9E3779B1, np.uint32), dtype=np.uint32)  # modulo 2^32
    mixed = (sequences.astype("uint32") * multipliers[None]).sum(-1, dtype="uint32")
    for shift in (16, 13):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(0x85EBCA6B)
    return mixed >> np.uint32(16) & np.uint32(SHARE - 1) == 0


def drawn_for(n: int) -> int:
    """Returns how many rows to draw for a sample of n that are held out: about twice as many are."""
    return 2 * SHARE * n


def sample_bytes(n: int, length: int) -> int:
    """Returns the bytes of the rows, int32 [drawn_for(n), length], that a sample of n is taken from."""
    return 4 * drawn_for(n) * length


def power_within(limit: int, base: int, exponent: int) -> bool:
    """Tells whether base^exponent is at most `limit`, without computing a large power."""
    return base == 1 or (exponent <= limit.bit_length() and base**exponent <= limit)


def sample_held_out(drawn: np.ndarray, n: int) -> np.ndarray:
    """Returns the first n distinct rows among those of `drawn` that are held out, or as many as there are."""
    drawn = drawn[held_out(drawn)]
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:n]]

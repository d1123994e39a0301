"""What the machine can do, in XLA and in PyTorch: the ratios of the other rows depend on it."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from rows import Row, Rows, Settings


def products(settings: Settings) -> Iterator[Row]:
    """The product of two float32 matrices."""
    import torch

    n, times = 1024, 20
    a = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)
    multiply, ours = jax.jit(lambda a, b: a @ b), jnp.asarray(a)

    def peer() -> None:
        torch.set_num_threads(settings.threads)
        theirs = torch.from_numpy(a)
        for _ in range(times):
            theirs @ theirs

    ways = {"XLA": lambda: [multiply(ours, ours).block_until_ready() for _ in range(times)], "PyTorch": peer}
    yield Row("product of two matrices, 1024 x 1024", "GFLOP/s", times * 2 * n**3 / 1e9, ways)


ROWS: dict[str, Rows] = {"products": products}

"""What the machine can do, in XLA and in PyTorch: the ratios of the other rows depend on it."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from rows import Row, Rows, Settings, Way


def products(settings: Settings) -> Iterator[Row]:
    """The product of two float32 matrices."""
    n, times = 1024, 20
    a = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)

    def of_xla() -> Way:
        multiply, ours = jax.jit(lambda a, b: a @ b), jnp.asarray(a)
        return Way(lambda: [multiply(ours, ours).block_until_ready() for _ in range(times)])

    def of_torch() -> Way:
        import torch

        torch.set_num_threads(settings.threads)
        theirs = torch.from_numpy(a)
        return Way(lambda: [theirs @ theirs for _ in range(times)])

    ways = {"XLA": of_xla, "PyTorch": of_torch}
    yield Row("product of two matrices, 1024 x 1024", "GFLOP/s", times * 2 * n**3 / 1e9, ways)


ROWS: dict[str, Rows] = {"products": products}

"""Formulas that a CPU computes faster in another way, beside the plain ones.

The platform that a program is compiled for decides, not the host's platform. Percentages are what the processor time of
a step grows by without a formula, on two cores: of a GPT of nanoGPT's size for a CPU (4 blocks of 128, 12 rows of 64
tokens), of Transformer-Tiny (4 and 4 blocks of 128, 32 pairs of 32 tokens), and of 2 blocks of 384 with 32 rows of 256
tokens.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.devices import SEQUENCE, target_devices, target_mesh

# The caches of a CPU hold the arrays of a part whose residual stream has so many elements. Twice as many are not cut,
# nor are rows whose number has no divisor for parts of at least the smaller size.
IN_CACHE, SMALL = 2**20, 2**18


def in_rows(x: jax.Array) -> jax.Array:
    """Returns vectors [..., I] as one matrix [N, I] on a CPU, and as they are elsewhere.

    On a CPU one large product takes half the time of a batch of small ones (nanoGPT: 12 %). Elsewhere XLA would copy
    arrays whose axes change. Rows of which each device has some tokens stay as they are too: as one matrix they would
    be whole on each.
    """
    mesh = target_mesh()
    in_parts = mesh is not None and mesh.shape[SEQUENCE] > 1
    return x.reshape(-1, x.shape[-1]) if target_devices()[0].platform == "cpu" and not in_parts else x


@jax.custom_jvp
def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w, for x [..., I] and w [I, O]."""
    return x @ w


@product.defjvp
def _product_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Computes the gradient of w, xᵀ dy for dy [N, O], as (dyᵀ x)ᵀ where x is one matrix, wider than dy.

    That takes half the time (nanoGPT: 4 %, Transformer-Tiny: 1 to 2 %). A barrier keeps XLA from undoing it. With few
    rows the transposition costs more than it saves.
    """
    (x, w), (dx, dw) = primals, tangents
    *rows, width = x.shape
    if len(rows) == 1 and width > w.shape[1] and rows[0] >= width:
        dw = jax.lax.platform_dependent(dw, cpu=lambda dw: jax.lax.optimization_barrier(dw.T).T, default=lambda dw: dw)
    return x @ w, dx @ w + x @ dw


def n_parts(n_rows: int, row_size: int) -> int:
    """Returns into how many equal parts to cut rows for a gradient, so that a CPU's caches hold the arrays of a part.

    Without, blocks of 384 take 4 to 6 % longer; the smaller models are not cut.

    Args:
      row_size: the number of elements of a row's residual stream.
    """
    if n_rows * row_size <= 2 * IN_CACHE:
        return 1
    small = [n for n in range(1, math.isqrt(n_rows) + 1) if n_rows % n == 0]
    divisors = [*small, *(n_rows // n for n in reversed(small))]
    parts = next((n for n in divisors if n_rows // n * row_size <= IN_CACHE), n_rows)
    return parts if n_rows // parts * row_size >= SMALL else 1


def after(x: jax.Array, factor: jax.Array) -> jax.Array:
    """Returns `factor`, which a CPU's program then has only after the number x; NaN there if x is NaN.

    With x, the norm of a gradient, an update may write a weight only when no product still reads it. Else XLA's program
    for a CPU begins with a copy of each weight (0 to 3 %, and their memory). It ignores a barrier there.
    """
    only_after = lambda x, factor: jnp.where(jnp.isnan(x), x, factor)  # noqa: E731
    return jax.lax.platform_dependent(x, factor, cpu=only_after, default=lambda x, factor: factor)


def drawing_options(platform: str) -> dict[str, int] | None:
    """Returns the compiler's options on a platform for a program that draws many random bits.

    At its usual level the CPU's compiler takes three times as long for such a program, seconds for a small model. The
    program of this level draws the same bits as fast. Where JAX_DISABLE_MOST_OPTIMIZATIONS asks for a lower level, that
    one stays.
    """
    if platform != "cpu" or jax.config.read("jax_disable_most_optimizations"):
        return None
    return {"xla_backend_optimization_level": 1}

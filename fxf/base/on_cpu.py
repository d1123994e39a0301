"""Formulas that are faster on a CPU, beside the plain ones that other platforms use.

The platform that a program is compiled for decides, not the host's platform. Percentages say how much more processor
time a step takes without a formula, on two cores. The models are a GPT of nanoGPT's CPU size (4 blocks of 128, 12 rows
of 64 tokens), Transformer-Tiny (4 and 4 blocks of 128, 32 pairs of 32 tokens), and 2 blocks of 384 with 32 rows of 256
tokens.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.devices import SEQUENCE, devices_along, target_devices

# Elements of the residual stream: a part of at most IN_CACHE fits a CPU's caches. A batch is not split up to twice
# IN_CACHE, nor where no divisor of its rows gives parts of at least SMALL.
IN_CACHE, SMALL = 2**20, 2**18


def in_rows(x: jax.Array) -> jax.Array:
    """Returns vectors [..., I] as one matrix [N, I] on a CPU, and as they are elsewhere.

    On a CPU one large product takes half the time of a batch of small ones (nanoGPT: 12 %). Elsewhere XLA would copy
    arrays whose axes change. Sequences that are sharded over devices stay as they are too: as one matrix they would be
    gathered on each.
    """
    on_cpu = target_devices()[0].platform == "cpu"
    return x.reshape(-1, x.shape[-1]) if on_cpu and devices_along(SEQUENCE) == 1 else x


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
    """Returns into how many equal parts to split rows for a gradient, so that a part fits a CPU's caches.

    Without it, blocks of 384 take 4 to 6 % longer; the smaller models are not split.

    Args:
      row_size: the number of elements of a row's residual stream.
    """
    if n_rows * row_size <= 2 * IN_CACHE:
        return 1
    divisors = (n for n in range(1, n_rows) if n_rows % n == 0)
    parts = next((n for n in divisors if n_rows // n * row_size <= IN_CACHE), n_rows)
    return parts if n_rows // parts * row_size >= SMALL else 1


def depending_on(x: jax.Array, factor: jax.Array) -> jax.Array:
    """Returns `factor`, made to depend on the number x on a CPU; there it is NaN if x is NaN.

    With the norm of a gradient as x, no product still reads a weight when the update writes it, so XLA updates weights
    in place. Otherwise a program for a CPU begins with a copy of each weight (0 to 3 %, and their memory). XLA ignores
    an optimization barrier there.
    """
    only_after = lambda x, factor: jnp.where(jnp.isnan(x), x, factor)  # noqa: E731
    return jax.lax.platform_dependent(x, factor, cpu=only_after, default=lambda x, factor: factor)


def drawing_options() -> Any:
    """Returns the compiler options of the devices for a program that draws many random bits.

    At its default optimization level the CPU's compiler takes three times as long, seconds for a small model; at this
    level the program draws the same bits as fast. JAX_DISABLE_MOST_OPTIMIZATIONS asks for a lower level, which stays.
    """
    if target_devices()[0].platform != "cpu" or jax.config.read("jax_disable_most_optimizations"):
        return None
    return {"xla_backend_optimization_level": 1}

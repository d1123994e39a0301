"""What a CPU computes faster in another way, beside the plain formula.

The platform that a program is compiled for chooses, not that of the host.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax


@jax.custom_jvp
def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w, for x [rows, in] and w [in, out]."""
    return x @ w


@product.defjvp
def _product_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Also orders the gradient of w, xᵀ dy for dy [rows, out]: where x is the wider, (dyᵀ x)ᵀ takes half the time.

    The barrier keeps XLA from turning that around. With few rows, transposing the gradient takes more than is won.
    """
    (x, w), (dx, dw) = primals, tangents
    rows, width = x.shape
    if width > w.shape[1] and rows >= width:
        dw = jax.lax.platform_dependent(dw, cpu=_transposed_behind_a_barrier, default=lambda dw: dw)
    return x @ w, dx @ w + x @ dw


def _transposed_behind_a_barrier(dw: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(dw.T).T


def scale_to_norm(tree: Any, largest: float) -> Any:
    """Returns the tree, scaled down where its global norm is above `largest`.

    It is one factor for all. Divided by the norm, as `optax.clip_by_global_norm` does, each array takes a pass.
    """
    return optax.tree.scale(largest / jnp.maximum(optax.tree.norm(tree), largest), tree)


def drawing_options(platform: str) -> dict[str, int] | None:
    """Returns the compiler's options for a program that draws many random bits, on devices of a platform.

    At the usual level a CPU's compiler takes seconds for them; the same bits come as fast from this one.
    """
    return {"xla_backend_optimization_level": 1} if platform == "cpu" else None

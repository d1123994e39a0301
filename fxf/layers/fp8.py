"""Matrix products in 8 bits: e4m3 forward, e5m2 for gradients (Micikevicius et al. 2022, arXiv 2209.05433).

Each array has one scale, a power of two that makes its largest element just fit. A product of two such numbers is exact
in float32, so any hardware can compute it. On a GPU with 8-bit products, XLA turns this pattern into one of them.
"""

import contextvars
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.devices import setting

FORWARD, BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2
SMALLEST = -100  # the exponent of the smallest scale; float32 still holds its inverse

# Whether `linear` traces products in 8 bits.
in_use: contextvars.ContextVar[bool] = contextvars.ContextVar("fp8", default=False)


def products(of_8_bits: bool = True) -> Any:
    """Returns a context in which `linear` takes the product of this file, with its gradient, or the usual one."""
    return setting(in_use, of_8_bits)


@jax.custom_vjp
def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w for x [..., I] and w [I, O]. w is cast to the type of x; its gradient has its own type."""
    return _forward(x, w)[0]


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, Any]:
    scaled = _scaled(x, FORWARD), _scaled(w.astype(x.dtype), FORWARD)
    # Without the barrier, XLA fuses a following GELU with the product, and fails to compile it.
    y = jax.lax.optimization_barrier(_dot(*scaled, ((x.ndim - 1,), (0,)), x.dtype))
    return y, (*scaled, jnp.zeros((0,), w.dtype))  # an empty array has the type of w


def _backward(residuals: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w, like_w = residuals
    scaled, rows = _scaled(dy, BACKWARD), tuple(range(dy.ndim - 1))
    return _dot(scaled, w, ((dy.ndim - 1,), (1,)), dy.dtype), _dot(x, scaled, (rows, rows), like_w.dtype)


product.defvjp(_forward, _backward)


def _scaled(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Returns x / scale in 8 bits, and the scale, which is at least max |x| over the type's largest number."""
    largest = jnp.abs(x).max().astype(jnp.float32) / float(jnp.finfo(dtype).max)
    scale = jnp.ldexp(jnp.float32(1), jnp.maximum(jnp.frexp(largest)[1], SMALLEST)).astype(x.dtype)
    return (x / scale).astype(dtype), scale


def _dot(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array], axes: Any, dtype: Any) -> jax.Array:
    """Returns the product of two scaled arrays in `dtype`, summed over pairs of axes."""
    left, right = (eight_bits.astype(scale.dtype) * scale for eight_bits, scale in (a, b))
    return jax.lax.dot_general(left, right, (axes, ((), ())), preferred_element_type=dtype)

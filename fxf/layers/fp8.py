"""Products in 8 bits: numbers of e4m3 forward, gradients of e5m2 backward (Micikevicius et al. 2022, arXiv 2209.05433).

An array has one scale, a power of two, by which its largest element just fits. The products and the sums are exact in
float32, so that hardware without such products computes the same numbers; XLA makes one product in 8 bits of the
pattern on a GPU that has them.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

FORWARD, BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2
SMALLEST = -100  # the exponent of the smallest scale, whose inverse float32 still holds

# Whether the products that are traced are of 8 bits.
in_use: contextvars.ContextVar[bool] = contextvars.ContextVar("fp8", default=False)


@contextlib.contextmanager
def products(of_8_bits: bool = True) -> Iterator[None]:
    """Returns a context in which `linear` takes the product of this file, or another one, also in its gradient."""
    token = in_use.set(of_8_bits)
    try:
        yield
    finally:
        in_use.reset(token)


@jax.custom_vjp
def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w for x [..., I] and w [I, O], which is read in the type of x; its gradient is in its own type."""
    return _forward(x, w)[0]


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, Any]:
    kept = _scaled(x, FORWARD), _scaled(w.astype(x.dtype), FORWARD)
    # XLA would join a GELU that follows with the product, and then fails to compile that.
    y = jax.lax.optimization_barrier(_dot(*kept, ((x.ndim - 1,), (0,)), x.dtype))
    return y, (*kept, jnp.zeros((0,), w.dtype))  # an empty array tells the type of w


def _backward(kept: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w, like_w = kept
    scaled, rows = _scaled(dy, BACKWARD), tuple(range(dy.ndim - 1))
    return _dot(scaled, w, ((dy.ndim - 1,), (1,)), dy.dtype), _dot(x, scaled, (rows, rows), like_w.dtype)


product.defvjp(_forward, _backward)


def _scaled(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Returns x over its scale in 8 bits, and the scale, which is at least the largest size over that of the type."""
    largest = jnp.abs(x).max().astype(jnp.float32) / float(jnp.finfo(dtype).max)
    scale = jnp.ldexp(jnp.float32(1), jnp.maximum(jnp.frexp(largest)[1], SMALLEST)).astype(x.dtype)
    return (x / scale).astype(dtype), scale


def _dot(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array], axes: Any, dtype: Any) -> jax.Array:
    """Returns the product of two scaled arrays, summed over pairs of axes, in a type."""
    left, right = (eight_bits.astype(scale.dtype) * scale for eight_bits, scale in (a, b))
    return jax.lax.dot_general(left, right, (axes, ((), ())), preferred_element_type=dtype)

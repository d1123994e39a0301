"""The product with a weight matrix, which all dense layers share, and the type of norms, softmaxes and logits."""

import jax
import jax.numpy as jnp

from fxf.machine.on_cpu import in_rows, product


def as_float32(x: jax.Array) -> jax.Array:
    """Returns x in float32, or in float64 if x is float64."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def linear(x: jax.Array, w: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Returns x w + bias [..., O] for x [..., I], w [I, O] and bias [O].

    The sum with the bias is in the wider of their types, and the output in the type of x.
    """
    y = product(in_rows(x), w.astype(x.dtype))
    if bias is not None:
        y = y + bias.reshape(*(1 for _ in y.shape[1:]), -1)
    return y.astype(x.dtype).reshape(*x.shape[:-1], w.shape[1])

"""Linear maps, which all dense layers share; the type of norms, softmaxes and logits; checks of indices of tables."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.devices import sums_in_float32
from fxf.base.errors import UserError
from fxf.base.on_cpu import in_rows, product
from fxf.base.on_gpu import on_gpu, product_of_one
from fxf.base.weights import Spec, Weight, fan_in
from fxf.layers import fp8


def as_float32(x: jax.Array) -> jax.Array:
    """Returns x in float32, or in float64 if x is float64."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def linear_spec(
    axes: Mapping[str, int], has_bias: bool = True, names: tuple[str, str] = ("kernel", "bias"), size: int = 0
) -> Spec:
    """Returns the weights of a linear map.

    Args:
      axes: the axes that it maps from and to, with their lengths.
      names: of the matrix and of the bias.
      size: the fan-in of the initializer; 0: the length of the first axis.
    """
    shape, of_axes = tuple(axes.values()), tuple(axes)
    bias = Weight(shape[1:], of_axes[1:], jax.nn.initializers.zeros)
    return {names[0]: Weight(shape, of_axes, fan_in(size=size)), **({names[1]: bias} if has_bias else {})}


def linear(x: jax.Array, w: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Returns x w + bias [..., O] for x [..., I], w [I, O] and bias [O], in the type of x."""
    if on_gpu() and x.size == x.shape[-1]:
        y = product_of_one(x, w.astype(x.dtype))
    elif fp8.in_use.get():
        y = fp8.product(in_rows(x), w if sums_in_float32() else w.astype(x.dtype))
    elif sums_in_float32() and x.dtype == jnp.bfloat16:
        y = _mixed_product(in_rows(x), w)
    else:
        y = product(in_rows(x), w.astype(x.dtype))
    if bias is not None:
        y = _plus(y, bias.reshape(*(1 for _ in y.shape[1:]), -1))
    return y.reshape(*x.shape[:-1], w.shape[1])


@jax.custom_vjp
def _mixed_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w in the type of x, for w in float32. The gradient of w is summed in float32."""
    return product(x, w.astype(x.dtype))


def _mixed_product_forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    cast = w.astype(x.dtype)
    return product(x, cast), (x, cast)


def _mixed_product_backward(residuals: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = residuals
    rows = tuple(range(x.ndim - 1))
    dw = jax.lax.dot_general(x, dy, ((rows, rows), ((), ())), preferred_element_type=jnp.float32)
    return jax.lax.dot_general(dy, w, (((dy.ndim - 1,), (1,)), ((), ()))), dw


_mixed_product.defvjp(_mixed_product_forward, _mixed_product_backward)


def to_heads(x_RTD: jax.Array, w: jax.Array) -> jax.Array:
    """Returns heads [R, T, …] of vectors, by a map [D, …]."""
    return linear(x_RTD, w.reshape(w.shape[0], -1)).reshape(*x_RTD.shape[:-1], *w.shape[1:])


def from_heads(heads_RT: jax.Array, w: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Returns vectors [R, T, D] of heads [R, T, …], by a map […, D]."""
    return linear(heads_RT.reshape(*heads_RT.shape[:2], -1), w.reshape(-1, w.shape[-1]), bias)


@jax.custom_jvp
def _plus(y: jax.Array, bias: jax.Array) -> jax.Array:
    """Returns y + bias in the type of y, so that a GPU adds the bias within the product."""
    return y + bias.astype(y.dtype)


@_plus.defjvp
def _plus_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Adds in the wider type, so that the gradient of a float32 bias is summed in float32 even if y is in bfloat16."""
    (y, bias), (dy, dbias) = primals, tangents
    return _plus(y, bias), (dy + dbias).astype(y.dtype)


@jax.custom_jvp
def copied(w: jax.Array, copy: jax.Array) -> jax.Array:
    """Returns the values of a weight's copy in another type; the gradient goes to the weight itself, in its type."""
    return copy.astype(w.dtype)


@copied.defjvp
def _copied_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    return copied(*primals), tangents[0]


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Returns cap · tanh(x / cap), which is within ±cap, or x itself if the cap is 0 (Gemma Team 2024)."""
    return cap * jnp.tanh(x / cap) if cap else x


def require_rows(name: str, indices: Any, table: Any) -> None:
    """Raises a UserError if a table has no row for an index. Under `jax.jit` it checks only their type."""
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise UserError(f"{name}: expected ints, which are indices of the rows of a table, got {indices.dtype}")
    if isinstance(indices, jax.core.Tracer) or not indices.size:
        return
    known = np.asarray(indices)  # also while tracing a program that has them as constants
    for index in (known.min(), known.max()):
        if not 0 <= index < len(table):
            raise UserError(f"{name}: expected 0 … {len(table) - 1}, the rows of the table, got {index}")

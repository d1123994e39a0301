"""Matrices in 8 bits, for decoding and evaluation: each of their outputs has a scale (weight-only quantization)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.weights import VOCABULARY, Params, Weight, axes_of_matrix, flatten, map_weights
from fxf.models.model import Model, as_they_are

# The types that `decode.weights` names, and the largest number of each that a scaled weight takes.
TYPES: dict[str, tuple[Any, float]] = {"int8": (jnp.int8, 127.0), "fp8": (jnp.float8_e4m3fn, 448.0)}


def stored_as(name: str, model: Model) -> tuple[Model, Callable[[Params], Params]]:
    """Returns the model whose matrices have a type of `TYPES`, and the function that makes its params of plain ones.

    In the place of a matrix W [..., in, out] of the plain `model` are `narrow` [..., out, in] and the float `scale`
    [..., out], of which W is nearly the product: the largest weight of each output is the largest number of the type.
    So it is with the tables of tokens, whose rows are the outputs of the map to logits. Other weights are as they were.
    A program makes the matrices where it reads them.

    Args:
      name: of a type; another name stands for the model and its params as they are.
    """
    if name not in TYPES:
        return model, as_they_are
    dtype, largest = TYPES[name]

    def narrow(params: Params) -> Params:
        plain = flatten(params)

        def stored(path: str, weight: Weight) -> Any:
            if not (summed := _summed(weight)):
                return plain[path]
            rows = jnp.moveaxis(plain[path], summed, range(-len(summed), 0))
            ends = jnp.abs(rows).max(range(-len(summed), 0), keepdims=True)
            scale = jnp.where(ends == 0, 1, ends / largest)
            scaled = rows / scale
            whole = jnp.round(scaled) if jnp.issubdtype(dtype, jnp.integer) else scaled
            return {"narrow": whole.astype(dtype), "scale": scale.reshape(rows.shape[: -len(summed)])}

        return map_weights(stored, model.spec)

    def wide(params: Params) -> Params:
        held = flatten(params)

        def plain(path: str, weight: Weight) -> jax.Array:
            if not (summed := _summed(weight)):
                return held[path]
            rows, scale = held[f"{path}/narrow"], held[f"{path}/scale"]
            scaled = rows.astype(scale.dtype) * scale[(..., *(None for _ in summed))]
            return jnp.moveaxis(scaled, range(-len(summed), 0), summed)

        return map_weights(plain, model.spec)

    def reading(function: Any) -> Any:
        return function and (lambda params, *args, **options: function(wide(params), *args, **options))

    functions = {each: reading(getattr(model, each)) for each in ("features", "readout", "prefill", "step")}
    return model._replace(
        spec=map_weights(lambda _, weight: _of(weight), model.spec), penalty=None, **functions
    ), narrow


def _summed(weight: Weight) -> tuple[int, ...]:
    """Returns the axes of a matrix that a product sums over; () for other weights."""
    if len(weight.axes) == 2 and VOCABULARY in weight.axes:
        return (1 - weight.axes.index(VOCABULARY),)
    axes = axes_of_matrix(weight)
    return axes[0] if axes else ()


def _of(weight: Weight) -> Any:
    """Returns what is stored in the place of a weight."""
    summed, axes = _summed(weight), range(len(weight.axes))
    outputs = [i for i in axes if i not in summed]

    def of(chosen: Any) -> Weight:
        return Weight(tuple(weight.shape[i] for i in chosen), tuple(weight.axes[i] for i in chosen), weight.init)

    return {"narrow": of([*outputs, *summed]), "scale": of(outputs)} if summed else weight

"""Weight-only quantization for decoding and evaluation: matrices in 8 bits, with a scale for each output."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from flax.traverse_util import unflatten_dict

from fxf.base.errors import UserError
from fxf.base.weights import VOCABULARY, Params, Weight, axes_of_matrix, flatten, map_weights
from fxf.models.model import Model, as_they_are

# The types that `decode.weights` names, and the largest scaled weight in each.
TYPES: dict[str, tuple[Any, float]] = {"int8": (jnp.int8, 127.0), "fp8": (jnp.float8_e4m3fn, 448.0)}


def stored_as(name: str, model: Model) -> tuple[Model, Callable[[Params], Params]]:
    """Returns the model with matrices in a type of `TYPES`, and the function that makes its params from plain ones.

    A matrix W [..., in, out] of the plain `model` is replaced by `narrow` [..., out, in] and the float `scale` [...,
    out], whose product is nearly W: the largest weight of each output becomes the largest number of the type. Tables of
    tokens are stored likewise, with a scale for each row, because rows are outputs of the map to logits. Other weights
    do not change. A program computes each matrix where it reads it.

    Args:
      name: the name of a type; any other name returns the model and its params unchanged.

    Raises:
      UserError: the model has no matrix.
    """
    if name not in TYPES:
        return model, as_they_are
    (dtype, largest), spec = TYPES[name], flatten(model.spec)
    matrices = {path: summed for path, weight in spec.items() if (summed := _summed(weight))}
    if not matrices:
        raise UserError(f"decode.weights: no weight of the model has the axes of a matrix, to store as {name}")
    for path, summed in matrices.items():
        weight = spec.pop(path)
        outputs = [i for i in range(len(weight.axes)) if i not in summed]
        spec |= {f"{path}/narrow": _moved(weight, [*outputs, *summed]), f"{path}/scale": _moved(weight, outputs)}

    def narrow(params: Params) -> Params:
        stored = flatten(params)
        for path, summed in matrices.items():
            last = range(-len(summed), 0)
            rows = jnp.moveaxis(stored.pop(path), summed, last)
            ends = jnp.abs(rows).max(last, keepdims=True)
            scale = jnp.where(ends < largest * jnp.finfo(ends.dtype).tiny, 1, ends / largest)  # which is never 0
            whole = jnp.round(rows / scale) if jnp.issubdtype(dtype, jnp.integer) else rows / scale
            stored |= {f"{path}/narrow": whole.astype(dtype), f"{path}/scale": scale.squeeze(last)}
        return unflatten_dict(stored, sep="/")

    def wide(params: Params) -> Params:
        plain = flatten(params)
        for path, summed in matrices.items():
            last = range(-len(summed), 0)
            rows, scale = plain.pop(f"{path}/narrow"), plain.pop(f"{path}/scale")
            scaled = rows.astype(scale.dtype) * jnp.expand_dims(scale, last)
            plain[path] = jnp.moveaxis(scaled, last, summed)
        return map_weights(lambda path, _: plain[path], model.spec)  # the spec also has layers without weights

    def reading(function: Any) -> Any:
        return function and (lambda params, *args, **options: function(wide(params), *args, **options))

    functions = {field: reading(getattr(model, field)) for field in ("features", "readout", "prefill", "step")}
    return model._replace(spec=unflatten_dict(spec, sep="/"), penalty=None, **functions), narrow


def _summed(weight: Weight) -> tuple[int, ...]:
    """Returns the axes of a matrix that a product sums over; () for other weights."""
    if len(weight.axes) == 2 and VOCABULARY in weight.axes:
        return (1 - weight.axes.index(VOCABULARY),)
    axes = axes_of_matrix(weight)
    return axes[0] if axes else ()


def _moved(weight: Weight, axes: Sequence[int]) -> Weight:
    """Returns the weight with these of its axes, in this order."""
    return Weight(tuple(weight.shape[i] for i in axes), tuple(weight.axes[i] for i in axes), weight.init)

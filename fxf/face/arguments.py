"""What the functions of `import fxf` are called with: a UserError says which argument is wrong."""

from typing import Any

import jax
import numpy as np

from fxf import weights
from fxf.errors import UserError
from fxf.models.model import Model


def require_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise UserError(f"seed: expected an int from 0 to 2**32 - 1, got {seed!r}")


def require_numbers(**given: Any) -> None:
    """Raises a UserError that names an argument which is no number."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise UserError(f"{name}: expected a number, got {value!r}")


def require_model(model: Any) -> None:
    if not isinstance(model, Model):
        raise UserError(f"model: expected what fxf.model returns, got {type(model).__name__}")


def require_params(model: Model, params: Any) -> None:
    """Raises a UserError if the params are not those of the model: a nested dict of arrays of its shapes."""
    expected = dict(jax.tree_util.tree_leaves_with_path(weights.shapes(model.spec, model.weights_dtype)))
    found = dict(jax.tree_util.tree_leaves_with_path(params))
    for path in [*expected, *found]:
        name = "/".join(str(getattr(part, "key", part)) for part in path) or "params"
        if path not in found:
            raise UserError(f"params: {name}: missing; they are no params of this model")
        if path not in expected:
            raise UserError(f"params: {name}: the model has no such weight")
        if np.shape(found[path]) != expected[path].shape:
            shapes = f"expected {list(expected[path].shape)}, got {list(np.shape(found[path]))}"
            raise UserError(f"params: {name}: {shapes}")


def token_rows(name: str, rows: Any) -> list[Any]:
    """Returns rows of tokens as arrays of ints. Raises a UserError if they are not valid; `name` is that of a row."""
    if isinstance(rows, str) or not hasattr(rows, "__len__"):
        raise UserError(f"{name}s: expected a list of lists of tokens, got {rows!r}")
    found = []
    for number, row in enumerate(rows, 1):
        try:
            array = np.asarray(row)
        except ValueError:
            array = np.zeros(())
        if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
            raise UserError(f"{name} {number}: expected a list of tokens, which are ints, got {row!r}")
        found.append(array)
    return found


def vocab_size_of(model: Model, sources: dict[str, np.ndarray]) -> int:
    """Returns the number of tokens. Raises a UserError if the model reads sources and gets none, or the reverse."""
    params, inputs = weights.shapes(model.spec, model.weights_dtype), {"inputs": np.zeros((1, 1), np.int32)}
    try:
        alone = jax.eval_shape(model.apply, params, inputs)
    except KeyError as error:
        if error.args != ("source",):
            raise
        if not sources:
            raise UserError("sources: missing; the model reads a source for each prompt") from None
        return jax.eval_shape(model.apply, params, {**sources, **inputs}).shape[-1]
    if sources:
        raise UserError("sources: the model reads none")
    return alone.shape[-1]

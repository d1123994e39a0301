"""What the functions of `import fxf` are called with: a UserError says which argument is wrong."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf import weights
from fxf.config import LARGEST_INT
from fxf.errors import UserError
from fxf.models.model import Model
from fxf.tasks.task import NO_END


def require_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise UserError(f"seed: expected an int from 0 to 2**32 - 1, got {seed!r}")


def require_counts(**given: Any) -> None:
    """Raises a UserError that names an argument which is no int of at least 0."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise UserError(f"{name}: expected an int of at least 0, got {value!r}")


def end_tokens_of(given: Any) -> tuple[int, ...]:
    """Returns the tokens that end an answer, NO_END for none; a UserError names one that is no int of at least 0."""
    if isinstance(given, list | tuple):
        require_counts(**{f"end_token {number}": token for number, token in enumerate(given, 1)})
        return tuple(given) or (NO_END,)
    if given is None:
        return (NO_END,)
    require_counts(end_token=given)
    return (given,)


def require_numbers(**given: Any) -> None:
    """Raises a UserError that names an argument which is no number."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise UserError(f"{name}: expected a number, got {value!r}")


def require_model(model: Any) -> None:
    if not isinstance(model, Model):
        raise UserError(f"model: expected what fxf.model returns, got {type(model).__name__}")


def require_params(model: Model, params: Any) -> None:
    """Raises a UserError if the params are not those of the model: a nested dict of finite floats of its shapes."""
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
        dtype = getattr(found[path], "dtype", np.asarray(found[path]).dtype)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise UserError(f"params: {name}: expected floats, got {dtype}")
    finite = jax.jit(lambda leaves: [jnp.isfinite(x).all() for x in leaves])(list(found.values()))
    for path, is_finite in zip(found, finite, strict=True):
        if not is_finite:
            raise UserError(f"params: {'/'.join(str(part.key) for part in path)}: has a value that is not finite")


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


def require_batch_of_tokens(tokens: Any, weights: Any) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array | None]:
    """Returns tokens [B, T] and their weights, or None. Raises a UserError if they are none.

    Arrays of NumPy must have tokens and weights that a model can read; those of JAX may be traced.
    """
    if isinstance(tokens, list | tuple | str):
        rows = token_rows("row", tokens)
        if not rows or len({len(row) for row in rows}) != 1:
            raise UserError("tokens: expected rows of one length")
        tokens = np.stack(rows)
    found = tokens if isinstance(tokens, jax.Array) else np.asarray(tokens)
    if found.ndim != 2 or not jnp.issubdtype(found.dtype, jnp.integer):
        raise UserError(f"tokens: expected ints [B, T], got {found.dtype} {list(found.shape)}")
    if isinstance(found, np.ndarray) and found.size and not 0 <= found.min() <= found.max() <= LARGEST_INT:
        raise UserError(f"tokens: expected 0 … {LARGEST_INT}, got {found.min()} … {found.max()}")
    if weights is None:
        return found, None
    of_tokens = weights if isinstance(weights, jax.Array) else np.asarray(weights)
    if of_tokens.shape != found.shape:
        raise UserError(f"weights: expected {list(found.shape)}, as tokens, got {list(of_tokens.shape)}")
    if not (jnp.issubdtype(of_tokens.dtype, jnp.floating) or of_tokens.dtype.kind in "iub"):
        raise UserError(f"weights: expected real numbers, got {of_tokens.dtype}")
    if isinstance(of_tokens, np.ndarray) and not np.isfinite(of_tokens).all():
        raise UserError("weights: expected finite numbers")
    return found, of_tokens


def require_sources(sources: list[Any], longest: int | None) -> None:
    """Raises a UserError if a source is empty, or longer than the model's positions."""
    for number, source in enumerate(sources, 1):
        if not len(source):
            raise UserError(f"source {number}: it is empty; the model reads at least one token")
        if longest is not None and len(source) > longest:
            raise UserError(f"source {number}: expected at most model.max_len {longest} tokens, got {len(source)}")


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


def after_first(first_token: int | None, prompts: Sequence[Any]) -> dict[str, np.ndarray]:
    """Returns the prompts as rows after the token, or after the first token of each if it is None."""
    tokens_NP, lengths_N = padded(prompts)
    if first_token is not None:
        return {"first": np.full(len(prompts), first_token, np.int64), "tokens": tokens_NP, "lengths": lengths_N}
    if not lengths_N.all():
        raise UserError(f"prompt {int(lengths_N.argmin()) + 1}: it is empty; without a first_token it needs a token")
    return {"first": tokens_NP[:, 0], "tokens": tokens_NP[:, 1:], "lengths": lengths_N - 1}


def padded(rows: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows, padded with zeros, int64 [N, P], and their lengths, int32 [N]."""
    lengths = np.array([len(row) for row in rows], np.int32)
    tokens = np.zeros((len(rows), max(lengths)), np.int64)
    for row, values in zip(tokens, rows, strict=True):
        row[: len(values)] = values
    return tokens, lengths


def require_tokens(model: Model, rows: dict[str, np.ndarray], end_token: int | None) -> None:
    """Raises a UserError if the end token, or a token of a row, is not one of the model's, or a source is missing."""
    vocab_size = vocab_size_of(model, {name: x[:1] for name, x in rows.items() if name in ("source", "source_mask")})
    if end_token is not None and end_token >= vocab_size:
        raise UserError(f"end_token: expected one of the tokens 0 … {vocab_size - 1}, got {end_token}")
    names = {"first": "prompt", "tokens": "prompt", "source": "source"}
    for name in (name for name in names if name in rows):
        wrong = np.argwhere((rows[name] < 0) | (rows[name] >= vocab_size))
        if len(wrong):
            what, value = f"{names[name]} {wrong[0][0] + 1}", rows[name][tuple(wrong[0])]
            raise UserError(f"{what}: expected tokens 0 … {vocab_size - 1}, got {value}")
        rows[name] = rows[name].astype(np.int32)

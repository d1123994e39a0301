"""The contract of a kind of positions, and the kinds, which act on embeddings, on queries and keys, or on scores."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.on_gpu import rows_of
from fxf.base.weights import Params
from fxf.layers.config import TransformerConfig

# The keys that only rotary positions read, with the values that stand for nothing.
ROTARY_KEYS = {"rope_theta": 10000.0, "rope_factor": 1.0, "local_rope_theta": 0.0}
LEAST_TURNS_KEPT = 4  # the scaling of Llama 3 keeps a frequency that turns as often in the sequences of training
YARN_TURNS = 32, 1  # of the pairs between which YaRN interpolates


class Positions(NamedTuple):
    """A kind of positional encoding. Positions are [R, T], ints or floats; [1, T] are those of every row.

    Attributes:
      embed: `embed(params, positions_RT, d_model)` returns [R, T, D], which is added to the embeddings.
      rotate: `rotate(config, x, positions_BT)` returns queries [B, H, T, K] or keys [B, G, T, K], rotated by their
        positions.
      bias: `bias(n_heads, queries_BT, keys_BC)` returns [B, H, T, C], which is added to the scores, from the positions
        of queries and keys.
      table: initializer of a trained table of positions, `params["positions"]` of the embedding.
    """

    embed: Callable[[Params, jax.Array, int], jax.Array] | None = None
    rotate: Callable[[TransformerConfig, jax.Array, jax.Array], jax.Array] | None = None
    bias: Callable[[int, jax.Array, jax.Array], jax.Array] | None = None
    table: Callable[[jax.Array, tuple[int, ...], Any], jax.Array] | None = None


def _frequencies(exponents: np.ndarray, width: int, n_axes: int) -> np.ndarray:
    """Returns 10000^(-exponent / width) after `n_axes` axes of size 1.

    NumPy computes it in float64, because the position multiplies the rounding error, which is larger in XLA's power.
    """
    return (10000.0 ** (-exponents / width)).astype(jnp.result_type(float)).reshape((1,) * n_axes + (-1,))


def interleaved(positions: jax.Array, d_model: int) -> jax.Array:
    """Returns PE of positions [...], [..., D], from seeds 003 and 004.

    PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)).
    """
    axis = np.arange(d_model)
    angles = positions[..., None] * _frequencies(axis - axis % 2, d_model, positions.ndim)
    even = (axis % 2 == 0).reshape((1,) * positions.ndim + (d_model,))
    return jnp.where(even, jnp.sin(angles), jnp.cos(angles))


def concatenated(positions: jax.Array, d_model: int) -> jax.Array:
    """Returns sin(p / 10000^(2i/D)) for i = 1 … D/2, then the cosines; p starts from 1 (seed 000, "Embedding")."""
    angles = (positions[..., None] + 1) * _frequencies(2 * np.arange(1, d_model // 2 + 1), d_model, positions.ndim)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def halves(positions: jax.Array, d_model: int) -> jax.Array:
    """Returns the sines and cosines of `interleaved`, all sines first (the code of Vaswani et al. 2017)."""
    x = interleaved(positions, d_model)
    return jnp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def sinusoids(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns the sinusoids of positions 1, 2, …, [rows, D]; an initializer (seed 004, "Positional Encoding")."""
    del key
    return interleaved(jnp.arange(1, shape[0] + 1), shape[1]).astype(dtype)


def random_rows(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns normal numbers with the mean square of sinusoids, 1/2, [rows, D]; an initializer.

    So models with a random table and with sinusoids differ by the directions of the rows and not by their size.
    """
    return jax.random.normal(key, shape, dtype) / math.sqrt(2)


def look_up(params: Params, positions_BT: jax.Array, d_model: int) -> jax.Array:
    """Returns the rows of the table at the positions, [B, T, D].

    Positions beyond the table raise a UserError, or give NaN where a program computes them.
    """
    del d_model
    if not jnp.issubdtype(positions_BT.dtype, jnp.integer):
        raise UserError(f"positions: a table has a row for each whole number; expected ints, got {positions_BT.dtype}")
    require_rows("positions", positions_BT, params["positions"])
    return rows_of(params["positions"], positions_BT, beyond=math.nan)


def require_rows(name: str, indices: Any, table: Any) -> None:
    """Raises a UserError if a table has no row for an index. Under `jax.jit` the indices are not known."""
    if isinstance(indices, jax.core.Tracer) or not indices.size:
        return
    for index in (int(indices.min()), int(indices.max())):
        if not 0 <= index < len(table):
            raise UserError(f"{name}: expected 0 … {len(table) - 1}, the rows of the table, got {index}")


def rotary(config: TransformerConfig, x: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns x with each pair (x_2i, x_2i+1) rotated by p · θ^(-2i/K) (seed 002, "rotary positional encoding").

    The product of a query and a key then depends on the distance between them (Su et al. 2021). θ is rope_theta.
    """
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    angles = positions[:, None, :, None] * rotary_frequencies(config, pairs.shape[-2]).reshape(1, 1, 1, -1)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    rotated = jnp.stack([cos * pairs[..., 0] - sin * pairs[..., 1], sin * pairs[..., 0] + cos * pairs[..., 1]], axis=-1)
    return rotated.reshape(x.shape)


def rotary_frequencies(config: TransformerConfig, n_pairs: int) -> np.ndarray:
    """Returns the frequencies of the K/2 pairs of a head, [K/2]: θ^(-2i/K), scaled.

    NumPy computes them in float64, because the position multiplies the rounding error, which is larger in XLA's power.
    """
    exponents = -np.arange(n_pairs) / n_pairs
    return _scaled(config, config.rope_theta**exponents).astype(jnp.result_type(float))


def _scaled(config: TransformerConfig, frequencies: np.ndarray) -> np.ndarray:
    """Returns the frequencies divided by rope_factor (Chen et al. 2023).

    With a rope_trained_len it divides only those whose wavelengths are longer than that, and none of those up to a
    quarter of it. Those between are interpolated by their turns (Grattafiori et al. 2024, the scaling of Llama 3), or
    by their index (Peng et al. 2023, YaRN).
    """
    turns = config.rope_trained_len * frequencies / (2 * np.pi)  # in the sequences of training
    kept = np.clip((turns - 1) / (LEAST_TURNS_KEPT - 1), 0, 1)
    if config.rope_ramp != "llama3":
        n_pairs = len(frequencies)
        # The index, as a real number, of the pair that turns so often.
        first, last = (
            n_pairs * math.log(config.rope_trained_len / (n * 2 * np.pi)) / math.log(config.rope_theta)
            for n in YARN_TURNS
        )
        if config.rope_ramp == "yarn":
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * n_pairs - 1)
        kept = 1 - np.clip((np.arange(n_pairs) - first) / ((last - first) or 0.001), 0, 1)
    return (1 - kept) * frequencies / config.rope_factor + kept * frequencies


def alibi_slopes(n_heads: int) -> list[float]:
    """Returns the slopes 2^(-8 h / n_heads) for h = 1 … n_heads (seed 002, "ALiBi positional encoding")."""
    return [2.0 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]


def alibi_geometric_slopes(n_heads: int) -> list[float]:
    """Returns the slopes of the paper (Press et al. 2022), which differ if n_heads is no power of two.

    They are the slopes of the next lower power of two, then every second slope of the next higher one.
    """
    lower = 2 ** int(math.log2(n_heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: n_heads - lower]


def alibi(slopes: Callable[[int], list[float]]) -> Positions:
    """Returns the encoding that adds -slope · |distance| to the scores, with one slope for each head."""

    def bias(n_heads: int, queries: jax.Array, keys: jax.Array) -> jax.Array:
        distances_B1TC = jnp.abs(queries[:, None, :, None] - keys[:, None, None])
        return -jnp.array(slopes(n_heads)).reshape(1, n_heads, 1, 1) * distances_B1TC

    return Positions(bias=bias)

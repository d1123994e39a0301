"""Positional encodings, each an object with hooks on embeddings, on queries and keys, and on scores.

A new one is a `Positions` and its line in `POSITIONS`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from fxf.config import one_of
from fxf.errors import UserError
from fxf.layers.config import TransformerConfig
from fxf.weights import Params, Spec, Weight


class Positions(NamedTuple):
    """A kind of positional encoding. Positions are [B, T], increasing along a row; [1, T] serve a whole batch.

    Attributes:
      embed: `embed(params, positions_BT, d_model)` [B, T, D], which is added to the embeddings.
      rotate: `rotate(x_BHTK, positions_BT)` [B, H, T, K], applied to queries and to keys.
      bias: `bias(n_heads, queries_BT, keys_BC)` [B, H, T, C], which is added to scores: the logarithm of the factor on
        what attends from the one position to the other.
      table: initializer of a trained table of positions, `params["positions"]` of the embedding.
    """

    embed: Callable[[Params, jax.Array, int], jax.Array] | None = None
    rotate: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    bias: Callable[[int, jax.Array, jax.Array], jax.Array] | None = None
    table: Callable[[jax.Array, tuple[int, ...], Any], jax.Array] | None = None


def _frequencies(exponents: np.ndarray, width: int, n_axes: int) -> np.ndarray:
    """Returns 10000^(-exponent / width) behind so many axes of size 1.

    To the last bit of float32: a rounding error of XLA's power would be multiplied by the position.
    """
    return (10000.0 ** (-exponents / width)).astype(np.float32).reshape((1,) * n_axes + (-1,))


def interleaved(positions: jax.Array, d_model: int) -> jax.Array:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (seeds 003 and 004): [...] to [..., D]."""
    axis = np.arange(d_model)
    angles = positions[..., None] * _frequencies(axis - axis % 2, d_model, positions.ndim)
    even = (axis % 2 == 0).reshape((1,) * positions.ndim + (d_model,))
    return jnp.where(even, jnp.sin(angles), jnp.cos(angles))


def concatenated(positions: jax.Array, d_model: int) -> jax.Array:
    """sin(p / 10000^(2i/D)) for i = 1 … D/2, then the cosines; p counts from 1 (seed 000, "Embedding")."""
    angles = (positions[..., None] + 1) * _frequencies(2 * np.arange(1, d_model // 2 + 1), d_model, positions.ndim)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def halves(positions: jax.Array, d_model: int) -> jax.Array:
    """The interleaved sines and cosines, all sines first (the code of Vaswani et al. 2017): [...] to [..., D]."""
    x = interleaved(positions, d_model)
    return jnp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def sinusoids(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """The interleaved sinusoids of positions 1 … M as an initializer (seed 004, "Positional Encoding"): [M, D]."""
    del key
    return interleaved(jnp.arange(1, shape[0] + 1), shape[1]).astype(dtype)


def random_rows(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Normal with the mean square of sinusoids, 1/2, as an initializer: [M, D].

    What a model learns with a table from random and with sinusoids so differs by their directions and not their size.
    """
    return jax.random.normal(key, shape, dtype) / math.sqrt(2)


def look_up(params: Params, positions_BT: jax.Array, d_model: int) -> jax.Array:
    del d_model
    return params["positions"][positions_BT]


def rotary(x_BHTK: jax.Array, positions_BT: jax.Array) -> jax.Array:
    """Turns each pair (x_2i, x_2i+1) by the angle p · 10000^(-2i/K) (seed 002, "rotary positional encoding").

    The product of a query and a key then depends on the distance between them (Su et al. 2021).
    """
    pairs = x_BHTK.reshape(*x_BHTK.shape[:-1], -1, 2)
    n_pairs = pairs.shape[-2]
    angles = positions_BT[:, None, :, None] * _frequencies(np.arange(n_pairs), n_pairs, 3)
    cos, sin = jnp.cos(angles).astype(x_BHTK.dtype), jnp.sin(angles).astype(x_BHTK.dtype)
    turned = jnp.stack([cos * pairs[..., 0] - sin * pairs[..., 1], sin * pairs[..., 0] + cos * pairs[..., 1]], axis=-1)
    return turned.reshape(x_BHTK.shape)


def alibi_slopes(n_heads: int) -> list[float]:
    """m = 1 / A^(h/H) for h = 1 … H, A = 2^8 (seed 002, "ALiBi positional encoding")."""
    return [2.0 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]


def alibi_geometric_slopes(n_heads: int) -> list[float]:
    """The slopes of the paper (Press et al. 2022), which differ where n_heads is no power of two.

    They are those of the next lower power of two, then every other of those of the next higher one.
    """
    lower = 2 ** int(math.log2(n_heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: n_heads - lower]


def _alibi(slopes: Callable[[int], list[float]]) -> Positions:
    """Scores fall by slope · distance: -m |i - j|, with a slope for each head."""

    def bias(n_heads: int, queries_BT: jax.Array, keys_BC: jax.Array) -> jax.Array:
        distances_B1TC = jnp.abs(queries_BT[:, None, :, None] - keys_BC[:, None, None])
        return -jnp.array(slopes(n_heads)).reshape(1, n_heads, 1, 1) * distances_B1TC

    return Positions(bias=bias)


POSITIONS = {
    "none": Positions(),
    "sinusoidal_trained": Positions(embed=look_up, table=sinusoids),
    "learned": Positions(embed=look_up, table=random_rows),
    "sinusoidal": Positions(embed=lambda _, positions, d_model: interleaved(positions, d_model)),
    "sinusoidal_concatenated": Positions(embed=lambda _, positions, d_model: concatenated(positions, d_model)),
    "sinusoidal_halves": Positions(embed=lambda _, positions, d_model: halves(positions, d_model)),
    "rotary": Positions(rotate=rotary),
    "alibi": _alibi(alibi_slopes),
    "alibi_geometric": _alibi(alibi_geometric_slopes),
}


def positional_encoding_spec(config: TransformerConfig) -> Spec:
    """Returns the table of positions, where the encoding has one.

    Raises:
      UserError: the encoding is unknown, or does not fit the model's width.
    """
    kind = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
    if config.positions == "sinusoidal_concatenated" and config.d_model % 2:
        raise UserError(f"model.positions: 'sinusoidal_concatenated' needs an even model.d_model, got {config.d_model}")
    head_dim = config.d_model // config.n_heads
    if kind.rotate and head_dim % 2:
        raise UserError(f"model.positions: '{config.positions}' needs heads of even width, got {head_dim}")
    if not kind.table:
        return {}
    if config.position_stretch > 1:
        raise UserError(
            f"model.position_stretch: positions between the rows of a table; '{config.positions}' has a table"
        )
    n_rows = config.position_range or config.max_len
    return {"positions": Weight((n_rows, config.d_model), ("position", "embed"), kind.table)}


def positional_encoding(
    config: TransformerConfig, params: Params, x_BTD: jax.Array, positions_BT: jax.Array
) -> jax.Array:
    """Adds to each vector the encoding of its position, counted from 0, where the encoding is one that is added."""
    embed = POSITIONS[config.positions].embed
    if embed is None:
        return x_BTD
    return x_BTD + checkpoint_name(embed(params, positions_BT, config.d_model).astype(x_BTD.dtype), "positions")


def positions_in_training(config: TransformerConfig, tokens_BT: jax.Array, rng: jax.Array | None) -> jax.Array:
    """Returns the positions of a batch's tokens, [1, T] or [B, T]: 0, 1, …, or drawn at random.

    With a position_range each sequence's are drawn from it, in increasing order, so that training meets the positions
    of longer sequences too (Ruoss et al. 2023); with a position_stretch they are multiplied by a factor of its own.
    Without `rng` they are those of `positions_in_decoding`.
    """
    order_1T = jnp.arange(tokens_BT.shape[1])[None]
    if rng is None or (config.position_range == 0 and config.position_stretch == 1):
        return positions_in_decoding(config, order_1T)
    if config.position_range:
        keys_B = jax.random.split(rng, len(tokens_BT))
        drawn_BT = jax.vmap(lambda k: jax.random.choice(k, config.position_range, order_1T.shape[1:], replace=False))(
            keys_B
        )
        return jnp.sort(drawn_BT, axis=-1).astype(order_1T.dtype)
    return order_1T * jax.random.uniform(rng, (len(tokens_BT), 1), minval=1, maxval=config.position_stretch)


def positions_in_decoding(config: TransformerConfig, order_BT: jax.Array) -> jax.Array:
    """Returns the positions of the first, second, … token: 0, 1, …; or every position_gap-th of the position_range.

    Ruoss et al. draw positions in evaluation too, as many as the whole sequence has tokens. A decoder does not know how
    many there will be, and a token that is cached keeps its position; so the config says how far apart they are.
    """
    return order_BT * config.position_gap

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
    """A kind of positional encoding. Positions are [B, T], ints or floats; [1, T] serve a whole batch.

    What rotates and what biases reads positions of each head, [B, H, T], where `from_tokens` makes them.

    Attributes:
      embed: `embed(params, positions_BT, d_model)` [B, T, D], which is added to the embeddings.
      rotate: `rotate(x_BHTK, positions_BT)` [B, H, T, K], applied to queries and to keys.
      bias: `bias(n_heads, queries_BT, keys_BC)` [B, H, T, C], which is added to scores: the logarithm of the factor on
        what attends from the one position to the other.
      table: initializer of a trained table of positions, `params["positions"]` of the embedding.
      spec: `spec(config)`, the weights of a kind that has its own; they are `params["positions"]` of the embedding.
      from_tokens: `from_tokens(params, tokens_BT, previous_BH)`, float [B, H, T]: positions that the tokens themselves
        make, given those weights and the positions of the tokens before, 0 at the start of a row. A position may
        depend on its own token and on the position before it, and on no later token.
      penalty: `penalty(params, step)`, a scalar that training adds to the mean loss, given those weights.
    """

    embed: Callable[[Params, jax.Array, int], jax.Array] | None = None
    rotate: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    bias: Callable[[int, jax.Array, jax.Array], jax.Array] | None = None
    table: Callable[[jax.Array, tuple[int, ...], Any], jax.Array] | None = None
    spec: Callable[[TransformerConfig], Spec] | None = None
    from_tokens: Callable[[Params, jax.Array, jax.Array], jax.Array] | None = None
    penalty: Callable[[Params, jax.Array], jax.Array] | None = None


def of_queries(positions: jax.Array) -> jax.Array:
    """Returns positions [B, T] or of each head [B, H, T] as [B, 1 or H, T, 1]."""
    return positions[:, None, :, None] if positions.ndim == 2 else positions[..., None]


def of_keys(positions: jax.Array) -> jax.Array:
    """Returns positions [B, C] or of each head [B, H, C] as [B, 1 or H, 1, C]."""
    return positions[:, None, None] if positions.ndim == 2 else positions[:, :, None]


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
    """Returns the rows of the table at the positions; rows of NaN for a position beyond it."""
    del d_model
    if not jnp.issubdtype(positions_BT.dtype, jnp.integer):
        raise UserError(f"positions: a table has a row for each whole number; expected ints, got {positions_BT.dtype}")
    return params["positions"].at[positions_BT].get(mode="fill", fill_value=jnp.nan)


def rotary(x_BHTK: jax.Array, positions: jax.Array) -> jax.Array:
    """Turns each pair (x_2i, x_2i+1) by the angle p · 10000^(-2i/K) (seed 002, "rotary positional encoding").

    The product of a query and a key then depends on the distance between them (Su et al. 2021).
    """
    pairs = x_BHTK.reshape(*x_BHTK.shape[:-1], -1, 2)
    n_pairs = pairs.shape[-2]
    angles = of_queries(positions) * _frequencies(np.arange(n_pairs), n_pairs, 3)
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

    def bias(n_heads: int, queries: jax.Array, keys: jax.Array) -> jax.Array:
        distances_BHTC = jnp.abs(of_queries(queries) - of_keys(keys))
        return -jnp.array(slopes(n_heads)).reshape(1, n_heads, 1, 1) * distances_BHTC

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
    """Returns the table of positions, or the weights that the encoding has in its place.

    Raises:
      UserError: the encoding is unknown, or does not fit the model's width.
    """
    kind = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
    if config.positions == "sinusoidal_concatenated" and config.d_model % 2:
        raise UserError(f"model.positions: 'sinusoidal_concatenated' needs an even model.d_model, got {config.d_model}")
    head_dim = config.d_model // config.n_heads
    if kind.rotate and head_dim % 2:
        raise UserError(f"model.positions: '{config.positions}' needs heads of even width, got {head_dim}")
    if kind.from_tokens and config.n_groups != config.n_heads:
        raise UserError(f"model.n_kv_heads: '{config.positions}' has positions for each head; leave it at 0")
    if kind.spec:
        return {"positions": kind.spec(config)}
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


def token_positions(
    config: TransformerConfig,
    order_BT: jax.Array,
    given_BC: jax.Array | None = None,
    *,
    n_rows: int = 1,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Returns where tokens stand, [1, T] or [B, T], in training and in decoding.

    A row's tokens stand at 0, 1, … or where the batch says. Without `rng` a position_gap multiplies that. With it, as
    in training, a position_range draws each row's positions from that many, in increasing order, so that training meets
    the positions of longer sequences too (Ruoss et al. 2023); a position_stretch multiplies them by a factor of each
    row. Ruoss et al. draw positions in evaluation too, as many as the whole sequence has tokens. A decoder does not
    know how many there will be, and a token that is cached keeps its position; so the config says how far apart they
    are.

    Args:
      order_BT: 0 for a row's first token, 1 for its second, …
      given_BC: the batch's positions of a row's first, second, … token; None for 0, 1, …
      n_rows: of the batch.

    Raises:
      UserError: positions are given where another key makes them, or to a kernel that counts places.
    """
    positions_BT = order_BT
    if given_BC is not None:
        _check_given(config)
        order_BT = jnp.broadcast_to(order_BT, (given_BC.shape[0], order_BT.shape[1]))
        positions_BT = jnp.take_along_axis(given_BC, order_BT, axis=1)
    if rng is None or (config.position_range == 0 and config.position_stretch == 1):
        return positions_BT * config.position_gap
    if config.position_range:
        keys_B, shape = jax.random.split(rng, n_rows), order_BT.shape[1:]
        draw = jax.vmap(lambda key: jax.random.choice(key, config.position_range, shape, replace=False))
        return jnp.sort(draw(keys_B), axis=-1).astype(order_BT.dtype)
    return positions_BT * jax.random.uniform(rng, (n_rows, 1), minval=1, maxval=config.position_stretch)


def _check_given(config: TransformerConfig) -> None:
    """Raises a UserError if positions that a batch gives would not be what attention reads."""
    if config.position_range:
        raise UserError("positions: model.position_range draws them; give none, or set it to 0")
    if POSITIONS[config.positions].from_tokens:
        raise UserError(f"positions: model.positions '{config.positions}' makes them from the tokens; give none")
    if config.attention_implementation == "cudnn":
        raise UserError(
            "positions: model.attention_implementation 'cudnn' counts places; give none, or set it to 'xla'"
        )


def read_positions(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    previous_BH: jax.Array | None = None,
) -> jax.Array:
    """Returns the positions that attention reads: those given, or, float [B, H, T], those that the tokens make.

    Args:
      params: of the embedding.
      previous_BH: positions of the tokens before; None at the start of the rows.
    """
    from_tokens = POSITIONS[config.positions].from_tokens
    if from_tokens is None:
        return positions_BT
    if previous_BH is None:
        previous_BH = jnp.zeros((tokens_BT.shape[0], config.n_heads))
    return from_tokens(params["positions"], tokens_BT, previous_BH)


def position_penalty(config: TransformerConfig, *embeddings: str) -> Callable[[Params, jax.Array], jax.Array] | None:
    """Returns `penalty(params, step)`, the sum over the embeddings of these names, where the kind has a penalty."""
    penalty = POSITIONS[config.positions].penalty
    if penalty is None:
        return None
    return lambda params, step: jnp.array([penalty(params[name]["positions"], step) for name in embeddings]).sum()

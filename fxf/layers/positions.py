"""Positional encodings, which act on embeddings, on queries and keys, or on scores.

A new one needs a `Positions` and a line in `POSITIONS`.
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
from fxf.layers.rotary_frequencies import ROTARY_KEYS, rotary_frequencies
from fxf.weights import Params, Spec, Weight


class Positions(NamedTuple):
    """A kind of positional encoding. Positions are [B, T], ints or floats; [1, T] are those of every row.

    If `from_tokens` makes positions for each head, `rotate` and `bias` get positions [B, H, T].

    Attributes:
      embed: `embed(params, positions_BT, d_model)` returns [B, T, D], which is added to the embeddings.
      rotate: `rotate(config, x, positions_BT, is_global)` returns queries [B, H, T, K] or keys [B, G, T, K], rotated
        by their positions. `is_global` says whether the block is global; it is None without `config.global_every`.
      bias: `bias(n_heads, queries_BT, keys_BC)` returns [B, H, T, C], which is added to the scores, from the positions
        of queries and keys.
      table: initializer of a trained table of positions, `params["positions"]` of the embedding.
      spec: `spec(config)` returns the kind's own weights, which are `params["positions"]` of the embedding.
      from_tokens: `from_tokens(params, tokens_BT, previous_BH)` returns positions that the tokens themselves make,
        float [B, H, T], from these weights and the positions of the tokens before, which are 0 at the start of a row. A
        position may depend on its own token and on the position before it, but not on later tokens.
      penalty: `penalty(params, step)` returns a scalar that training adds to the mean loss, from these weights.
    """

    embed: Callable[[Params, jax.Array, int], jax.Array] | None = None
    rotate: Callable[[TransformerConfig, jax.Array, jax.Array, jax.Array | None], jax.Array] | None = None
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
    """Returns 10000^(-exponent / width) after `n_axes` axes of size 1.

    NumPy computes it in float64, because the position multiplies the rounding error, which is larger in XLA's power.
    """
    return (10000.0 ** (-exponents / width)).astype(np.float32).reshape((1,) * n_axes + (-1,))


def interleaved(positions: jax.Array, d_model: int) -> jax.Array:
    """Returns PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of it (seeds 003 and 004): [...] to [..., D]."""
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
    """Returns the rows of the table at the positions, [B, T, D]; NaN for positions beyond the table."""
    del d_model
    if not jnp.issubdtype(positions_BT.dtype, jnp.integer):
        raise UserError(f"positions: a table has a row for each whole number; expected ints, got {positions_BT.dtype}")
    return params["positions"].at[positions_BT].get(mode="fill", fill_value=jnp.nan)


def rotary(
    config: TransformerConfig, x: jax.Array, positions: jax.Array, is_global: jax.Array | None = None
) -> jax.Array:
    """Returns x with each pair (x_2i, x_2i+1) rotated by p · θ^(-2i/K) (seed 002, "rotary positional encoding").

    The product of a query and a key then depends on the distance between them (Su et al. 2021). θ is rope_theta, or
    local_rope_theta in a local block.
    """
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    n_pairs = pairs.shape[-2]
    angles = of_queries(positions) * rotary_frequencies(config, n_pairs, is_global).reshape(1, 1, 1, -1)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    rotated = jnp.stack([cos * pairs[..., 0] - sin * pairs[..., 1], sin * pairs[..., 0] + cos * pairs[..., 1]], axis=-1)
    return rotated.reshape(x.shape)


def alibi_slopes(n_heads: int) -> list[float]:
    """Returns the slopes 2^(-8 h / n_heads) for h = 1 … n_heads (seed 002, "ALiBi positional encoding")."""
    return [2.0 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]


def alibi_geometric_slopes(n_heads: int) -> list[float]:
    """Returns the slopes of the paper (Press et al. 2022), which differ if n_heads is no power of two.

    They are the slopes of the next lower power of two, then every second slope of the next higher one.
    """
    lower = 2 ** int(math.log2(n_heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: n_heads - lower]


def _alibi(slopes: Callable[[int], list[float]]) -> Positions:
    """Returns the encoding that adds -slope · |distance| to the scores, with one slope for each head."""

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
    """Returns the table of positions, or the encoding's own weights, or nothing.

    Raises:
      UserError: the encoding is unknown, or cannot be combined with another key.
    """
    kind = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
    if config.positions == "sinusoidal_concatenated" and config.d_model % 2:
        raise UserError(f"model.positions: 'sinusoidal_concatenated' needs an even model.d_model, got {config.d_model}")
    if kind.rotate and config.head_width % 2:
        raise UserError(f"model.positions: '{config.positions}' needs heads of even width, got {config.head_width}")
    for name, off in ROTARY_KEYS.items():
        if not kind.rotate and getattr(config, name) != off:
            raise UserError(f"model.{name}: model.positions '{config.positions}' does not read it; leave it at {off}")
    if kind.from_tokens and config.n_groups != config.n_heads:
        raise UserError(f"model.n_kv_heads: '{config.positions}' has positions for each head; leave it at 0")
    if kind.spec:
        return {"positions": kind.spec(config)}
    if not kind.table:
        return {}
    if config.position_stretch > 1:
        raise UserError(f"model.position_stretch: stretched positions have no row in the table of '{config.positions}'")
    n_rows = config.position_range or config.max_len
    return {"positions": Weight((n_rows, config.d_model), ("position", "embed"), kind.table)}


def positional_encoding(
    config: TransformerConfig, params: Params, x_BTD: jax.Array, positions_BT: jax.Array
) -> jax.Array:
    """Returns the vectors, to which an encoding with `embed` has been added; positions start from 0."""
    embed = POSITIONS[config.positions].embed
    if embed is None:
        return x_BTD
    return x_BTD + checkpoint_name(embed(params, positions_BT, config.d_model).astype(x_BTD.dtype), "positions")


def token_positions(
    config: TransformerConfig,
    indices_BT: jax.Array,
    given: jax.Array | None = None,
    *,
    n_rows: int = 1,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Returns the positions of tokens, [1, T] or [B, T], in training and in decoding.

    The positions of a row are 0, 1, … or those that the batch gives. Without `rng` they are multiplied by position_gap.
    With `rng`, as in training, a position_range draws the positions of each row from that range, in increasing order.
    Training then has the positions of longer sequences too (Ruoss et al. 2023). A position_stretch multiplies each row
    by a random factor. Ruoss et al. draw positions in evaluation too, as many as the whole sequence has tokens. A
    decoder does not know this number, and a cached token keeps its position, so position_gap is their distance.

    Args:
      indices_BT: the index of each token in its row, from 0.
      given: the positions that the batch gives for the tokens of a row; None for 0, 1, …
      n_rows: the number of rows of the batch.

    Raises:
      UserError: positions are given, but another key makes them, or the attention kernel cannot read them.
    """
    positions_BT = indices_BT
    if given is not None:
        _check_given(config)
        indices_BT = jnp.broadcast_to(indices_BT, (given.shape[0], indices_BT.shape[1]))
        positions_BT = jnp.take_along_axis(given, indices_BT, axis=1)
    if rng is None or (config.position_range == 0 and config.position_stretch == 1):
        return positions_BT * config.position_gap
    if config.position_range:
        keys_B, shape = jax.random.split(rng, n_rows), indices_BT.shape[1:]
        draw = jax.vmap(lambda key: jax.random.choice(key, config.position_range, shape, replace=False))
        return jnp.sort(draw(keys_B), axis=-1).astype(indices_BT.dtype)
    return positions_BT * jax.random.uniform(rng, (n_rows, 1), minval=1, maxval=config.position_stretch)


def _check_given(config: TransformerConfig) -> None:
    """Raises a UserError if attention would not read the positions that a batch gives."""
    if config.position_range:
        raise UserError("positions: model.position_range draws them; give none, or set it to 0")
    if POSITIONS[config.positions].from_tokens:
        raise UserError(f"positions: model.positions '{config.positions}' makes them from the tokens; give none")
    if config.attention_implementation == "flash" and config.window:
        raise UserError(
            "positions: the window of model.attention_implementation 'flash' assumes 0, 1, …; give none, or set it to "
            "'xla'"
        )


def attention_positions(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    positions: jax.Array,
    previous_BH: jax.Array | None = None,
) -> jax.Array:
    """Returns the positions that attention reads: `positions`, or the positions that the tokens make, [B, H, T].

    Args:
      params: the params of the embedding.
      previous_BH: positions of the tokens before; None at the start of the rows.
    """
    from_tokens = POSITIONS[config.positions].from_tokens
    if from_tokens is None:
        return positions
    if previous_BH is None:
        previous_BH = jnp.zeros((tokens_BT.shape[0], config.n_heads))
    return from_tokens(params["positions"], tokens_BT, previous_BH)


def position_penalty(config: TransformerConfig, *embeddings: str) -> Callable[[Params, jax.Array], jax.Array] | None:
    """Returns `penalty(params, step)`, the sum over the named embeddings, or None if the kind has no penalty."""
    penalty = POSITIONS[config.positions].penalty
    if penalty is None:
        return None
    return lambda params, step: jnp.array([penalty(params[name]["positions"], step) for name in embeddings]).sum()

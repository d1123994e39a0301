"""Positional encodings, which act on embeddings, on queries and keys, or on scores; and the positions of tokens.

A new encoding needs a `Positions` and a line in `POSITIONS`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import Choices, one_of
from fxf.base.errors import UserError
from fxf.base.on_gpu import embedding_lookup
from fxf.base.random_keys import keys_of_rows
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Places
from fxf.layers.linear import require_rows

LEAST_TURNS_KEPT = 4  # the scaling of Llama 3 keeps frequencies that turn this often within the trained length
YARN_TURNS = 32, 1  # YaRN interpolates between the pairs that turn this often


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


def sinusoids(_: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns the sinusoids of positions 1, 2, …, [rows, D]; an initializer (seed 004, "Positional Encoding")."""
    return interleaved(jnp.arange(1, shape[0] + 1), shape[1]).astype(dtype)


def random_rows(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns normal numbers with the mean square of sinusoids, 1/2, [rows, D]; an initializer.

    So models with a random table and with sinusoids differ by the directions of the rows and not by their size.
    """
    return jax.random.normal(key, shape, dtype) / math.sqrt(2)


def look_up(params: Params, positions_BT: jax.Array, _: int) -> jax.Array:
    """Returns the rows of the table at the positions, [B, T, D].

    Positions that are not ints, or beyond the table, raise a UserError. In a compiled program, positions beyond the
    table give NaN.
    """
    require_rows("positions", positions_BT, params["positions"])
    return embedding_lookup(params["positions"], positions_BT, beyond=math.nan)


def rotary(config: TransformerConfig, x: jax.Array, positions: jax.Array) -> jax.Array:
    """Returns x with each pair (x_2i, x_2i+1) rotated by p · θ^(-2i/K) (seed 002, "rotary positional encoding").

    The product of a query and a key then depends on the distance between them (Su et al. 2021). θ is rope_theta.
    """
    n_turned = int(x.shape[-1] * config.rotary_share)
    pairs = x[..., :n_turned].reshape(*x.shape[:-1], -1, 2)
    angles = positions[:, None, :, None] * rotary_frequencies(config, pairs.shape[-2]).reshape(1, 1, 1, -1)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    if config.rope_ramp == "longrope":
        pairs *= math.sqrt(1 + math.log(config.rope_factor) / math.log(config.rope_trained_len))
    rotated = jnp.stack([cos * pairs[..., 0] - sin * pairs[..., 1], sin * pairs[..., 0] + cos * pairs[..., 1]], axis=-1)
    turned = rotated.reshape(*x.shape[:-1], -1)
    return turned if n_turned == x.shape[-1] else jnp.concatenate([turned, x[..., n_turned:]], -1)


def rotary_frequencies(config: TransformerConfig, n_pairs: int) -> np.ndarray:
    """Returns the frequencies of the K/2 pairs of a head, [K/2]: θ^(-2i/K) / rope_factor (Chen et al. 2023).

    With a rope_trained_len, the factor divides only frequencies with longer wavelengths. Shorter ones are interpolated:
    by their turns, from a quarter of that length on (Grattafiori et al. 2024, Llama 3); or by their index, from 32
    turns to 1 (Peng et al. 2023, YaRN). LongRoPE has a factor for each pair (Ding et al. 2024). NumPy has float64.
    """
    frequencies, trained = config.rope_theta ** (-np.arange(n_pairs) / n_pairs), config.rope_trained_len
    if config.rope_ramp == "longrope":
        factors = pair_factors(config, n_pairs)[int(config.max_len > trained)]
        return (frequencies / factors).astype(jnp.result_type(float))
    turns = trained * frequencies / (2 * np.pi)  # within the trained length
    kept = np.clip((turns - 1) / (LEAST_TURNS_KEPT - 1), 0, 1)
    if config.rope_ramp != "llama3":
        # The fractional index of the pair that turns n times.
        first, last = (n_pairs * math.log(trained / (n * 2 * np.pi)) / math.log(config.rope_theta) for n in YARN_TURNS)
        if config.rope_ramp == "yarn":
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * n_pairs - 1)
        kept = 1 - np.clip((np.arange(n_pairs) - first) / ((last - first) or 0.001), 0, 1)
    return ((1 - kept) * frequencies / config.rope_factor + kept * frequencies).astype(jnp.result_type(float))


def pair_factors(config: TransformerConfig, n_pairs: int) -> np.ndarray:
    """Returns the factors of LongRoPE's wavelengths for short and for long sequences, [2, K/2].

    Raises:
      UserError: `rope_factors` are not two lists of a positive number for each pair of a head.
    """
    try:
        factors = np.array([each.split(",") for each in config.rope_factors.split(";")], float)
    except ValueError:  # not numbers, or not equally many of both
        factors = np.zeros(0)
    if factors.shape != (2, n_pairs) or not (factors > 0).all():
        raise UserError(f"model.rope_factors: expected twice {n_pairs} positive numbers, got {config.rope_factors!r}")
    return factors


def alibi_slopes(n_heads: int) -> list[float]:
    """Returns the slopes 2^(-8 h / n_heads) for h = 1 … n_heads (seed 002, "ALiBi positional encoding")."""
    return [2.0 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]


def alibi_geometric_slopes(n_heads: int) -> list[float]:
    """Returns the paper's slopes (Press et al. 2022): of the power of two below, then every second of the one above."""
    lower = 2 ** int(math.log2(n_heads))
    return alibi_slopes(lower) + alibi_slopes(2 * lower)[0::2][: n_heads - lower]


def alibi(slopes: Callable[[int], list[float]]) -> Positions:
    """Returns the encoding that adds -slope · |distance| to the scores, with one slope for each head."""

    def bias(n_heads: int, queries: jax.Array, keys: jax.Array) -> jax.Array:
        distances_B1TC = jnp.abs(queries[:, None, :, None] - keys[:, None, None])
        return -jnp.array(slopes(n_heads)).reshape(1, n_heads, 1, 1) * distances_B1TC

    return Positions(bias=bias)


POSITIONS = Choices(
    {
        "none": Positions(),
        "sinusoidal_trained": Positions(embed=look_up, table=sinusoids),
        "learned": Positions(embed=look_up, table=random_rows),
        "sinusoidal": Positions(embed=lambda _, positions, d_model: interleaved(positions, d_model)),
        "sinusoidal_concatenated": Positions(embed=lambda _, positions, d_model: concatenated(positions, d_model)),
        "sinusoidal_halves": Positions(embed=lambda _, positions, d_model: halves(positions, d_model)),
        "rotary": Positions(rotate=rotary),
        "alibi": alibi(alibi_slopes),
        "alibi_geometric": alibi(alibi_geometric_slopes),
    }
)


def positional_encoding_spec(config: TransformerConfig) -> Spec:
    """Returns the table of positions, or nothing.

    Raises:
      UserError: the encoding is unknown, or cannot be combined with another key.
    """
    kind = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
    if config.positions == "sinusoidal_concatenated" and config.d_model % 2:
        raise UserError(f"model.positions: 'sinusoidal_concatenated' needs an even model.d_model, got {config.d_model}")
    if kind.table and config.position_stretch > 1:
        raise UserError(f"model.position_stretch: stretched positions have no row in the table of '{config.positions}'")
    shape = (config.position_range or config.max_len, config.d_model)
    return {"positions": Weight(shape, ("position", "embed"), kind.table)} if kind.table else {}


def token_positions(config: TransformerConfig, indices_BT: jax.Array, given: jax.Array | None = None) -> jax.Array:
    """Returns the positions of tokens outside training, [1, T] or [B, T].

    The positions of a row are 0, 1, … times position_gap, or those that the batch gives.

    Args:
      indices_BT: the index of each token in its row, from 0.
      given: the positions that the batch gives for the tokens of a row; None for 0, 1, …

    Raises:
      UserError: positions are given, but another key makes them, or the attention kernel cannot read them.
    """
    if given is None:
        return indices_BT * config.position_gap
    if config.position_range:
        raise UserError("positions: model.position_range draws them; give none, or set it to 0")
    layers = [{**vars(config), **own} for own in ({}, *config.layers.values())]
    if any(each["attention_implementation"] == "flash" and each["window"] for each in layers):
        raise UserError("positions: windows of model.attention_implementation 'flash' assume 0, 1, …; set it to 'xla'")
    indices_BT = jnp.broadcast_to(indices_BT, (given.shape[0], indices_BT.shape[1]))
    given = given.astype(jnp.result_type(given, jnp.int32))  # a distance of unsigned ints would wrap
    return jnp.take_along_axis(given, indices_BT, axis=1)


def random_positions(config: TransformerConfig, positions_BT: jax.Array, n_rows: int, rng: jax.Array) -> jax.Array:
    """Returns the positions of tokens in training, [1, T] or [B, T].

    A position_range draws the positions of each row from that range, in increasing order. Training then has the
    positions of longer sequences too (Ruoss et al. 2023). A position_stretch multiplies each row by a random factor.
    Ruoss et al. draw positions in evaluation too, as many as the whole sequence has tokens. A decoder does not know
    this number, and a cached token keeps its position, so evaluation spaces positions by position_gap instead.
    `positions_BT` are the positions outside training, and B is n_rows.
    """
    if config.position_range:
        keys_B, shape = keys_of_rows(rng, n_rows), positions_BT.shape[1:]
        draw = jax.vmap(lambda key: jax.random.choice(key, config.position_range, shape, replace=False))
        return jnp.sort(draw(keys_B), axis=-1).astype(positions_BT.dtype)
    if config.position_stretch > 1:
        return positions_BT * jax.random.uniform(rng, (n_rows, 1), minval=1, maxval=config.position_stretch)
    return positions_BT


def require_room(config: TransformerConfig, n_tokens: int, name: str = "inputs", *, training: bool = False) -> None:
    """Raises a UserError if rows of n_tokens, without given positions, are too long for a table or for rope_factors.

    Args:
      name: the name of the tokens in the batch.
      training: whether positions are drawn from `config.position_range`, if there is one.
    """
    drawn, n_rows = config.position_range, config.position_range or config.max_len
    most = n_rows if training and drawn else (n_rows - 1) // config.position_gap + 1
    by_pair = config.rope_ramp == "longrope"
    if (POSITIONS[config.positions].table or by_pair) and n_tokens > most:
        what = "model.rope_factors are for" if by_pair else f"model.positions '{config.positions}' has a table of"
        has = f"{what} model.{'position_range' if drawn else 'max_len'} {n_rows}"
        raise UserError(f"{name}: expected at most {most} tokens in a row, got {n_tokens}; {has}")


def places_of(
    config: TransformerConfig, batch: Mapping[str, jax.Array], rng: jax.Array | None, causal: bool, name: str = "inputs"
) -> Places:
    """Returns the places of a batch's `inputs`, tokens [B, T] or vectors [B, T, F], with the optional arrays below.

    `input_mask` is false on padding; `positions`, `documents` (here from 0) and `order` are as in `Places`.

    Args:
      rng: the key of random positions in training; None outside it.
      causal: whether tokens see no later ones, where the batch has no `order`; otherwise all see all.
      name: the name of the tokens in errors.

    Raises:
      UserError: the rows are too long for a table of positions, or an array has no element for each token.
    """
    tokens, given, named = batch["inputs"], batch.get("positions"), ("input_mask", "positions", "documents", "order")
    of_tokens = tokens.shape[:2] if jnp.issubdtype(tokens.dtype, jnp.floating) else tokens.shape  # floats are vectors
    shapes = {"tokens": of_tokens, **{each: jnp.shape(batch[each]) for each in named if each in batch}}
    length = of_tokens[-1]
    for array, shape in shapes.items():
        # There may be more positions than tokens: those of tokens that decoding adds.
        if len(shape) != 2 or shape[1] < length or (shape[1] > length and array != "positions"):
            what = f"expected [B, T] with one for each of {length} tokens in a row, got the shape {[*shape]}"
            raise UserError(f"{array} of {name}: {what}")
    if given is None:
        require_room(config, length, name, training=rng is not None)
    indices_1T = jnp.arange(length)[None]
    positions = token_positions(config, indices_1T, given)
    if rng is not None:
        positions = random_positions(config, positions, len(tokens), rng)
    documents = jnp.asarray(batch["documents"], jnp.int32) + 1 if "documents" in batch else None
    if "input_mask" in batch:
        documents = jnp.where(jnp.asarray(batch["input_mask"], bool), 1 if documents is None else documents, 0)
    order = batch.get("order", indices_1T if causal else None)
    return Places(positions, order, documents, causal=causal and "order" not in batch)

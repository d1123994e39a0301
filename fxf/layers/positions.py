"""The table of positional encodings, and the positions of tokens in training and in decoding.

A new encoding needs a `Positions` and a line in `POSITIONS`.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from fxf.config import Choices, one_of, require_off
from fxf.errors import UserError
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Places
from fxf.layers.named import named
from fxf.layers.position_kinds import (
    ROTARY_KEYS,
    Positions,
    alibi,
    alibi_geometric_slopes,
    alibi_slopes,
    concatenated,
    halves,
    interleaved,
    look_up,
    random_rows,
    rotary,
    sinusoids,
)
from fxf.weights import Params, Spec, Weight

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
    if kind.rotate and config.head_width % 2:
        raise UserError(f"model.positions: '{config.positions}' needs heads of even width, got {config.head_width}")
    if not kind.rotate:
        require_off("model", config, ROTARY_KEYS, f"model.positions '{config.positions}' does not read it")
    if not kind.table:
        return {}
    if config.position_stretch > 1:
        raise UserError(f"model.position_stretch: stretched positions have no row in the table of '{config.positions}'")
    n_rows = config.position_range or config.max_len
    return {"positions": Weight((n_rows, config.d_model), ("position", "embed"), kind.table)}


def positional_encoding(
    config: TransformerConfig, params: Params, x_RTD: jax.Array, positions_RT: jax.Array
) -> jax.Array:
    """Returns the vectors, to which an encoding with `embed` has been added; positions are from 0."""
    kind = POSITIONS[config.positions]
    if kind.embed is None:
        return x_RTD
    added_RTD = kind.embed(params, positions_RT, config.d_model)
    return x_RTD + named("positions", added_RTD.astype(x_RTD.dtype))


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
        if config.position_range:
            raise UserError("positions: model.position_range draws them; give none, or set it to 0")
        if config.attention_implementation == "flash" and config.window:
            what = "the window of model.attention_implementation 'flash' assumes 0, 1, …"
            raise UserError(f"positions: {what}; give none, or set it to 'xla'")
        indices_BT = jnp.broadcast_to(indices_BT, (given.shape[0], indices_BT.shape[1]))
        positions_BT = jnp.take_along_axis(given, indices_BT, axis=1)
    if rng is None or (config.position_range == 0 and config.position_stretch == 1):
        return positions_BT * config.position_gap
    if config.position_range:
        keys_B, shape = jax.random.split(rng, n_rows), indices_BT.shape[1:]
        draw = jax.vmap(lambda key: jax.random.choice(key, config.position_range, shape, replace=False))
        return jnp.sort(draw(keys_B), axis=-1).astype(indices_BT.dtype)
    return positions_BT * jax.random.uniform(rng, (n_rows, 1), minval=1, maxval=config.position_stretch)


def require_room(config: TransformerConfig, n_tokens: int, name: str = "inputs", *, training: bool = False) -> None:
    """Raises a UserError if a table has no rows for so many tokens in a row, which no positions are given for.

    Args:
      name: that of the tokens in the batch.
      training: whether positions are drawn from `config.position_range`, if there is one.
    """
    if not POSITIONS[config.positions].table:
        return
    n_rows = config.position_range or config.max_len
    most = n_rows if training and config.position_range else (n_rows - 1) // config.position_gap + 1
    if n_tokens > most:
        table = f"model.{'position_range' if config.position_range else 'max_len'} {n_rows}"
        has = f"model.positions '{config.positions}' has a table of {table}"
        raise UserError(f"{name}: expected at most {most} tokens in a row, got {n_tokens}; {has}")


def places_of(
    config: TransformerConfig,
    batch: Mapping[str, jax.Array],
    rng: jax.Array | None,
    *,
    causal: bool,
    name: str = "inputs",
) -> Places:
    """Returns the places of the whole rows of a batch: `inputs` [B, T], and what it may have besides.

    `input_mask` is false on padding; `positions`, `documents` (here from 0) and `order` are as in `Places`.

    Args:
      rng: the key of random positions in training; None outside it.
      causal: whether the order is that of the tokens, where the batch gives none; else all see all.
      name: that of the tokens, for an error.

    Raises:
      UserError: a table has no rows for so many tokens.
    """
    (n_rows, length), given = batch["inputs"].shape, batch.get("positions")
    if given is None:
        require_room(config, length, name, training=rng is not None)
    indices_1T = jnp.arange(length)[None]
    positions = token_positions(config, indices_1T, given, n_rows=n_rows, rng=rng)
    documents, is_token_BT = batch.get("documents"), batch.get("input_mask")
    documents = None if documents is None else documents + 1
    if is_token_BT is not None:
        documents = jnp.where(jnp.asarray(is_token_BT, bool), 1 if documents is None else documents, 0)
    order = batch.get("order", indices_1T if causal else None)
    return Places(positions, order, documents, causal=causal and "order" not in batch)

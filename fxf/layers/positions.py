"""The table of positional encodings, and the positions of tokens in training and in decoding.

A new encoding needs a `Positions` and a line in `POSITIONS`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.config import Choices, one_of
from fxf.errors import UserError
from fxf.layers.config import TransformerConfig
from fxf.layers.position_kinds import (
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
from fxf.layers.rotary_frequencies import ROTARY_KEYS
from fxf.layers.turns import TURNS
from fxf.layers.walks import WALKS
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
        "turns": TURNS,
        "walks": WALKS,
    }
)


def positional_encoding_spec(config: TransformerConfig, vocab_size: int) -> Spec:
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
    if config.turns_settle_at and kind.penalty is None:
        raise UserError(f"model.turns_settle_at: model.positions '{config.positions}' does not read it; leave it at 0")
    if kind.n_walks is None and config.n_walks != (off := TransformerConfig.n_walks):
        raise UserError(f"model.n_walks: model.positions '{config.positions}' does not read it; leave it at {off}")
    if kind.from_tokens:
        _check_walk(config)
    if kind.spec:
        return {"positions": kind.spec(config, vocab_size)}
    if not kind.table:
        return {}
    if config.position_stretch > 1:
        raise UserError(f"model.position_stretch: stretched positions have no row in the table of '{config.positions}'")
    n_rows = config.position_range or config.max_len
    return {"positions": Weight((n_rows, config.d_model), ("position", "embed"), kind.table)}


def _check_walk(config: TransformerConfig) -> None:
    """Raises a UserError if another key does not go with positions that the tokens make."""
    if config.n_groups != config.n_heads:
        raise UserError(f"model.n_kv_heads: '{config.positions}' has positions for each head; leave it at 0")
    for name, off in (("position_range", 0), ("position_stretch", 1)):
        if getattr(config, name) != off:
            raise UserError(f"model.{name}: model.positions '{config.positions}' does not read it; leave it at {off}")
    if config.attention_implementation == "flash" and config.window:
        raise UserError(
            f"model.window: model.attention_implementation 'flash' counts tokens, and model.positions "
            f"'{config.positions}' makes other positions; set it to 0 or use 'xla'"
        )


def positional_encoding(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    positions_BT: jax.Array,
    states_BMTJ: jax.Array | None = None,
) -> jax.Array:
    """Returns the vectors, to which an encoding with `embed` or `from_states` has been added.

    Args:
      positions_BT: positions of the tokens, from 0.
      states_BMTJ: the states of the walks along the tokens, if there are any.
    """
    kind = POSITIONS[config.positions]
    if kind.embed is not None:
        added_BTD = kind.embed(params, positions_BT, config.d_model)
    elif kind.from_states is not None:
        assert states_BMTJ is not None
        added_BTD = kind.from_states(params["positions"], states_BMTJ)
    else:
        return x_BTD
    return x_BTD + checkpoint_name(added_BTD.astype(x_BTD.dtype), "positions")


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


def _check_given(config: TransformerConfig) -> None:
    """Raises a UserError if attention would not read the positions that a batch gives."""
    if config.position_range:
        raise UserError("positions: model.position_range draws them; give none, or set it to 0")
    if POSITIONS[config.positions].from_tokens:
        raise UserError(
            f"positions: model.positions '{config.positions}' makes them from the tokens; give none, and leave "
            "task.document_mask off"
        )
    if config.attention_implementation == "flash" and config.window:
        raise UserError(
            "positions: the window of model.attention_implementation 'flash' assumes 0, 1, …; give none, or set it to "
            "'xla'"
        )


def n_walks(config: TransformerConfig, params: Params) -> int:
    """Returns the number M of walks along a row's tokens; 0 if the tokens make no positions."""
    kind = POSITIONS[config.positions]
    if kind.from_tokens is None:
        return 0
    return config.n_heads if kind.n_walks is None else kind.n_walks(params["positions"])


def walk_states(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    before_BMJ: jax.Array | None = None,
    *,
    training: bool = False,
) -> jax.Array | None:
    """Returns the states [B, M, T, J] of the walks along the tokens, or None if the tokens make no positions.

    Args:
      params: the params of the embedding.
      before_BMJ: the states before the first token; None at the start of the rows.
      training: whether the weights change; otherwise they are those of scoring.
    """
    kind = POSITIONS[config.positions]
    if kind.from_tokens is None:
        return None
    weights = params["positions"]
    weights = weights if training or kind.scored is None else kind.scored(weights)
    if before_BMJ is None:
        before_BMJ = jnp.zeros((tokens_BT.shape[0], n_walks(config, params), kind.n_state))
    return kind.from_tokens(weights, tokens_BT, before_BMJ)


def attention_positions(config: TransformerConfig, positions_BT: jax.Array, states_BMTJ: jax.Array | None) -> jax.Array:
    """Returns the positions that attention reads: `positions_BT`, or those of the walks that heads read, [B, H, T]."""
    if states_BMTJ is None:
        return positions_BT
    of_heads = POSITIONS[config.positions].of_heads
    positions_BMT = states_BMTJ[..., 0]
    return positions_BMT if of_heads is None else positions_BMT[:, of_heads(config.n_heads, positions_BMT.shape[1])]


def whole_positions(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    given: jax.Array | None,
    rng: jax.Array | None,
    name: str = "inputs",
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Returns the positions and the states of the walks of whole rows, and the positions that attention reads.

    Args:
      params: the params of the embedding.
      given: the positions that the batch gives; None for 0, 1, …
      rng: the key of random positions in training; None outside it.
      name: that of the tokens in the batch.

    Raises:
      UserError: a table has no rows for so many tokens.
    """
    if given is None:
        require_room(config, tokens_BT.shape[1], name, training=rng is not None)
    indices_1T = jnp.arange(tokens_BT.shape[1])[None]
    positions_BT = token_positions(config, indices_1T, given, n_rows=tokens_BT.shape[0], rng=rng)
    states_BMTJ = walk_states(config, params, tokens_BT, training=rng is not None)
    return positions_BT, states_BMTJ, attention_positions(config, positions_BT, states_BMTJ)


def position_penalty(config: TransformerConfig, *embeddings: str) -> Callable[[Params, jax.Array], jax.Array] | None:
    """Returns `penalty(params, step)`, the sum over the named embeddings, or None if the kind has no penalty."""
    penalty = POSITIONS[config.positions].penalty
    if penalty is None:
        return None
    return lambda params, step: jnp.array(
        [penalty(config, params[name]["positions"], step) for name in embeddings]
    ).sum()

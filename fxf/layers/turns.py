"""Positions that the tokens make: each head walks along them, and some tokens turn it round.

A turn f in [-1, 1] of each token and head is learned. The direction of a token is the product of the turns before it,
and its position is the sum of the directions up to it. Where every turn is 1, positions are 1, 2, … If a separator
turns the walk, what follows it passes the positions before it in reverse order: a sequence and its reversal then have
the same positions at any length. The product of turns is that of the negative eigenvalues with which linear
recurrences know parity (Grazzi et al. 2024); other work sums what tokens contribute (Golovneva et al. 2024, "CoPE").
"""

import jax
import jax.numpy as jnp

from fxf.layers.config import TransformerConfig
from fxf.layers.position_kinds import Positions, alibi, alibi_slopes, rotary
from fxf.machine.on_gpu import rows_of
from fxf.weights import VOCABULARY, Params, Spec, Weight

PER_TURN = 10.0  # a turn is its weight times this; with a model's usual learning rate 20 steps can reverse it
UNDECIDED = 0.1  # weight of the penalty
GENTLE = 0.3  # factor of ALiBi's slopes: it lowers the scores of far positions, and those of near ones hardly


def turns_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    """Returns a turn for each token and head, which starts at 1."""
    start = jax.nn.initializers.constant(1 / PER_TURN)
    return {"turns": Weight((vocab_size, config.n_heads), (VOCABULARY, "heads"), start)}


def turns_of(params: Params) -> jax.Array:
    """Returns the turns in [-1, 1], [V, H]. Beyond the bounds the gradient passes straight through."""
    raw_VH = PER_TURN * params["turns"]
    return jax.lax.stop_gradient(jnp.clip(raw_VH, -1, 1)) + (raw_VH - jax.lax.stop_gradient(raw_VH))


def rounded(params: Params) -> Params:
    """Returns the weights with turns of exactly 1 or -1, which have the same positions at every length."""
    return {"turns": jnp.where(params["turns"] < 0, -1 / PER_TURN, 1 / PER_TURN)}


def undecided(config: TransformerConfig, params: Params, step: jax.Array) -> jax.Array:
    """Returns 0.1 Σ (1 - f²)² from the step turns_settle_at on, and 0 before.

    It moves turns to -1 or 1, to which scoring rounds them. From the start it would keep them all at 1.
    """
    settles = (config.turns_settle_at > 0) & (step >= config.turns_settle_at)
    return jnp.where(settles, UNDECIDED * jnp.sum((1 - turns_of(params) ** 2) ** 2), 0.0)


def walk(params: Params, tokens_BT: jax.Array, before_BMJ: jax.Array) -> jax.Array:
    """Returns the position of each token and the direction after it, [B, H, T, 2].

    The first token of a row has direction 1 and turns nothing.

    Args:
      before_BMJ: position and direction of the token before, which are 0 at the start of a row.
    """
    turns_BHT = rows_of(turns_of(params), tokens_BT).transpose(0, 2, 1)
    position_BH1, direction_BH1 = jnp.split(before_BMJ, 2, axis=-1)
    is_first_BH1 = direction_BH1 == 0
    direction_BH1 = jnp.where(is_first_BH1, 1, direction_BH1)
    first_BH1 = jnp.where(is_first_BH1, 1, turns_BHT[..., :1])
    after_BHT = direction_BH1 * jnp.cumprod(jnp.concatenate([first_BH1, turns_BHT[..., 1:]], axis=-1), axis=-1)
    directions_BHT = jnp.concatenate([direction_BH1, after_BHT[..., :-1]], axis=-1)
    return jnp.stack([position_BH1 + jnp.cumsum(directions_BHT, axis=-1), after_BHT], axis=-1)


TURNS = Positions(
    rotate=rotary,
    bias=alibi(alibi_slopes, GENTLE).bias,
    spec=turns_spec,
    from_tokens=walk,
    n_state=2,
    scored=rounded,
    penalty=undecided,
)

"""Positions of many walks along the tokens, each driven by one or two tokens; the walks have no trained weights.

A walk is a small automaton: a position, a direction and a stride. Each token may move it by a step, turn it round,
return it to 0, reflect its position to the other side of 0, take one step back, or lengthen its stride. All but the
turn and the stride are affine maps of the position, which compose along the sequence. The walks are the first of one
list: those of token 0, which leads each row and ends prompts, then those of tokens 1, 2, … Heads read the positions of
some walks. Every token reads a few bounded features of all of them: direction, side of 0, nearness to 0 and
remainders. Training only selects.

With `model.window` a walk is the head of a tape: each token writes at its position, and a query sees the last writing
at each position within the window. What a query sees is then as much in a long sequence as in a short one.

In a copy of a prompt the walk that token 0 returns has the positions of the prompt; in a reversal it is the walk that
token 0 turns; in a second copy the one that token 0 reflects. A walk that one token takes back has the depth of a
stack, of which the last writings are the elements. Walks that only one token moves count it, and those that two tokens
move count their difference.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.layers.config import TransformerConfig
from fxf.layers.position_kinds import Positions, alibi, alibi_slopes, rotary
from fxf.layers.turns import GENTLE
from fxf.weights import Params, Spec, Weight

NEAR = 4.0  # distance from 0 up to which a feature tells positions apart
MODULI = (2, 3, 5)
N_FEATURES = 4 + sum(1 if modulus == 2 else 2 for modulus in MODULI)
SMALL = 0.1  # deviation of the sum of a token's features at the start, against 1 of its embedding


class Effect(NamedTuple):
    """What a token does to a walk: its position is `keep` times that before it plus `step`. After it the position is
    `shift` more, the direction `turn` times what it was, and the length of a step at least `stride`."""

    step: int = 1
    keep: int = 1
    shift: int = 0
    turn: int = 1
    stride: int = 1


PLAIN, STAY, BACK = Effect(), Effect(step=0), Effect(step=0, shift=-1)
TURN, RETURN, REFLECT = Effect(turn=-1), Effect(keep=0), Effect(keep=-1)
FAR_RETURN, FAR_REFLECT = RETURN._replace(stride=2), REFLECT._replace(stride=2)
# The walks of token 0, by its effect; all tokens move them.
OF_SEPARATOR = (PLAIN, TURN, RETURN, REFLECT, FAR_RETURN, FAR_REFLECT)
# The walks of another token: its effect, that of token 0, and that of the others.
OF_TOKEN = (
    (BACK, TURN, PLAIN),
    (RETURN, RETURN, PLAIN),
    (RETURN, PLAIN, PLAIN),
    (TURN, PLAIN, PLAIN),
    (REFLECT, PLAIN, PLAIN),
    (PLAIN, STAY, STAY),
    (PLAIN, TURN._replace(step=0), STAY),
    (PLAIN, RETURN._replace(step=0), STAY),
    (PLAIN, REFLECT._replace(step=0), STAY),
)
FOR_HEADS = 5  # of OF_TOKEN, the kinds that heads read: several tokens of a count have one position
# The walk of two tokens: the effect of the higher one, of the lower one, and of the others.
OF_PAIR = (PLAIN, BACK, STAY)


class Walk(NamedTuple):
    """The effects of tokens on a walk, and its turn when heads choose walks: 0 for the first, None for no head."""

    of_tokens: dict[int, Effect]
    of_others: Effect
    turn: int | None


def bank(vocab_size: int) -> Iterator[Walk]:
    """Yields the walks of token 0, and then, for each other token, its own and those with each lower token."""
    for effect in OF_SEPARATOR:
        yield Walk({0: effect}, PLAIN, 0)
    for token in range(1, vocab_size):
        for kind, (own, of_separator, of_others) in enumerate(OF_TOKEN):
            yield Walk({token: own, 0: of_separator}, of_others, 1 + kind if kind < FOR_HEADS else None)
        for lower in range(1, token):
            higher, of_lower, of_others = OF_PAIR
            yield Walk({token: higher, lower: of_lower}, of_others, None)


def first_walks(n_walks: int, vocab_size: int | None = None) -> list[Walk]:
    """Returns the first walks of the bank, all those of a vocabulary at most; None for any."""
    return list(itertools.islice(bank(n_walks if vocab_size is None else vocab_size), n_walks))


@functools.cache
def effects(n_walks: int) -> np.ndarray:
    """Returns the effect of each token on each walk, [5, M, V'], where V' - 1 stands for all further tokens."""
    walks = first_walks(n_walks)
    n_tokens = 1 + max(max(walk.of_tokens) for walk in walks)
    table = np.array([[walk.of_tokens.get(i, walk.of_others) for i in range(n_tokens + 1)] for walk in walks])
    return table.transpose(2, 0, 1).astype(np.float32)


def count_walks(config: TransformerConfig, vocab_size: int) -> int:
    """Returns the number of walks: n_walks, or fewer if the tokens have no more."""
    return len(first_walks(config.n_walks, vocab_size))


def walks_of_heads(n_heads: int, n_walks: int) -> np.ndarray:
    """Returns the number of the walk that each head reads, int [H].

    Heads first take the walks of token 0, then one kind after the other for all tokens, then the same again.
    """
    turns = {i: walk.turn for i, walk in enumerate(first_walks(n_walks)) if walk.turn is not None}
    return np.resize(sorted(turns, key=lambda i: turns[i]), n_heads)


def walk(params: Params, tokens_BT: jax.Array, before_BMJ: jax.Array) -> jax.Array:
    """Returns the states of the walks at the tokens, [B, M, T, 4].

    The elements of a state are the position of the token, and after it the position, the direction and the stride.
    The first token of a row has position 1 and changes nothing else.

    Args:
      before_BMJ: the states at the token before, which are 0 at the start of a row.
    """
    table_MV = effects(before_BMJ.shape[1])
    of_tokens = jnp.asarray(table_MV)[:, :, jnp.minimum(tokens_BT, table_MV.shape[2] - 1)].transpose(0, 2, 1, 3)
    _, start_BM1, direction_BM1, length_BM1 = jnp.split(before_BMJ, 4, axis=-1)
    is_first_BM1 = direction_BM1 == 0
    step_BMT, keep_BMT, shift_BMT, turn_BMT, stride_BMT = (
        jnp.concatenate([jnp.where(is_first_BM1, plain, x[..., :1]), x[..., 1:]], axis=-1)
        for plain, x in zip(PLAIN, of_tokens, strict=True)
    )
    direction_BM1, length_BM1 = (jnp.where(is_first_BM1, 1, x) for x in (direction_BM1, length_BM1))
    behind_BMT = direction_BM1 * jnp.cumprod(turn_BMT, axis=-1)
    lengths_BMT = jnp.maximum(length_BM1, jax.lax.cummax(stride_BMT, axis=2))
    directions_BMT = jnp.concatenate([direction_BM1, behind_BMT[..., :-1]], axis=-1)
    strides_BMT = jnp.concatenate([length_BM1, lengths_BMT[..., :-1]], axis=-1)
    moves_BMT, shifts_BMT = (x * directions_BMT * strides_BMT for x in (step_BMT, shift_BMT))

    def then(first: tuple, second: tuple) -> tuple:
        return first[0] * second[0], second[0] * first[1] + second[1]

    kept_BMT, moved_BMT = jax.lax.associative_scan(then, (keep_BMT, moves_BMT + shifts_BMT), axis=-1)
    ends_BMT = kept_BMT * start_BM1 + moved_BMT
    return jnp.stack([ends_BMT - shifts_BMT, ends_BMT, behind_BMT, lengths_BMT], axis=-1)


def features(states_BMTJ: jax.Array) -> jax.Array:
    """Returns the features of the walks at each token, [B, T, M, Z], all from -1 to 1, whole-number positions or not.

    They are the direction, the side of 0, whether the position is 0, the position up to NEAR, and its remainders by
    MODULI as cosines and sines.
    """
    position_BMT, direction_BMT = states_BMTJ[..., 0], states_BMTJ[..., 2]
    found = [direction_BMT, jnp.sign(position_BMT), (position_BMT == 0).astype(position_BMT.dtype)]
    found.append(jnp.clip(position_BMT / NEAR, -1, 1))
    for modulus in MODULI:
        angle_BMT = 2 * np.pi / modulus * (position_BMT % modulus)
        found += [jnp.cos(angle_BMT)] if modulus == 2 else [jnp.cos(angle_BMT), jnp.sin(angle_BMT)]
    return jnp.stack(found, axis=-1).transpose(0, 2, 1, 3)


def walks_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    """Returns the map from the features of all walks to a token's vector."""
    n_walks = count_walks(config, vocab_size)
    start = jax.nn.initializers.normal(SMALL / np.sqrt(n_walks * N_FEATURES))
    return {"features": Weight((n_walks, N_FEATURES, config.d_model), ("walks", "features", "embed"), start)}


def added(params: Params, states_BMTJ: jax.Array) -> jax.Array:
    """Returns what the features add to the embeddings, [B, T, D]."""
    features_BTMZ, kernel_MZD = features(states_BMTJ), params["features"]
    return jnp.einsum("BTMZ,MZD->BTD", features_BTMZ, kernel_MZD)


WALKS = Positions(
    rotate=rotary,
    bias=alibi(alibi_slopes, GENTLE).bias,
    spec=walks_spec,
    from_tokens=walk,
    n_state=4,
    overwrites=True,
    n_walks=lambda params: params["features"].shape[0],
    of_heads=walks_of_heads,
    from_states=added,
)

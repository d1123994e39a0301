"""Positions of many walks along the tokens, each driven by one or two tokens; the walks have no trained weights.

fxf train --config=studies/walks --config.task.problem=duplicate_string --workdir=runs/walks

task.problem is a problem of Delétang et al. 2022. All problems have the same settings. The studies `length` and
`breadth` sweep this config.

A walk is a small automaton: a position, a direction and a stride. Each token may move it by a step, turn it round,
return it to 0, reflect its position to the other side of 0, take one step back, or lengthen its stride. All but the
turn and the stride are affine maps of the position, which compose along the sequence. The walks are the first of one
list: those of token 0, which leads each row and ends prompts, then those of tokens 1, 2, … Heads read the positions of
some walks. Every token reads a few bounded features of all of them: direction, side of 0, nearness to 0 and
remainders. Training only selects.

With a `model.window` a walk is the head of a `Tape`: each token writes at its position, and a query sees the last
writing at each position within the window. What a query sees is then as much in a long sequence as in a short one.

In a copy of a prompt the walk that token 0 returns has the positions of the prompt; in a reversal it is the walk that
token 0 turns; in a second copy the one that token 0 reflects. A walk that one token takes back has the depth of a
stack, whose elements are the last writings. Walks that only one token moves count it, and those that two tokens move
count their difference.

Letters of shapes, besides those of fxf: M walks, J elements of a walk's state, Z features of a walk.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from ml_collections import ConfigDict
from turns import OfTokens, at_head, distances, walked, with_positions  # type: ignore[import-not-found]

from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.layer import Context, Places
from fxf.models import RegisteredModel
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.experiment import default_config

NEAR = 4.0  # distance from 0 up to which a feature distinguishes positions
MODULI = (2, 3, 5)
N_FEATURES = 4 + sum(1 if modulus == 2 else 2 for modulus in MODULI)
SMALL = 0.1  # initial deviation of the sum of a token's features; that of its embedding is 1


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
FOR_HEADS = 5  # heads read the first kinds of OF_TOKEN; the others are counts, where several tokens share a position
# The walk of two tokens: the effect of the higher one, of the lower one, and of the others.
OF_PAIR = (PLAIN, BACK, STAY)


class Walk(NamedTuple):
    """The effects of tokens on a walk, and its turn when heads choose walks: 0 is first; no head reads it if None."""

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
    """Returns the first walks of the bank; with a vocab_size, at most those of its tokens."""
    return list(itertools.islice(bank(n_walks if vocab_size is None else vocab_size), n_walks))


@functools.cache
def effects(n_walks: int) -> np.ndarray:
    """Returns the effect of each token on each walk, [5, M, V'], where the last token represents all further ones."""
    walks = first_walks(n_walks)
    n_tokens = 1 + max(max(walk.of_tokens) for walk in walks)
    table = np.array([[walk.of_tokens.get(i, walk.of_others) for i in range(n_tokens + 1)] for walk in walks])
    return table.transpose(2, 0, 1).astype(np.float32)


def walks_of_heads(n_heads: int, n_walks: int) -> np.ndarray:
    """Returns the number of the walk that each head reads, int [H].

    Heads take the walks of token 0 first, then kind by kind those of the other tokens, then start again.
    """
    turns = {i: walk.turn for i, walk in enumerate(first_walks(n_walks)) if walk.turn is not None}
    return np.resize(sorted(turns, key=lambda i: turns[i]), n_heads)


def walk(tokens_RT: jax.Array, before_RMJ: jax.Array) -> jax.Array:
    """Returns the states of the walks at the tokens, [R, M, T, 4].

    The elements of a state are the position of the token, and after it the position, the direction and the stride.
    The first token of a row has position 1 and changes nothing else.

    Args:
      before_RMJ: the states at the token before, which are 0 at the start of a row.
    """
    table_MV = effects(before_RMJ.shape[1])
    of_tokens = jnp.asarray(table_MV)[:, :, jnp.minimum(tokens_RT, table_MV.shape[2] - 1)].transpose(0, 2, 1, 3)
    _, start_RM1, direction_RM1, length_RM1 = jnp.split(before_RMJ, 4, axis=-1)
    is_first_RM1 = direction_RM1 == 0
    step_RMT, keep_RMT, shift_RMT, turn_RMT, stride_RMT = (
        jnp.concatenate([jnp.where(is_first_RM1, plain, x[..., :1]), x[..., 1:]], axis=-1)
        for plain, x in zip(PLAIN, of_tokens, strict=True)
    )
    direction_RM1, length_RM1 = (jnp.where(is_first_RM1, 1, x) for x in (direction_RM1, length_RM1))
    behind_RMT = direction_RM1 * jnp.cumprod(turn_RMT, axis=-1)
    lengths_RMT = jnp.maximum(length_RM1, jax.lax.cummax(stride_RMT, axis=2))
    directions_RMT = jnp.concatenate([direction_RM1, behind_RMT[..., :-1]], axis=-1)
    strides_RMT = jnp.concatenate([length_RM1, lengths_RMT[..., :-1]], axis=-1)
    moves_RMT, shifts_RMT = (x * directions_RMT * strides_RMT for x in (step_RMT, shift_RMT))

    def then(first: tuple, second: tuple) -> tuple:
        return first[0] * second[0], second[0] * first[1] + second[1]

    kept_RMT, moved_RMT = jax.lax.associative_scan(then, (keep_RMT, moves_RMT + shifts_RMT), axis=-1)
    ends_RMT = kept_RMT * start_RM1 + moved_RMT
    return jnp.stack([ends_RMT - shifts_RMT, ends_RMT, behind_RMT, lengths_RMT], axis=-1)


def features(states_RMTJ: jax.Array) -> jax.Array:
    """Returns the features of the walks at each token, [R, T, M, Z], all from -1 to 1, whole-number positions or not.

    They are the direction, the side of 0, whether the position is 0, the position up to NEAR, and its remainders by
    MODULI as cosines and sines.
    """
    position_RMT, direction_RMT = states_RMTJ[..., 0], states_RMTJ[..., 2]
    found = [direction_RMT, jnp.sign(position_RMT), (position_RMT == 0).astype(position_RMT.dtype)]
    found.append(jnp.clip(position_RMT / NEAR, -1, 1))
    for modulus in MODULI:
        angle_RMT = 2 * np.pi / modulus * (position_RMT % modulus)
        found += [jnp.cos(angle_RMT)] if modulus == 2 else [jnp.cos(angle_RMT), jnp.sin(angle_RMT)]
    return jnp.stack(found, axis=-1).transpose(0, 2, 1, 3)


@dataclasses.dataclass(frozen=True)
class Walks:
    """The first walks of the bank, a block of their own, `walks:Walks()`, which adds their features to the stream."""

    d_model: int
    n_heads: int
    vocab_size: int
    n_walks: int = key(32, "at most this many walks: 6 of token 0, 9 of each other token, 1 of each pair", minimum=1)
    by_document: ClassVar[bool] = False

    def spec(self) -> Spec:
        """Returns the map from the features of all walks to a token's vector."""
        n_walks = len(first_walks(self.n_walks, self.vocab_size))
        start = jax.nn.initializers.normal(SMALL / np.sqrt(n_walks * N_FEATURES))
        return {"features": Weight((n_walks, N_FEATURES, self.d_model), ("walks", "features", "embed"), start)}

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        n_walks = params["features"].shape[0]
        states_RMTJ, context = walked(walk, (n_walks, 4), context)
        added_RTD = jnp.einsum("RTMZ,MZD->RTD", features(states_RMTJ), params["features"])
        context = with_positions(context, states_RMTJ[..., 0][:, walks_of_heads(self.n_heads, n_walks)])
        return x + checkpoint_name(added_RTD.astype(x.dtype), "positions"), context


class Tape(OfTokens):
    """Attention in which a query sees, of the tokens at one position within the window, only the last."""

    def seen(self, queries: Places, keys: Places, reads: jax.Array | None = None) -> jax.Array | None:
        seen_BHTC = super().seen(queries, keys, reads)
        if not self.config.window or queries.order is None or keys.order is None:
            return seen_BHTC
        assert seen_BHTC is not None
        if reads is None and queries.order.shape[1] > 1:
            return seen_BHTC & (next_writings(keys.positions)[:, :, None] > queries.order[:, None, :, None])
        return last_writings(seen_BHTC, distances(queries, keys), keys.order, self.config.window)


def next_writings(positions_BTH: jax.Array) -> jax.Array:
    """Returns the index of the next token at the position of each token of whole rows, int32 [B, H, T]."""
    positions_BHT = jnp.moveaxis(positions_BTH, 1, 2)
    order_BHT = jnp.argsort(positions_BHT, axis=-1, stable=True)
    sorted_BHT = jnp.take_along_axis(positions_BHT, order_BHT, axis=-1)
    is_followed_BHT = sorted_BHT[..., 1:] == sorted_BHT[..., :-1]
    never = jnp.iinfo(order_BHT.dtype).max
    followers_BHT = jnp.where(is_followed_BHT, order_BHT[..., 1:], never)
    followers_BHT = jnp.pad(followers_BHT, ((0, 0), (0, 0), (0, 1)), constant_values=never)
    return jnp.take_along_axis(followers_BHT, jnp.argsort(order_BHT, axis=-1), axis=-1)


def last_writings(seen_BHTC: jax.Array, distances_BHTC: jax.Array, order_BC: jax.Array, window: int) -> jax.Array:
    """Returns which of the keys that single queries see are the last at their positions, bool [B, H, T, C].

    It loops over the positions of the window, because each hypothesis of a beam has its own last keys.
    """
    order_B11C, last_BHTC = order_BC[:, None, None], jnp.zeros((1, 1, 1, 1), bool)
    for distance in range(1 - window, window):
        there_BHTC = seen_BHTC & (distances_BHTC == distance)
        latest_BHT1 = jnp.where(there_BHTC, order_B11C, -1).max(axis=-1, keepdims=True)
        last_BHTC |= there_BHTC & (order_B11C == latest_BHT1)
    return last_BHTC


@dataclasses.dataclass(frozen=True)
class WalkingConfig(TransformerLMConfig):
    """The `model` section of a language model with walks along its tokens."""

    name: str = "walking"  # type: ignore[assignment]
    positions: str = key("walks", "walks; or another kind of positions, without walks")
    n_walks: int = key(32, "at most this many walks: 6 of token 0, 9 of each other token, 1 of each pair", minimum=1)


def walking(config: WalkingConfig, vocab_size: int) -> Model:
    """Builds a language model; with positions 'walks' its first block is `Walks`, and its attention a `Tape`."""
    if config.positions != "walks":
        return transformer_lm(config, vocab_size)
    return transformer_lm(at_head(config, "walks:Walks()", "walks:Tape"), vocab_size)


WALKING = RegisteredModel(WalkingConfig, walking, in_place_of="transformer_lm")


def get_config() -> ConfigDict:
    config = default_config("problems:LENGTH", model="walks:WALKING")
    config.task.problem = "reverse_string"
    config.task.max_length, config.task.longest, config.task.score_every, config.task.examples = 40, 500, 500, 100
    config.model.n_walks, config.model.window, config.model.max_len = 144, 8, 1502
    config.model.n_layers, config.model.d_model, config.model.d_ff = 2, 64, 256
    config.model.n_heads, config.model.head_dim = 12, 8
    config.model.norm, config.model.activation = "rms", "gelu"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 3e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 800, 16
    config.log.tensorboard = False
    return config

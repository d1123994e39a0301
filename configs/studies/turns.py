"""Study: can a decoder reverse 1,000 symbols after training on at most 40, if tokens determine their positions?

fxf train --config=studies/turns --workdir=runs/turns
fxf sweep --config=studies/turns --workdir=runs/studies/turns --workers=2

Each token has a learned turn f in [-1, 1] for each head. The direction of a token is the product of the turns before
it, and its position is the sum of the directions up to it. Where every turn is 1, positions are 1, 2, … If a separator
turns the walk, the tokens after it pass the positions before it in reverse order: a sequence and its reversal then have
the same positions at any length. The product of turns is like that of the negative eigenvalues by which linear
recurrences track parity (Grazzi et al. 2024); other work sums what tokens contribute (Golovneva et al. 2024, "CoPE").

`Turns` walks at the head of the blocks, and `OfTokens` is the attention that reads its positions. `TURNING` is a
language model with both and a penalty by step. The walks of walks.py have the same attention.

Letters of shapes, besides those of fxf: M walks, J elements of a walk's state.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.on_gpu import embedding_lookup
from fxf.base.weights import VOCABULARY, Params, Spec, Weight
from fxf.layers.attention import Attention
from fxf.layers.layer import Context, Places
from fxf.layers.positions import alibi_slopes, rotary
from fxf.models import RegisteredModel
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

PER_TURN = 10.0  # a turn is its weight times this; with a model's usual learning rate 20 steps can reverse it
UNDECIDED = 0.1  # weight of the penalty
GENTLE = 0.3  # factor of ALiBi's slopes, which lower the scores of far positions, but hardly those of near ones
CARRIED = "token_positions"  # the positions that a walk leaves for the heads of later blocks, [R, T, H]
LONGEST = 1000


@dataclasses.dataclass(frozen=True)
class Turns:
    """A walk for each head, as a block of its own, `turns:Turns()`, which does not change the residual stream."""

    n_heads: int
    vocab_size: int
    by_document: ClassVar[bool] = False

    def spec(self) -> Spec:
        """Returns a turn for each token and head, which starts at 1."""
        start = jax.nn.initializers.constant(1 / PER_TURN)
        return {"turns": Weight((self.vocab_size, self.n_heads), (VOCABULARY, "heads"), start)}

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        turns_VH = turns_of(params if context.rng is not None else rounded(params))
        states_RHTJ, context = walked(lambda tokens, before: walk(turns_VH, tokens, before), (self.n_heads, 2), context)
        return x, with_positions(context, states_RHTJ[..., 0])


def turns_of(params: Params) -> jax.Array:
    """Returns the turns in [-1, 1], [V, H]. Beyond the bounds the gradient passes straight through."""
    raw_VH = PER_TURN * params["turns"]
    return jax.lax.stop_gradient(jnp.clip(raw_VH, -1, 1)) + (raw_VH - jax.lax.stop_gradient(raw_VH))


def rounded(params: Params) -> Params:
    """Returns the weights with turns of exactly 1 or -1, which give the same positions at every length."""
    return {"turns": jnp.where(params["turns"] < 0, -1 / PER_TURN, 1 / PER_TURN)}


def walk(turns_VH: jax.Array, tokens_RT: jax.Array, before_RHJ: jax.Array) -> jax.Array:
    """Returns the position of each token and the direction after it, [R, H, T, 2].

    The first token of a row has direction 1 and turns nothing.

    Args:
      before_RHJ: position and direction of the token before, which are 0 at the start of a row.
    """
    turns_RHT = embedding_lookup(turns_VH, tokens_RT).transpose(0, 2, 1)
    position_RH1, direction_RH1 = jnp.split(before_RHJ, 2, axis=-1)
    is_first_RH1 = direction_RH1 == 0
    direction_RH1 = jnp.where(is_first_RH1, 1, direction_RH1)
    first_RH1 = jnp.where(is_first_RH1, 1, turns_RHT[..., :1])
    after_RHT = direction_RH1 * jnp.cumprod(jnp.concatenate([first_RH1, turns_RHT[..., 1:]], axis=-1), axis=-1)
    directions_RHT = jnp.concatenate([direction_RH1, after_RHT[..., :-1]], axis=-1)
    return jnp.stack([position_RH1 + jnp.cumsum(directions_RHT, axis=-1), after_RHT], axis=-1)


def walked(
    walk: Callable[[jax.Array, jax.Array], jax.Array], shape: tuple[int, int], context: Context
) -> tuple[jax.Array, Context]:
    """Returns the states of M walks at the tokens, [R, M, T, J], and the context with the states after them.

    Args:
      walk: returns these states, from the tokens [R, T] and the states before them, [R, M, J], 0 at the start of a row.
      shape: M and J.
    """
    assert context.tokens is not None
    tokens_RT, n_rows = context.tokens, context.tokens.shape[0]
    before_RMJ = context.cache["states"] if context.cache else jnp.zeros((n_rows, *shape))
    states_RMTJ = walk(tokens_RT, before_RMJ)
    if context.cache is None:
        return states_RMTJ, context
    # The state after a prompt is that after its last token, before any padding.
    n_tokens_R = jnp.broadcast_to(context.real.sum(axis=1), n_rows)
    since_RMTJ = jnp.concatenate([before_RMJ[:, :, None], states_RMTJ], axis=2)
    after_RMJ = jnp.take_along_axis(since_RMTJ, n_tokens_R[:, None, None, None], axis=2)[:, :, 0]
    return states_RMTJ, context.replace(cache={"states": after_RMJ})


def with_positions(context: Context, positions_RHT: jax.Array) -> Context:
    """Returns the context that carries the positions of heads to the attention of later blocks."""
    return context.replace(carry={**context.carry, CARRIED: jnp.moveaxis(positions_RHT, 1, 2)})


class OfTokens(Attention):
    """Softmax attention with the positions that a walk leaves in the carry for each head.

    They rotate queries and keys, lower the scores of far keys a little, and define the window. A key is cached with its
    positions. `Places.positions` is [B, T, H], except for queries of another sequence (`elsewhere`).
    """

    def spec(self) -> Spec:
        if self.config.n_groups != self.config.n_heads:
            raise UserError("model.n_kv_heads: each head has its own positions; leave it at 0")
        return super().spec()

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        if CARRIED not in context.carry:
            what = "this attention reads positions that a walk makes from tokens"
            raise UserError(f"model.attention: {what}; begin model.blocks with 'turns:Turns();' or 'walks:Walks();'")
        places = context.places.replace(positions=context.carry[CARRIED])
        return super().apply(params, x, context.replace(places=places))

    def keys_values(self, params: Params, x_BTD: jax.Array, context: Context) -> tuple[Any, Context]:
        """Returns keys and values, and the positions of the keys, [B, H, T, 1]."""
        entries, context = super().keys_values(params, x_BTD, context)
        return (*entries, jnp.moveaxis(context.queries.positions, 2, 1)[..., None]), context

    def attend(
        self, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, context: Context
    ) -> jax.Array:
        k_BHCK, v_BHCK, *positions = memory
        for positions_BHC1 in positions:
            keys = keys.replace(positions=jnp.moveaxis(positions_BHC1[..., 0], 1, 2))
        return super().attend(params, q_BHTK, (k_BHCK, v_BHCK), queries, keys, context)

    def turned(self, x_BHTK: jax.Array, positions_BTH: jax.Array) -> jax.Array:
        def one_head(x_BTK: jax.Array, positions_BT: jax.Array) -> jax.Array:
            return rotary(self.config, x_BTK[:, None], positions_BT)[:, 0]

        return jax.vmap(one_head, in_axes=(1, 2), out_axes=1)(x_BHTK, positions_BTH)

    def bias(self, params: Params, queries: Places, keys: Places) -> jax.Array | None:
        slopes_1H11 = GENTLE * jnp.array(alibi_slopes(self.config.n_heads)).reshape(1, -1, 1, 1)
        return -slopes_1H11 * jnp.abs(distances(queries, keys))

    def seen(self, queries: Places, keys: Places, reads: jax.Array | None = None) -> jax.Array | None:
        if queries.elsewhere:
            return super().seen(queries, keys, reads)
        seen_BHTC = jnp.ones((1, 1, 1, 1), bool)
        if self.config.window:
            seen_BHTC = jnp.abs(distances(queries, keys)) < self.config.window
        for also_BTC in (queries.sees(keys), reads):
            seen_BHTC = seen_BHTC if also_BTC is None else seen_BHTC & also_BTC[:, None]
        return seen_BHTC


def distances(queries: Places, keys: Places) -> jax.Array:
    """Returns the positions of queries minus those of keys, for each head, [B, H, T, C]."""
    queries_BHT, keys_BHC = (jnp.moveaxis(places.positions, 2, 1) for places in (queries, keys))
    return queries_BHT[..., None] - keys_BHC[:, :, None]


@dataclasses.dataclass(frozen=True)
class TurningConfig(TransformerLMConfig):
    """The `model` section of a language model whose tokens turn walks."""

    name: str = "turning"  # type: ignore[assignment]
    positions: str = key("turns", "turns; or another kind of positions, without walks")
    turns_settle_at: int = key(
        0, "training step from which a penalty moves turns to -1 or 1, as in scoring; 0: no penalty", minimum=0
    )


def at_head(config: TransformerLMConfig, walks: str, attention: str) -> TransformerLMConfig:
    """Returns the config of a model with these walks at the head of its blocks and attention that reads them."""
    if config.attention != "softmax":
        raise UserError(f"model.attention: positions of walks need '{attention}'; leave it at 'softmax'")
    blocks, n_layers = f"{walks}; {config.blocks}", config.n_layers + 1
    return dataclasses.replace(config, blocks=blocks, n_layers=n_layers, attention=attention, positions="none")


def turning(config: TurningConfig, vocab_size: int) -> Model:
    """Builds a language model with a penalty on its turns from step turns_settle_at on."""
    settle_at = config.turns_settle_at
    if config.positions != "turns":
        if settle_at:
            raise UserError(f"model.turns_settle_at: positions '{config.positions}' do not read it; leave it at 0")
        return transformer_lm(config, vocab_size)
    model = transformer_lm(at_head(config, "turns:Turns()", "turns:OfTokens"), vocab_size)
    if not settle_at:
        return model
    return model._replace(penalty=lambda params, step: undecided(params["blocks"]["0"], settle_at, step))


def undecided(params: Params, settle_at: int, step: jax.Array) -> jax.Array:
    """Returns 0.1 Σ (1 - f²)² from the step settle_at on, and 0 before.

    It moves turns to -1 or 1, to which scoring rounds them. From the start it would keep them all at 1.
    """
    return jnp.where(step >= settle_at, UNDECIDED * jnp.sum((1 - turns_of(params) ** 2) ** 2), 0.0)


TURNING = RegisteredModel(TurningConfig, turning, in_place_of="transformer_lm")


def get_config() -> ConfigDict:
    config = default_config(task="reversal", model="turns:TURNING")
    config.task.max_length, config.task.longer, config.task.longer_every = 40, LONGEST - 40, 100
    config.task.examples = 100
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 1, 64, 128, 4
    config.model.window, config.model.max_len = 8, 2 * LONGEST + 2
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 5e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.model.turns_settle_at = 800, 64, 400
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    at_most_20 = {"task.max_length": 20, "task.longer": LONGEST - 20}
    rotary = {"model.positions": "rotary", "model.turns_settle_at": 0}
    mirrored = {**rotary, "task.mirrored": True, "model.window": 2}
    for keys, n_seeds in (
        ({}, 5),
        (at_most_20, 5),
        ({**at_most_20, **mirrored}, 5),
        ({"model.window": 0}, 2),
        (rotary, 2),
    ):
        for point in grid({"seed": range(n_seeds)}):
            add(**keys, **point)

"""Mixture of depths: a router lets only some tokens enter a block; the others skip it, so it computes less.

Raposo et al. 2024, "Mixture-of-Depths: Dynamically allocating compute in transformer-based language models",
arXiv 2404.02258. In training the best-scored share of each row's tokens enters, which looks ahead. So a term of the
objective teaches the router to score just these tokens above 0; outside training tokens with such a score enter.

fxf train --config=ideas/mixture_of_depths --workdir=runs/mixture_of_depths

Half of the tokens enter two of four blocks: test_loss 1.24; four plain blocks have 1.21, two have 1.35. metrics.jsonl
has figure/mixture_of_depths/agree, how often score and rank agree. It takes about a minute.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.layer import Context, Layer, Memory, Slots, remember
from fxf.layers.linear import as_float32
from fxf.layers.named import figure, term


@dataclasses.dataclass(frozen=True)
class Depths:
    """X + r (F X - X) for tokens that enter the blocks F, where r is a token's score; X for the others."""

    d_model: int
    part: Layer
    capacity: float = key(0.5, "the share of a row's tokens that enter in training", above=0)
    agree: float = key(0.01, "factor of the term that teaches the router which tokens enter", minimum=0)

    def spec(self) -> Spec:
        return {"router": Weight((self.d_model, 1), ("embed", "router"), fan_in()), "part": self.part.spec()}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        # Where a block has several residual streams [R, T, M, D], the router reads their sum.
        scores_RT = (as_float32(x) @ params["router"]).reshape(*x.shape[:2], -1).sum(-1)
        real_RT = jnp.broadcast_to(context.real, scores_RT.shape)
        enters_RT, n = real_RT & (scores_RT > 0), x.shape[1]
        if context.rng is not None:
            alone_RT, n = enters_RT, math.ceil(self.capacity * n)
            enters_RT = real_RT & (jnp.argsort(jnp.argsort(jnp.where(real_RT, -scores_RT, jnp.inf))) < n)
            losses_RT = jax.nn.softplus(jnp.where(enters_RT, -scores_RT, scores_RT))
            term("mixture_of_depths", self.agree * jnp.sum(losses_RT, where=real_RT), real_RT.sum())
            figure("mixture_of_depths/agree", jnp.mean(enters_RT == alone_RT, where=real_RT))

        order_RN = jnp.argsort(~enters_RT, stable=True)[:, :n]  # those that enter come first
        at = (jnp.arange(len(x))[:, None], order_RN)
        inside, entered = _inside(context, enters_RT, lambda x: jnp.broadcast_to(x, (len(order_RN), *x.shape[1:]))[at])
        y, after = self.part.apply(params["part"], x[at], inside)
        gates_RN = jnp.where(enters_RT, scores_RT, 0).astype(x.dtype)[at]
        x = x.at[at].add(jnp.expand_dims(gates_RN, (*range(2, x.ndim),)) * (y - x[at]))
        part = _in_order(after.cache, jnp.argsort(order_RN)) if context.cache == {} else after.cache
        return x, context.replace(cache=None if context.cache is None else {"entered": entered, "part": part})


def _inside(context: Context, enters_RT: jax.Array, pick: Any) -> tuple[Context, Any]:
    """Returns the context in which tokens that did not enter are padding, and the slots that record which entered."""
    places, table, cache = context.places, context.table, context.cache
    documents_RT = jnp.where(enters_RT, 1 if places.documents is None else places.documents, 0)
    inside = context.replace(places=places.replace(documents=documents_RT), cache=cache and cache["entered"])
    entered_BC1, _, slots = remember(inside, context.by_prompt(enters_RT[..., None]))
    if table is not None:
        documents = 1 if table.places.documents is None else table.places.documents
        table = table.replace(places=table.places.replace(documents=jnp.where(entered_BC1[..., 0], documents, 0)))
    return inside.replace(table=table, cache=cache and cache["part"]).pick(pick), slots


def _in_order(cache: Any, at_BT: jax.Array) -> Any:
    """Returns a cache with the tokens of its slots reordered."""

    def ordered(x_BTN: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x_BTN, at_BT.reshape(len(at_BT), *(1,) * (x_BTN.ndim - 3), -1, 1), -2)

    whole = lambda x: isinstance(x, (Slots, Memory))  # noqa: E731
    return jax.tree.map(lambda x: jax.tree.map(ordered, x) if isinstance(x, Slots) else x, cache, is_leaf=whole)


def get_config() -> ConfigDict:
    config = fxf.read_config("characters")
    config.task.length, config.train.steps = 64, 400
    config.model.update(n_layers=4, d_model=64, d_ff=256, max_len=64)
    config.model.blocks = "attention+feed_forward, mixture_of_depths:Depths(attention+feed_forward)"
    return config

"""Prefill and step of a decoder, by a cache or, where a layer keeps nothing for later tokens, by the whole sequence."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.weights import Params
from fxf.layers.block import Stack
from fxf.layers.cache import Cache
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context, Places
from fxf.layers.positions import require_room, token_positions
from fxf.models.model import Batch


class CachedDecoding:
    """Adds `prefill` and `step` of a `Model` to a class with its abstract methods."""

    config: TransformerConfig
    decoder: Stack

    def of_decoder(self, params: Params) -> Params:
        """Returns the weights of these blocks."""
        raise NotImplementedError

    def embed(self, params: Params, tokens_RT: jax.Array, positions_RT: jax.Array) -> jax.Array:
        """Returns the vectors of tokens, [R, T, D]."""
        raise NotImplementedError

    def source(self, params: Params, batch: Batch) -> tuple[jax.Array, Places] | None:
        """Returns what cross-attention reads of a batch of prompts; None if it reads nothing."""
        return None

    def readout(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits [..., V] of the residual stream [..., D]."""
        raise NotImplementedError

    def prefill(self, params: Params, batch: Batch, length: int) -> Cache:
        """Returns the cache after the prompts, with room for `length` tokens in each row."""
        tokens_BT, lengths_B, given = batch["inputs"], batch["lengths"], batch.get("positions")
        if given is None:
            require_room(self.config, tokens_BT.shape[1])
        else:  # as many as the cache has room for; no query reads the padded positions
            given = jnp.pad(given, ((0, 0), (0, max(length - given.shape[1], 0))), "edge")
        if not tokens_BT.size:  # empty prompts are padding
            tokens_BT = jnp.zeros((tokens_BT.shape[0], 1), tokens_BT.dtype)
        indices_1T = jnp.arange(tokens_BT.shape[1])[None]
        documents_BT = (indices_1T < lengths_B[:, None]).astype(jnp.int32)
        places = Places(token_positions(self.config, indices_1T, given), indices_1T, documents_BT)
        context = Context(places, tokens_BT, cache={}, source=self.source(params, batch))
        x = self.decoder.start(self.embed(params, tokens_BT, places.positions))
        _, context = self.decoder.apply(self.of_decoder(params), x, context)
        return Cache(context.cache, lengths_B, given).with_slots(max(length, tokens_BT.shape[1]))

    def step(self, params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        """Returns the logits after one more token of each row, [R, V], and the cache with it."""
        tokens_R1, indices_R1 = tokens_R[:, None], cache.lengths[:, None]
        positions_of = functools.partial(token_positions, self.config)
        positions_R1 = positions_of(indices_R1, cache.given)
        places = Places(positions_R1, indices_R1, jnp.ones_like(indices_R1))
        table = cache.table(positions_of)
        x = self.decoder.start(self.embed(params, tokens_R1, positions_R1))
        context = Context(places, tokens_R1, cache.layers, table)
        x, context = self.decoder.apply(self.of_decoder(params), x, context)
        cache = cache.replace(layers=context.cache, lengths=cache.lengths + 1)
        if table is not None:
            order_BC = None if table.reads_BWC is None else table.places.order
            cache = cache.replace(order_BC=order_BC, reads_BWC=table.reads_BWC)
        return self.readout(params, self.decoder.finish(x)[:, 0]), cache


class WholeSequences:
    """`prefill` and `step` of a model, as `CachedDecoding` has them, that read the whole sequence at each step."""

    def __init__(self, features: Any, readout: Any) -> None:
        self.features, self.readout = features, readout

    def prefill(self, params: Params, batch: Batch, length: int) -> Cache:
        del params
        tokens_BT = batch["inputs"]
        n_rows, n_tokens = tokens_BT.shape
        # A row that its prompt fills has no room: what is added to it is dropped.
        inputs_RT = jnp.zeros((n_rows, max(length, n_tokens)), tokens_BT.dtype).at[:, :n_tokens].set(tokens_BT)
        kept = {name: value for name, value in batch.items() if name not in ("inputs", "lengths")}
        return Cache({"inputs": inputs_RT, **kept}, batch["lengths"])

    def step(self, params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        rows_R = jnp.arange(tokens_R.shape[0])
        inputs_RT = cache.layers["inputs"].at[rows_R, cache.lengths].set(tokens_R)
        layers = {**cache.layers, "inputs": inputs_RT}
        is_token_RT = jnp.arange(inputs_RT.shape[1])[None] <= cache.lengths[:, None]
        x_RTD = self.features(params, {**layers, "input_mask": is_token_RT})
        x_RD = x_RTD[rows_R, cache.lengths]
        return self.readout(params, x_RD), cache.replace(layers=layers, lengths=cache.lengths + 1)

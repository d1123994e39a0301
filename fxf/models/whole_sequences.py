"""Prefill and step of a model that keeps nothing of earlier tokens."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.weights import Params
from fxf.layers.cache import Cache
from fxf.models.model import Batch


class WholeSequences:
    """`prefill` and `step` of a `Model` that read the whole sequence at each step."""

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

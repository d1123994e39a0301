"""Product-key memory: a layer reads a few of many trained values, which it finds by the two halves of their keys.

Lample et al. 2019, "Large Memory Layers with Product Keys", arXiv 1907.05242; without the batch norm of queries.

fxf train --config=ideas/product_keys --workdir=runs/product_keys

A memory of 1,024 values replaces one of two feed-forward layers: test_loss 1.33, with two feed-forward layers 1.35. It
takes about a minute.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32, linear


@dataclasses.dataclass(frozen=True)
class ProductKeys:
    """Σ softmax(scores) values over the best of N² keys (a_i, b_j), by head.

    The score q₁ · a_i + q₂ · b_j is among the best k only if each term is among the best k of its half.
    """

    d_model: int
    heads: int = key(4, "number of queries of a token", minimum=1)
    halves: int = key(32, "number N of first halves of keys, and of second halves; there are N² values", minimum=1)
    best: int = key(8, "number k of values that a query reads; at most N", minimum=1)
    half_dim: int = key(16, "width of half a key", minimum=1)
    value_rate: float = key(4.0, "learning rate of values, as a multiple of that of other weights", above=0)

    def spec(self) -> Spec:
        if self.best > self.halves:
            raise UserError(f"model.layers: best: expected at most halves {self.halves}, got {self.best}")
        shape = (2, self.heads, self.halves, self.half_dim)
        init = jax.nn.initializers.normal
        return {
            "query": Weight((self.d_model, 2 * self.heads * self.half_dim), ("embed", "heads"), fan_in()),
            "keys": Weight(shape, ("half", "heads", "memory", "head_dim"), init(self.half_dim**-0.5)),
            "values": Weight(
                (self.halves**2, self.d_model), ("memory", "embed"), init(self.d_model**-0.5), rate=self.value_rate
            ),
        }

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        queries = linear(x_RTD, params["query"]).reshape(*x_RTD.shape[:2], 2, self.heads, self.half_dim)
        scores = as_float32(jnp.einsum("RTsHK,sHNK->RTsHN", queries, params["keys"].astype(x_RTD.dtype)))
        scores_k, at_k = jax.lax.top_k(scores, self.best)
        sums = scores_k[:, :, 0, :, :, None] + scores_k[:, :, 1, :, None]
        rows = self.halves * at_k[:, :, 0, :, :, None] + at_k[:, :, 1, :, None]
        best, at = jax.lax.top_k(sums.reshape(*sums.shape[:-2], -1), self.best)
        rows_RTHk = jnp.take_along_axis(rows.reshape(*sums.shape[:-2], -1), at, -1)
        values = params["values"].astype(x_RTD.dtype)[rows_RTHk]
        return jnp.einsum("RTHk,RTHkD->RTD", jax.nn.softmax(best).astype(x_RTD.dtype), values), context


def get_config() -> ConfigDict:
    config = fxf.read_config("characters")
    config.task.length, config.train.steps = 64, 400
    blocks = "attention+feed_forward, attention+product_keys:ProductKeys"
    config.model.update(d_model=64, d_ff=256, max_len=64, blocks=blocks)
    return config

"""Attention over a whole sequence, one chunk of queries at a time: memory grows with the length, not its square.

Rabe and Staats 2021 (arXiv 2112.05682). The backward pass recomputes the weights of each chunk. It runs on any
device, in any precision, for every kind of attention with scores.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.devices import SEQUENCE, devices_along
from fxf.base.weights import Params
from fxf.layers.layer import Places

CHUNK = 256  # maximum queries of a chunk
# A chunk of causal attention skips later keys. So up to 4 chunks are faster than one, if each has 64 queries.
WORTHWHILE, SEVERAL = 64, 4
# Maximum chunks without a loop. A loop holds the scores of only one chunk at a time, but its chunks skip no keys.
UNROLLED = 4


def chunked(
    layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, rng: jax.Array | None
) -> jax.Array:
    """Returns what `layer.read` returns for all queries [B, H, T, K], computed chunk by chunk.

    Args:
      layer: the attention, whose `mask` gives the bias of a chunk.
      memory: keys and values, or any tree of arrays [B, …, C, n].
    """
    # With sharded sequences, a chunk has queries of each shard, so that each device computes some of them.
    parts = devices_along(SEQUENCE) if q_BHTK.shape[2] % devices_along(SEQUENCE) == 0 else 1
    n_queries = q_BHTK.shape[2] // parts
    n_chunks = -(-n_queries // CHUNK)
    causal = queries.causal and keys.causal and parts == 1
    if causal:
        n_chunks = max(n_chunks, min(SEVERAL, n_queries // WORTHWHILE))

    def attend_chunk(
        params: Params, q_BHTK: jax.Array, queries: Places, index: Any, memory: Any, keys: Places
    ) -> jax.Array:
        key = None if rng is None else jax.random.fold_in(rng, index)
        return layer.read(params, q_BHTK, memory, layer.mask(params, queries, keys), key)

    if n_chunks == 1:
        return attend_chunk(params, q_BHTK, queries, 0, memory, keys)
    attend_chunk = jax.checkpoint(attend_chunk)
    size = -(-n_queries // n_chunks)

    def sliced_chunk(index: int) -> jax.Array:
        chunk = slice(index * size, (index + 1) * size)
        seen = slice(chunk.stop if causal else None)
        chunk_queries, chunk_keys = queries.pick(lambda x_BT: x_BT[:, chunk]), keys.pick(lambda x_BT: x_BT[:, seen])
        entries = jax.tree.map(lambda x: x[..., seen, :], memory)
        return attend_chunk(params, q_BHTK[:, :, chunk], chunk_queries, index, entries, chunk_keys)

    if n_chunks <= UNROLLED and parts == 1:
        return jnp.concatenate([sliced_chunk(index) for index in range(n_chunks)], axis=2)

    # Copies of a part's last query pad its last chunk, so that every query sees a key.
    def in_chunks(x: jax.Array, axis: int) -> jax.Array:
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        x = x.reshape(*before, parts, n_queries, *after)
        missing = n_chunks * size - n_queries
        x = jnp.pad(x, [(0, missing if i == axis + 1 else 0) for i in range(x.ndim)], mode="edge")
        x = jnp.moveaxis(x.reshape(*before, parts, n_chunks, size, *after), axis + 1, 0)
        return x.reshape(n_chunks, *before, parts * size, *after)

    chunks = (in_chunks(q_BHTK, 2), queries.pick(lambda x: in_chunks(x, 1)), jnp.arange(n_chunks))
    heads_NBHTK = jax.lax.map(lambda chunk: attend_chunk(params, *chunk, memory, keys), chunks)
    shape = (*q_BHTK.shape[:2], parts, -1, heads_NBHTK.shape[-1])
    heads_BHPTK = jnp.moveaxis(heads_NBHTK.reshape(n_chunks, *shape), 0, 3).reshape(shape)[:, :, :, :n_queries]
    return heads_BHPTK.reshape(*q_BHTK.shape[:-1], -1)

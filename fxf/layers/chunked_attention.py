"""Attention of a whole sequence for some queries at a time, so that memory grows with the length and not its square.

Rabe and Staats 2021 (arXiv 2112.05682). The backward pass recomputes the weights of each chunk. It runs on any
device, in any precision, for each kind of attention with scores.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.weights import Params
from fxf.layers.context_parallel import n_parts
from fxf.layers.layer import Places

CHUNK = 256  # most queries of a chunk
# Chunks of causal attention leave out later keys, so that several are faster than one, if they have this many queries.
WORTHWHILE, SEVERAL = 64, 4
UNROLLED = 4  # most chunks outside a loop; XLA holds scores of several at once, but in a loop all have the same keys


def chunked(
    layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, rng: jax.Array | None
) -> jax.Array:
    """Returns what `layer.read` returns for queries [B, H, T, K], with the scores of `CHUNK` of them at a time.

    Args:
      layer: the attention, whose `mask` gives the bias of a chunk.
      memory: keys and values, or any tree of arrays [B, …, C, n].
    """
    # Of sequences in parts, a chunk has queries of each part, so that each device computes some of them.
    parts = n_parts() if q_BHTK.shape[2] % n_parts() == 0 else 1
    n_queries = q_BHTK.shape[2] // parts
    n_chunks = -(-n_queries // CHUNK)
    causal = queries.causal and keys.causal and parts == 1
    if causal:
        n_chunks = max(n_chunks, min(SEVERAL, n_queries // WORTHWHILE))

    def of_chunk(
        params: Params, q_BHTK: jax.Array, queries: Places, index: Any, memory: Any, keys: Places
    ) -> jax.Array:
        key = None if rng is None else jax.random.fold_in(rng, index)
        return layer.read(params, q_BHTK, memory, layer.mask(params, queries, keys), key)

    if n_chunks == 1:
        return of_chunk(params, q_BHTK, queries, 0, memory, keys)
    of_chunk = jax.checkpoint(of_chunk)
    size = -(-n_queries // n_chunks)

    def in_a_row(index: int) -> jax.Array:
        chunk = slice(index * size, (index + 1) * size)
        seen = slice(chunk.stop if causal else None)
        of_queries, of_keys = queries.pick(lambda x_BT: x_BT[:, chunk]), keys.pick(lambda x_BT: x_BT[:, seen])
        entries = jax.tree.map(lambda x: x[..., seen, :], memory)
        return of_chunk(params, q_BHTK[:, :, chunk], of_queries, index, entries, of_keys)

    if n_chunks <= UNROLLED and parts == 1:
        return jnp.concatenate([in_a_row(index) for index in range(n_chunks)], axis=2)

    # The last query of a part fills up its last chunk, so that each sees a key.
    def in_chunks(x: jax.Array, axis: int) -> jax.Array:
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        x = x.reshape(*before, parts, n_queries, *after)
        missing = n_chunks * size - n_queries
        x = jnp.pad(x, [(0, missing if i == axis + 1 else 0) for i in range(x.ndim)], mode="edge")
        x = jnp.moveaxis(x.reshape(*before, parts, n_chunks, size, *after), axis + 1, 0)
        return x.reshape(n_chunks, *before, parts * size, *after)

    chunks = (in_chunks(q_BHTK, 2), queries.pick(lambda x: in_chunks(x, 1)), jnp.arange(n_chunks))
    heads_NBHTK = jax.lax.map(lambda chunk: of_chunk(params, *chunk, memory, keys), chunks)
    shape = (*q_BHTK.shape[:2], parts, -1, heads_NBHTK.shape[-1])
    heads_BHPTK = jnp.moveaxis(heads_NBHTK.reshape(n_chunks, *shape), 0, 3).reshape(shape)[:, :, :, :n_queries]
    return heads_BHPTK.reshape(*q_BHTK.shape[:-1], -1)

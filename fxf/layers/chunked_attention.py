"""Attention of a whole sequence for some queries at a time, so that memory grows with the length and not its square.

Rabe and Staats 2021 (arXiv 2112.05682). The backward pass recomputes the weights of each chunk. It runs on any
device, in any precision, for each kind of attention with scores.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fxf.errors import UserError
from fxf.layers.attention_kinds import Attention, of_whole_sequences
from fxf.layers.cache import KeysValues
from fxf.layers.config import TransformerConfig
from fxf.layers.mask import Mask, Rows, all_rows, bias_of_rows, first_tokens

CHUNK = 256  # most queries of a chunk
# Chunks of causal attention leave out later keys, so that several are faster than one, if they have this many queries.
WORTHWHILE, SEVERAL = 64, 4
UNROLLED = 4  # most chunks outside a loop; XLA holds scores of several at once, but in a loop all have the same keys


def require_whole_sequences(n_sequences: int) -> None:
    """Raises a UserError if a mesh shards each sequence into so many parts."""
    if n_sequences > 1:
        raise UserError(
            "parallel.sequence: expected 1 with model.attention_implementation 'chunked', which cuts sequences itself, "
            f"got {n_sequences}"
        )


def chunked(kind: Attention) -> Attention:
    """Returns a kind of attention that computes the scores of `CHUNK` queries at a time when there is no cache."""

    def attend(
        config: TransformerConfig, q_BHTK: jax.Array, memory: KeysValues, mask: Mask, rng: jax.Array | None
    ) -> jax.Array:
        n_queries = q_BHTK.shape[2]
        n_chunks = -(-n_queries // CHUNK)
        if mask.causal:
            n_chunks = max(n_chunks, min(SEVERAL, n_queries // WORTHWHILE))
        rows = None if mask.positions is None else all_rows(mask)

        def of_chunk(q_BHTK: jax.Array, rows: Rows | None, index: Any, memory: KeysValues, mask: Mask) -> jax.Array:
            bias = mask.bias if rows is None else bias_of_rows(config, mask, rows)
            key = None if rng is None else jax.random.fold_in(rng, index)
            return kind.attend(config, q_BHTK, memory, dataclasses.replace(mask, bias=bias), key)

        if n_chunks == 1:
            return of_chunk(q_BHTK, rows, 0, memory, mask)
        of_chunk = jax.checkpoint(of_chunk)
        size = -(-n_queries // n_chunks)
        if n_chunks <= UNROLLED:
            heads = []
            for index, start in enumerate(range(0, n_queries, size)):
                chunk = slice(start, min(start + size, n_queries))
                q, of_rows = q_BHTK[:, :, chunk], jax.tree.map(lambda x, chunk=chunk: x[..., chunk], rows)
                seen = (memory, mask)
                if mask.causal:
                    seen = (
                        jax.tree.map(lambda x, end=chunk.stop: x[:, :, :end], memory),
                        first_tokens(mask, chunk.stop),
                    )
                heads.append(of_chunk(q, of_rows, index, *seen))
            return jnp.concatenate(heads, axis=2)

        # The last query fills up the last chunk, so that each sees a key.
        def in_chunks(x: jax.Array, axis: int) -> jax.Array:
            x = jnp.pad(x, [(0, n_chunks * size - n_queries if i == axis else 0) for i in range(x.ndim)], mode="edge")
            return jnp.moveaxis(x.reshape(*x.shape[:axis], n_chunks, size, *x.shape[axis + 1 :]), axis, 0)

        chunks = (in_chunks(q_BHTK, 2), jax.tree.map(lambda x: in_chunks(x, x.ndim - 1), rows), jnp.arange(n_chunks))
        heads_NBHTK = jax.lax.map(lambda chunk: of_chunk(*chunk, memory, mask), chunks)
        heads_BHNTK = jnp.moveaxis(heads_NBHTK, 0, 2)
        return heads_BHNTK.reshape(*q_BHTK.shape[:2], -1, q_BHTK.shape[-1])[:, :, :n_queries]

    return of_whole_sequences(kind, attend)

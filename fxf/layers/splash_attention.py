"""Flash attention on TPUs, by the splash attention of Pallas in JAX, which skips blocks of scores that a mask hides."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.layers import context_parallel
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Places
from fxf.layers.positions import POSITIONS

BLOCKS = (512, 384, 256, 128)  # lengths of a block of queries or keys; the kernel takes multiples of 128
HIDDEN = -1  # the document of keys that no query sees


def require(config: TransformerConfig, device: Any) -> None:
    """Raises a UserError if the kernel cannot compute this attention, on whatever TPU."""
    if POSITIONS[config.positions].bias is not None:
        without = [name for name, kind in POSITIONS.items() if kind.bias is None]
        raise UserError(
            f"model.positions: '{config.positions}' adds a bias to scores, which model.attention_implementation "
            f"'flash' cannot on a TPU; it can with {', '.join(without)}"
        )


def attend(layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places) -> jax.Array:
    """Returns what the queries read, [B, H, T, K].

    The window counts tokens, whose positions must be 0, 1, … in a row or document. Rows are filled up to whole blocks.
    """
    # Few programs need Pallas, and it takes long to import.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash

    del params  # there is no bias
    config, lengths, n_parts = layer.config, (q_BHTK.shape[2], memory[0].shape[2]), context_parallel.n_parts()
    causal, window = queries.causal and keys.causal, config.window if config.window < max(lengths) else 0
    swaps = causal and n_parts > 1 and not window
    n_pieces = n_parts * (1 + swaps)
    scale = config.query_scale or 1 / math.sqrt(q_BHTK.shape[-1])
    q_BHTK = _filled((q_BHTK.astype(jnp.float32) * scale).astype(q_BHTK.dtype), 2, n_pieces)
    arrays = [q_BHTK, *(_filled(x, 2) for x in memory)]
    documents = _documents(queries, keys, len(q_BHTK), lengths, q_BHTK.shape[2])
    shape = (q_BHTK.shape[2], arrays[1].shape[2])
    n_shards = n_parts if causal or window else 1  # where all see all, devices have the same kernel
    shape = (shape[0] * n_shards // n_parts, shape[1])
    softcap = config.attention_softcap
    kernel, tree = jax.tree.flatten(_kernel(shape, causal, window, softcap, n_shards, n_pieces // n_parts))

    def read(q_BHTK: jax.Array, k_BGCK: jax.Array, v_BGCK: jax.Array, *rest: jax.Array) -> jax.Array:
        kernel = jax.tree.unflatten(tree, rest[len(documents) :])
        segments = splash.SegmentIds(*rest[:2]) if documents else None
        return jax.vmap(kernel)(q_BHTK, k_BGCK, v_BGCK, segments)

    def local(q_BHTK: jax.Array, *rest: jax.Array) -> jax.Array:
        read_of = _with_small_residuals(read)
        if not swaps:
            return read_of(q_BHTK, *rest)
        of_queries = [context_parallel.swapped(x, 1) for x in rest[2:3] if documents]
        rest = (*rest[:2], *of_queries, *rest[2 + len(of_queries) :])
        return context_parallel.swapped(read_of(context_parallel.swapped(q_BHTK, 2), *rest), 2, back=True)

    axes = [
        "BHTK BGSK BGSK",
        *["BT", "BC"][: len(documents)],
        *(("T" if x.ndim == 1 else "ATC") if n_shards > 1 else "AQC"[: x.ndim] for x in kernel),
    ]
    heads_BHTK = context_parallel.mapped(local, " ".join(axes), *arrays, *documents, *kernel)
    return heads_BHTK[:, :, : lengths[0]]


def _filled(x: jax.Array, axis: int, n_pieces: int = 1, value: int = 0) -> jax.Array:
    """Returns an array whose axis is filled up to so many pieces of whole blocks."""
    missing = -x.shape[axis] % (n_pieces * min(BLOCKS))
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)], constant_values=value)


def _documents(
    queries: Places, keys: Places, n_rows: int, lengths: tuple[int, int], n_queries: int
) -> tuple[jax.Array, ...]:
    """Returns the document of each query [B, T] and key [B, C], filled up; nothing if all queries see all they may.

    A query sees the keys of its document. Keys that fill up are in a document of their own; queries that fill up are in
    the last one, so that they see something.
    """
    if queries.documents is None and keys.documents is None and (queries.causal or lengths[1] % min(BLOCKS) == 0):
        return ()
    of_queries_BT, of_keys_BC = (
        jnp.broadcast_to(
            jnp.ones((1, 1), jnp.int32) if places.documents is None else places.documents, (n_rows, length)
        )
        for places, length in zip((queries, keys), lengths, strict=True)
    )
    filled_BT = jnp.pad(of_queries_BT, ((0, 0), (0, n_queries - lengths[0])), "edge")
    return filled_BT, _filled(of_keys_BC, axis=1, value=HIDDEN)


def _kernel(
    shape: tuple[int, int], causal: bool, window: int, softcap: float, n_shards: int = 1, pieces: int = 1
) -> Any:
    """Returns the kernel for so many queries and keys, a tree of arrays that say which blocks it computes.

    Args:
      n_shards: devices that share the queries; each has one piece of them, or two if they are swapped.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    seen_TC: Any
    if window:
        seen_TC = _quick(masks.LocalMask)(shape, (window - 1, 0 if causal else window - 1), 0)
        seen_TC.distances = (0 if causal else 1 - window, window - 1)
    elif causal:
        seen_TC = _quick(masks.CausalMask)(shape)
        seen_TC.distances = (0, shape[0])
    else:
        seen_TC = masks.FullMask(shape)
    if pieces > 1:
        order = context_parallel.pieces_of_queries(n_shards).reshape(-1)
        seen_TC.q_sequence = seen_TC.q_sequence.reshape(len(order), -1)[order].reshape(-1)
    whole = (shape[0] // (n_shards * pieces), shape[1])
    q, k = (next(size for size in BLOCKS if length % size == 0) for length in whole)
    return splash.make_splash_mha(
        masks.MultiHeadMask([seen_TC]),
        block_sizes=splash.BlockSizes(
            block_q=q, block_kv=k, block_q_dkv=q, block_kv_dkv=k, block_q_dq=q, block_kv_dq=k
        ),
        attn_logits_soft_cap=softcap or None,
        head_shards=1,
        q_seq_shards=n_shards,
    )


@functools.cache
def _quick(mask: Any) -> Any:
    """Returns a class of masks that look at the distances of a block before its pairs: a long row has many blocks."""

    class Quick(mask):
        distances: tuple[int, int]  # the least and the largest from a query to a key that it sees

        def __getitem__(self, index: Any) -> np.ndarray:
            queries, keys = self.q_sequence[index[0]], range(self.shape[1])[index[1]]
            least, most = queries[0] - keys[-1], queries[-1] - keys[0]
            if most < self.distances[0] or least > self.distances[1]:
                return np.zeros(1, bool)
            if self.distances[0] <= least and most <= self.distances[1]:
                return np.ones(1, bool)
            return super().__getitem__(index)

    return Quick


def _with_small_residuals(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns a kernel whose forward pass leaves no more than its backward pass reads.

    A kernel writes the logarithm of a sum in 128 equal columns. XLA would keep them all until the backward pass takes
    one.
    """

    def forward(*arrays: jax.Array) -> tuple[jax.Array, Any]:
        rest = arrays[3:]
        read, backward = jax.vjp(lambda *arrays: kernel(*arrays, *rest), *arrays[:3])
        return jax.lax.optimization_barrier((read, (backward, rest)))

    def backward(residuals: Any, of_read: jax.Array) -> tuple[jax.Array | None, ...]:
        to_arrays, rest = residuals
        return (*to_arrays(of_read), *(None for _ in rest))

    with_gradient = jax.custom_vjp(kernel)
    with_gradient.defvjp(forward, backward)
    return with_gradient

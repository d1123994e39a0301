"""Flash attention on TPUs, by JAX's splash attention (Pallas), which skips blocks of scores that are masked."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.devices import SEQUENCE, devices_along
from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.layers import context_parallel
from fxf.layers.layer import Places

BLOCKS = (512, 384, 256, 128)  # lengths of a block of queries or keys; the kernel takes multiples of 128


def attend(layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places) -> jax.Array:
    """Returns the attention output, [B, H, T, K].

    The window counts tokens, so positions must be 0, 1, … in a row or document. Rows are padded to whole blocks:
    padding keys are in document 0, padding queries in the last document, so that they see some key.
    """
    # Few programs need Pallas, and it takes long to import.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash

    if layer.bias(params, queries, keys) is not None:
        raise UserError("model.attention_implementation: 'flash' has no bias of scores on a TPU; set it to 'chunked'")
    config, (n_rows, _, n_queries, width), n_keys = layer.config, q_BHTK.shape, memory[0].shape[2]
    causal, window = queries.causal and keys.causal, config.window if config.window < max(n_queries, n_keys) else 0
    if not causal and queries.order is not None and keys.order is not None:
        what = "on a TPU reads tokens in the order 0, 1, …, not in a batch's own or where a layer has picked some"
        raise UserError(f"model.attention_implementation: 'flash' {what}; set it to 'chunked'")
    n_parts = devices_along(SEQUENCE)
    swaps = causal and n_parts > 1 and not window
    n_pieces = n_parts * (1 + swaps)
    documents = []
    if not causal or queries.documents is not None or keys.documents is not None:
        of_queries_BT, of_keys_BC = (
            jnp.broadcast_to(1 if places.documents is None else places.documents, (n_rows, length))
            for places, length in ((queries, n_queries), (keys, n_keys))
        )
        filled_BT = _filled(of_queries_BT, 1, n_pieces, mode="edge")
        documents = [filled_BT, _filled(of_keys_BC, 1, n_pieces if window else 1)]
    scale = config.query_scale or 1 / math.sqrt(width)
    q_BHTK = _filled((q_BHTK.astype(jnp.float32) * scale).astype(q_BHTK.dtype), 2, n_pieces)
    # Within a window, padding queries see only padding keys.
    k_BGCK, v_BGCK = (_filled(x, 2, n_pieces if window else 1) for x in memory)
    shape = (q_BHTK.shape[2], k_BGCK.shape[2])
    kernel, tree = jax.tree.flatten(_kernel(shape, causal, window, config.attention_softcap, n_parts, swaps))

    def read(q_BHTK: jax.Array, k_BGCK: jax.Array, v_BGCK: jax.Array, *rest: jax.Array) -> jax.Array:
        kernel = jax.tree.unflatten(tree, rest[len(documents) :])
        segments = splash.SegmentIds(*rest[:2]) if documents else None
        return jax.vmap(kernel)(q_BHTK, k_BGCK, v_BGCK, segments)

    def local(q_BHTK: jax.Array, *rest: jax.Array) -> jax.Array:
        if not swaps:
            return _with_small_residuals(read)(q_BHTK, *rest)
        of_queries = [context_parallel.swapped(x, 1) for x in rest[2:3] if documents]
        rest = (*rest[:2], *of_queries, *rest[2 + len(of_queries) :])
        read_BHTK = _with_small_residuals(read)(context_parallel.swapped(q_BHTK, 2), *rest)
        return context_parallel.swapped(read_BHTK, 2, back=True)

    of_kernel = ("T" if x.ndim == 1 else "ATC" if causal or window else "AQC" for x in kernel)
    axes = ["BHTK BGSK BGSK", *["BT", "BC"][: len(documents)], *of_kernel]
    heads_BHTK = context_parallel.mapped(local, " ".join(axes), q_BHTK, k_BGCK, v_BGCK, *documents, *kernel)
    return heads_BHTK[:, :, :n_queries]


def _filled(x: jax.Array, axis: int, n_pieces: int = 1, **how: Any) -> jax.Array:
    """Returns an array with an axis padded to `n_pieces` pieces of whole blocks."""
    missing = -x.shape[axis] % (n_pieces * min(BLOCKS))
    return jnp.pad(x, [(0, missing if axis == i else 0) for i in range(x.ndim)], **how)


def _kernel(shape: tuple[int, int], causal: bool, window: int, softcap: float, n_parts: int, swaps: bool) -> Any:
    """Returns the kernel for `shape` queries and keys: a tree of arrays that say which blocks to compute.

    Args:
      n_parts: devices that share the queries; each has one piece of them, or two with `swaps`.
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
    else:  # all devices have the same kernel, without arrays
        shape, n_parts = (shape[0] // n_parts, shape[1]), 1
        seen_TC = masks.FullMask(shape)
    if swaps:
        order = context_parallel.pieces_of_queries(n_parts).reshape(-1)
        seen_TC.q_sequence = seen_TC.q_sequence.reshape(len(order), -1)[order].reshape(-1)
    whole = shape[0] // (n_parts * (1 + swaps)), shape[1]
    # The blocks at both edges of a window are computed whole; small ones add at most a sixteenth to the work.
    most = max(window // 16, min(BLOCKS)) if window else max(BLOCKS)
    q, k = (next(size for size in BLOCKS if size <= most and length % size == 0) for length in whole)
    # The fused backward kernel reads everything once, but writes gradients of queries for each block of keys.
    fused = whole[1] <= 2 * k
    backward: Any = {"block_kv_dkv_compute": k} if fused else {"block_q_dq": q, "block_kv_dq": k}
    blocks = splash.BlockSizes(
        block_q=q, block_kv=k, block_q_dkv=q, block_kv_dkv=k, use_fused_bwd_kernel=fused, **backward
    )
    return splash.make_splash_mha(
        masks.MultiHeadMask([seen_TC]),
        block_sizes=blocks,
        attn_logits_soft_cap=softcap or None,
        head_shards=1,
        q_seq_shards=n_parts,
    )


@functools.cache
def _quick(mask: Any) -> Any:
    """Returns a mask class that checks a block's range of distances before its pairs: a long row has many blocks."""

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
    """Returns a kernel whose forward pass keeps only what its backward pass reads.

    The kernel writes log sums in 128 equal columns. XLA would keep all of them until the backward pass takes one.
    """
    with_gradient = jax.custom_vjp(kernel)
    with_gradient.defvjp(
        lambda *arrays: jax.lax.optimization_barrier(jax.vjp(kernel, *arrays)),
        lambda to_arrays, of_read: to_arrays(of_read),
    )
    return with_gradient

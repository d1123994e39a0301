"""Flash attention on TPUs, by the splash attention of Pallas in JAX, which skips blocks of scores that a mask hides."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fxf.base.devices import ROWS, SEQUENCE, TENSOR, divides, target_mesh
from fxf.base.errors import UserError
from fxf.base.weights import Params
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
    del params  # there is no bias
    config, length = layer.config, q_BHTK.shape[2]
    scale = config.query_scale or 1 / math.sqrt(q_BHTK.shape[-1])
    q_BHTK = (q_BHTK.astype(jnp.float32) * scale).astype(q_BHTK.dtype)
    arrays = [_filled(x, axis=2) for x in (q_BHTK, *memory)]
    documents = _documents(queries, keys, q_BHTK.shape[0], (length, memory[0].shape[2]))
    causal = queries.causal and keys.causal
    heads_BHTK = mapped(lambda *arrays: _kernel(config, causal, *arrays), arrays, documents)
    return heads_BHTK[:, :, :length]


def _filled(x: jax.Array, axis: int, value: int = 0) -> jax.Array:
    """Returns an array whose axis is filled up to a multiple of the smallest block."""
    missing = -x.shape[axis] % min(BLOCKS)
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)], constant_values=value)


def _documents(queries: Places, keys: Places, n_rows: int, lengths: tuple[int, int]) -> tuple[jax.Array, ...]:
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
    missing = -lengths[0] % min(BLOCKS)
    return jnp.pad(of_queries_BT, ((0, 0), (0, missing)), "edge"), _filled(of_keys_BC, axis=1, value=HIDDEN)


def _kernel(config: TransformerConfig, causal: bool, *arrays: jax.Array) -> jax.Array:
    """Returns what queries [B, H, T, K] read of keys and values [B, G, C, K], in their documents if these follow."""
    # Few programs need Pallas, and it takes long to import.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    q_BHTK, k_BGCK = arrays[:2]
    shape = (q_BHTK.shape[2], k_BGCK.shape[2])
    seen_TC: Any
    if config.window:
        seen_TC = masks.LocalMask(shape, (config.window - 1, 0 if causal else config.window - 1), 0)
    else:
        seen_TC = masks.CausalMask(shape) if causal else masks.FullMask(shape)
    q, k = (next(size for size in BLOCKS if length % size == 0) for length in shape)
    blocks = splash.BlockSizes(block_q=q, block_kv=k, block_q_dkv=q, block_kv_dkv=k, block_q_dq=q, block_kv_dq=k)

    def read(*arrays: jax.Array) -> jax.Array:
        q_BHTK, k_BGCK, v_BGCK, *documents = arrays
        kernel = splash.make_splash_mha(
            masks.MultiHeadMask([seen_TC] * q_BHTK.shape[1]),
            block_sizes=blocks,
            attn_logits_soft_cap=config.attention_softcap or None,
            head_shards=1,
            q_seq_shards=1,
        )
        return jax.vmap(kernel)(q_BHTK, k_BGCK, v_BGCK, splash.SegmentIds(*documents) if documents else None)

    return _with_small_residuals(read)(*arrays)


def _with_small_residuals(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns a kernel whose forward pass leaves no more than its backward pass reads.

    A kernel writes the logarithm of a sum in 128 equal columns. XLA would keep them all until the backward pass takes
    one.
    """

    def forward(*arrays: jax.Array) -> tuple[jax.Array, Any]:
        documents = arrays[3:]
        read, backward = jax.vjp(lambda *arrays: kernel(*arrays, *documents), *arrays[:3])
        return jax.lax.optimization_barrier((read, (backward, documents)))

    def backward(residuals: Any, of_read: jax.Array) -> tuple[jax.Array | None, ...]:
        to_arrays, documents = residuals
        return (*to_arrays(of_read), *(None for _ in documents))

    with_gradient = jax.custom_vjp(kernel)
    with_gradient.defvjp(forward, backward)
    return with_gradient


def mapped(kernel: Callable[..., jax.Array], arrays: Sequence[jax.Array], documents: Sequence[jax.Array]) -> jax.Array:
    """Returns `kernel(*arrays, *documents)`, for which each device of the mesh computes its rows and heads.

    XLA does not shard a kernel. What shards sequences elsewhere shards heads here, where sequences are whole (Jacobs et
    al. 2023). Rows and heads that the mesh does not divide are whole on each device.

    Args:
      arrays: queries, keys and values, each [B, heads, length, K].
      documents: arrays [B, length].
    """
    mesh = target_mesh()
    if mesh is None:
        return kernel(*arrays, *documents)
    n_rows, n_groups = arrays[1].shape[:2]
    rows = next(axes for axes in (ROWS, ()) if divides(mesh, axes, n_rows))
    heads = next(axes for axes in ((TENSOR, SEQUENCE), (TENSOR,), ()) if divides(mesh, axes, n_groups))
    specs = (P(rows, heads),) * len(arrays) + (P(rows),) * len(documents)
    # What a kernel writes has no record of the axes over which it differs, which JAX would check.
    by_parts = jax.shard_map(kernel, mesh=mesh, in_specs=specs, out_specs=P(rows, heads), check_vma=False)
    return by_parts(*arrays, *documents)

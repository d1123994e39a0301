"""Flash attention on NVIDIA GPUs, by cuDNN.

`jax.nn.dot_product_attention(..., implementation="cudnn")` computes in bfloat16, on NVIDIA GPUs from Ampere on.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.cudnn import fused_attention_stablehlo as cudnn

from fxf.base.devices import SEQUENCE, devices_along
from fxf.base.weights import Params
from fxf.layers import context_parallel
from fxf.layers.layer import Places

IMPLEMENTATION: Any = "cudnn"


def attend(layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places) -> jax.Array:
    """Returns the attention output, [B, H, T, K].

    cuDNN has options for causal attention and its window. Padding, documents, a two-sided window and positional bias
    are passed as arrays [B, H, T, C], whose axes B and H may have size 1. The bias has the queries' precision.
    """
    config, in_parts = layer.config, devices_along(SEQUENCE) > 1
    arrays = [x.transpose(0, 2, 1, 3) for x in (q_BHTK, *memory)]
    n_queries, n_keys = (x.shape[1] for x in arrays[:2])
    bias = layer.bias(params, queries, keys)
    causal = queries.causal and keys.causal
    sees_all = queries.order is None and not config.window and n_keys % 2 == 0  # an odd length ends with padding
    plain = bias is None and keys.documents is None and (causal or sees_all)
    if causal and plain and in_parts:
        scale = config.query_scale or 1 / math.sqrt(q_BHTK.shape[-1])
        kernel = context_parallel.Kernel(partial(part, scale), partial(gradients_of_part, scale))
        return context_parallel.causal(kernel, config.window, *arrays).transpose(0, 2, 1, 3)

    pairs = {} if bias is None else {"bias": bias.astype(q_BHTK.dtype)}
    if not plain:
        pairs["mask"] = layer.mask(params, queries, keys) > -jnp.inf
    pairs = {name: jnp.broadcast_to(x, (*x.shape[:2], n_queries, n_keys)) for name, x in pairs.items()}

    # In training JAX refuses odd lengths. Padding keys are masked, and outputs of padding queries are dropped.
    def even(x: jax.Array, *axes: int) -> jax.Array:
        return jnp.pad(x, [(0, x.shape[axis] % 2 if axis in axes else 0) for axis in range(x.ndim)])

    def read(q_BTHK: jax.Array, k_BSGK: jax.Array, v_BSGK: jax.Array, *pairs_BHTC: jax.Array) -> jax.Array:
        options: dict[str, Any] = {name: even(x, 2, 3) for name, x in zip(pairs, pairs_BHTC, strict=True)}
        heads_BTHK = jax.nn.dot_product_attention(
            *(even(x, 1) for x in (q_BTHK, k_BSGK, v_BSGK)),
            **options,
            scale=config.query_scale or None,
            is_causal=causal and not in_parts,  # with sharded queries, the mask is causal
            local_window_size=(config.window - 1, 0) if plain and config.window else None,
            implementation=IMPLEMENTATION,
        )
        return heads_BTHK[:, : q_BTHK.shape[1]]

    arrays += pairs.values()
    axes = " ".join(["BTHK BCGK BCGK", *("BHTC" for _ in pairs)])
    heads_BTHK = context_parallel.mapped(read, axes, *arrays) if in_parts else read(*arrays)
    return heads_BTHK.transpose(0, 2, 1, 3)


# `jax.nn` rounds the log sums to bfloat16, and has no gradient for a range of the keys.


def part(
    scale: float, q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, window: int
) -> tuple[jax.Array, jax.Array]:
    """Returns the attention output over a range of keys, and its log sums; see `context_parallel.Kernel`."""
    mask_type = cudnn.MaskType.CAUSAL if causal else cudnn.MaskType.NO_MASK
    read, log_sums_BHT = cudnn.dot_product_attention(
        q, k, v, scale=scale, mask_type=mask_type, sliding_window_length=window or None, return_residual=True
    )
    return read, log_sums_BHT.swapaxes(1, 2)


def gradients_of_part(scale: float, *arrays: jax.Array, causal: bool, window: int = 0) -> Any:
    """Returns the gradients of queries, and of a range of keys and values; see `context_parallel.Kernel`."""
    *q_k_v, read, log_sums_BTH, d_read = arrays
    unused = (jnp.zeros(0, read.dtype),) * 7  # of bias, lengths and pages
    has_score_mod = jax.__version_info__ >= (0, 12)  # the rule's arguments changed
    others: Any = {"score_mod": None, "cudnn_version": 0} if has_score_mod else {"is_training": True}
    return cudnn._dot_product_attention_bwd_rule(
        scale=scale,
        seed=42,
        dropout_rate=0.0,
        variadic_args=(False, False),
        mask_type=cudnn.MaskType.CAUSAL if causal else cudnn.MaskType.NO_MASK,
        layout=cudnn.AttentionLayout.BTNH.value,
        sliding_window_length=window or None,
        return_residual=False,
        res=(*q_k_v, *unused, *[()] * has_score_mod, log_sums_BTH.swapaxes(1, 2), read),
        grad_output=d_read,
        **others,
    )[:3]

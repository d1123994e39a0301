"""Flash attention on NVIDIA GPUs, by cuDNN.

`jax.nn.dot_product_attention(..., implementation="cudnn")` computes in bfloat16, on NVIDIA GPUs from Ampere on.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Places

IMPLEMENTATION: Any = "cudnn"
AMPERE = 8.0  # compute capability of the first GPUs with cuDNN's flash attention


def require(config: TransformerConfig, device: Any) -> None:
    """Raises a UserError if the device has no flash attention of cuDNN, or this cannot compute what the config asks."""
    needs = "model.attention_implementation: flash needs"
    if not re.fullmatch(r"\d+\.\d+", device.compute_capability):  # AMD's is gfx90a
        raise UserError(f"{needs} an NVIDIA GPU or a TPU; the device here is {device.device_kind}")
    if float(device.compute_capability) < AMPERE:
        raise UserError(
            f"{needs} an NVIDIA GPU of compute capability {AMPERE} or more; {device.device_kind} is too old"
        )
    if config.attention_softcap:
        raise UserError(
            f"{needs} model.attention_softcap 0.0 on an NVIDIA GPU, got {config.attention_softcap}; a TPU has it"
        )
    if config.head_width % 8 or config.head_width > 128:
        raise UserError(
            f"{needs} heads whose width (model.head_dim, or model.d_model / model.n_heads) is a multiple of 8 and at "
            f"most 128 on an NVIDIA GPU, got {config.head_width}"
        )


def attend(layer: Any, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places) -> jax.Array:
    """Returns what the queries read, [B, H, T, K].

    cuDNN has options for causal attention and its window. Padding, documents, a window to both sides and the bias of
    positions are passed as arrays [B, H, T, C], whose axes B and H are as small as the mask's. The bias has the
    queries' precision.
    """
    config, (k_BGCK, v_BGCK) = layer.config, memory
    n_queries, n_keys = q_BHTK.shape[2], k_BGCK.shape[2]
    bias = layer.bias(params, queries, keys)
    causal = queries.causal and keys.causal
    plain = bias is None and (causal or (queries.order is None and not config.window)) and keys.documents is None

    # In training JAX refuses odd lengths. No query sees a key of padding, and the outputs of its queries are dropped.
    def even(x: jax.Array, *axes: int) -> jax.Array:
        return jnp.pad(x, [(0, x.shape[axis] % 2 if axis in axes else 0) for axis in range(x.ndim)])

    def full_size(x: jax.Array) -> jax.Array:
        return even(jnp.broadcast_to(x, (*x.shape[:2], n_queries, n_keys)), 2, 3)

    plain = plain and (causal or n_keys % 2 == 0)  # an odd length ends with a key of padding
    seen_BHTC = layer.mask(params, queries, keys) > -jnp.inf
    q_BTHK, k_BCGK, v_BCGK = (even(x, 2).transpose(0, 2, 1, 3) for x in (q_BHTK, k_BGCK, v_BGCK))
    heads_BTHK = jax.nn.dot_product_attention(
        q_BTHK,
        k_BCGK,
        v_BCGK,
        bias=None if bias is None else full_size(bias.astype(q_BHTK.dtype)),
        mask=None if plain else full_size(seen_BHTC),
        scale=config.query_scale or None,
        is_causal=causal,
        local_window_size=(config.window - 1, 0) if plain and config.window else None,
        implementation=IMPLEMENTATION,
    )
    return heads_BTHK[:, :n_queries].transpose(0, 2, 1, 3)

"""Flash attention on NVIDIA GPUs, by cuDNN.

`jax.nn.dot_product_attention(..., implementation="cudnn")` computes in bfloat16, on NVIDIA GPUs from Ampere on.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp

from fxf.errors import UserError
from fxf.layers.cache import KeysValues
from fxf.layers.config import TransformerConfig
from fxf.layers.mask import Mask
from fxf.layers.positions import POSITIONS

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


def attend(config: TransformerConfig, q_BHTK: jax.Array, memory: KeysValues, mask: Mask) -> jax.Array:
    """Returns what the queries read, [B, H, T, K].

    cuDNN has options for causal attention and its window. Padding, documents, a window to both sides and the bias of
    positions are passed as arrays [B, H, T, C], whose axes B and H are as small as the mask's. The bias has the
    queries' precision.
    """
    n_queries, n_keys = q_BHTK.shape[2], memory.keys.shape[2]
    has_bias = POSITIONS[config.positions].bias is not None
    all_causal = mask.causal and mask.is_token is None and mask.documents_BT is None
    plain = all_causal and mask.is_global is None and not has_bias

    # In training JAX refuses odd lengths. No query sees a key of padding, and the outputs of its queries are dropped.
    def even(x: jax.Array, *axes: int) -> jax.Array:
        return jnp.pad(x, [(0, x.shape[axis] % 2 if axis in axes else 0) for axis in range(x.ndim)])

    def full_size(x: jax.Array) -> jax.Array:
        return even(jnp.broadcast_to(x, (*x.shape[:2], n_queries, n_keys)), 2, 3)

    seen_BHTC = mask.bias > -jnp.inf
    q_BTHK, k_BCGK, v_BCGK = (even(x, 2).transpose(0, 2, 1, 3) for x in (q_BHTK, memory.keys, memory.values))
    heads_BTHK = jax.nn.dot_product_attention(
        q_BTHK,
        k_BCGK,
        v_BCGK,
        bias=full_size(jnp.where(seen_BHTC, mask.bias, 0).astype(q_BHTK.dtype)) if has_bias else None,
        mask=None if plain else full_size(seen_BHTC),
        scale=config.query_scale or None,
        is_causal=mask.causal,
        local_window_size=(config.window - 1, 0) if plain and config.window else None,
        implementation=IMPLEMENTATION,
    )
    return heads_BTHK[:, :n_queries].transpose(0, 2, 1, 3)

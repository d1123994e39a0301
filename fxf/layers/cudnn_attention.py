"""Softmax attention by cuDNN's flash attention, which never holds the scores whole in memory (Dao et al. 2022).

`jax.nn.dot_product_attention(..., implementation="cudnn")` computes in bfloat16, on NVIDIA GPUs from Ampere on.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.errors import UserError
from fxf.layers.cache import KeysValues
from fxf.layers.config import TransformerConfig
from fxf.layers.mask import Mask
from fxf.layers.positions import POSITIONS

IMPLEMENTATION: Any = "cudnn"
AMPERE = 8.0  # its compute capability


def require_nvidia_gpu() -> None:
    """Raises a UserError if the devices here have no flash attention of cuDNN."""
    device = jax.devices()[0]
    needs = "model.attention_implementation: cudnn needs an NVIDIA GPU"
    if device.platform != "gpu" or "cuda" not in device.client.platform_version.lower():
        raise UserError(f"{needs}; the device here is {device.platform}")
    if float(device.compute_capability) < AMPERE:
        raise UserError(f"{needs} of compute capability {AMPERE} or more; {device.device_kind} is too old")


def recall(
    config: TransformerConfig, q_BHTK: jax.Array, memory: KeysValues, mask: Mask, rng: jax.Array | None
) -> jax.Array:
    """Returns what the queries read, as `recall` of `Attention`: [B, H, T, K].

    Causal attention, also in a window, is handed over as such; what else the mask holds (padding, a window to both
    sides, the bias of positions) as arrays [B, H, T, C], of axes B and H as small as the mask's, the bias in the
    precision of the queries.

    Raises:
      UserError: the device has no flash attention of cuDNN.
    """
    del rng  # config refuses dropout of the weights, which are nowhere whole
    require_nvidia_gpu()
    n_queries, n_keys = q_BHTK.shape[2], memory.keys.shape[2]
    has_bias = POSITIONS[config.positions].bias is not None
    plain = mask.causal and mask.counts is None and not has_bias

    # In training JAX refuses odd lengths. A key that fills one up is one that no query sees; what a query reads that
    # does so is dropped.
    def even(x: jax.Array, *axes: int) -> jax.Array:
        return jnp.pad(x, [(0, x.shape[axis] % 2 if axis in axes else 0) for axis in range(x.ndim)])

    def whole(x: jax.Array) -> jax.Array:
        return even(jnp.broadcast_to(x, (*x.shape[:2], n_queries, n_keys)), 2, 3)

    seen_BHTC = mask.bias > -jnp.inf
    q_BTHK, k_BCGK, v_BCGK = (even(x, 2).transpose(0, 2, 1, 3) for x in (q_BHTK, memory.keys, memory.values))
    heads_BTHK = jax.nn.dot_product_attention(
        q_BTHK,
        k_BCGK,
        v_BCGK,
        bias=whole(jnp.where(seen_BHTC, mask.bias, 0).astype(q_BHTK.dtype)) if has_bias else None,
        mask=None if plain else whole(seen_BHTC),
        is_causal=mask.causal,
        local_window_size=(config.window - 1, 0) if plain and config.window else None,
        implementation=IMPLEMENTATION,
    )
    return heads_BTHK[:, :n_queries].transpose(0, 2, 1, 3)


def extend(
    config: TransformerConfig,
    q_BHTK: jax.Array,
    new: KeysValues,
    mask: Mask,
    cache: KeysValues | None,
    rng: jax.Array | None,
) -> tuple[jax.Array, None]:
    """Causal attention of whole sequences. Decoding with a cache goes by XLA (`cached_blocks`)."""
    assert cache is None
    return recall(config, q_BHTK, new, mask, rng), None

"""Multi-head latent attention: all heads share one short vector per token for keys and values (DeepSeek-V2, 2024).

The latent c = RMSNorm(x W_c) gives each head its keys and values, c W_k and c W_v. A second part of the keys, which all
heads share, is x W_r rotated by its position. The cache holds only c and the rotated part: L + P numbers per token
instead of 2 H K. A decoding step makes no keys or values of heads: W_k is absorbed into the query, q · (c W_k) =
(q W_kᵀ) · c, and W_v into the output, Σ w (c W_v) = (Σ w c) W_v.

Letters: L the width of a latent, P the width of the part with positions, N the width of the other part, V of values.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.config import key, require_off
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.attention import Attention
from fxf.layers.layer import Context, Places
from fxf.layers.linear import linear
from fxf.layers.normalization import over_root_mean_square, scale_factor, scale_weight


@dataclasses.dataclass(frozen=True)
class LatentAttention(Attention):
    """Attention from latents. Each query and key has the width of a head, plus the part with positions."""

    kv_rank: int = key(0, "width of the latent of keys and values; 0: 4 times the width of a head", minimum=0)
    q_rank: int = key(0, "width of the latent of queries; 0: no latent, queries come from the stream", minimum=0)
    rotary_width: int = key(0, "even width of the part with positions; 0: half the width of a head", minimum=0)
    value_width: int = key(0, "width of a head's values; 0: the width of a head", minimum=0)

    def spec(self) -> Spec:
        config, n_heads = self.config, self.config.n_heads
        self._check()
        d_model, rank = config.d_model, self.kv_rank or 4 * config.head_width
        value_width = self.value_width or config.head_width
        per_head, axes = ("heads", "head_dim"), ("embed", "latent")
        query = (n_heads, config.head_width + self.turned_width)
        spec = {"query": Weight((d_model, *query), ("embed", *per_head), fan_in())}
        if self.q_rank:
            spec = {
                "query_latent": Weight((d_model, self.q_rank), axes, fan_in()),
                "query_latent_scale": scale_weight(config, self.q_rank, "latent"),
                "query_up": Weight((self.q_rank, *query), ("latent", *per_head), fan_in()),
            }
        spec |= {
            "latent": Weight((d_model, rank), axes, fan_in()),
            "latent_scale": scale_weight(config, rank, "latent"),
            "key": Weight((d_model, self.turned_width), axes, fan_in()),
            "key_value": Weight((rank, n_heads, config.head_width + value_width), ("latent", *per_head), fan_in()),
            "output": Weight((n_heads, value_width, d_model), (*per_head, "embed"), fan_in(2)),
        }
        if config.attention_bias == "output":
            spec["output_bias"] = Weight((d_model,), ("embed",), jax.nn.initializers.zeros)
        return spec

    def project(self, params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
        """Maps vectors to the queries, [B, H, T, N + P]."""
        if not self.q_rank:
            return super().project(params, name, x_BTD)
        return super().project(params, f"{name}_up", self._latent(params, f"{name}_latent", x_BTD))

    def turned(self, x_BHTK: jax.Array, positions_BT: jax.Array) -> jax.Array:
        """Returns queries, or the keys' part with positions, with their last P elements rotated."""
        parts = jnp.split(x_BHTK, [x_BHTK.shape[-1] - self.turned_width], axis=-1)
        return jnp.concatenate([parts[0], super().turned(parts[1], positions_BT)], axis=-1)

    def keys_values(self, params: Params, x_BTD: jax.Array, context: Context) -> tuple[Any, Context]:
        """Returns the latents [B, T, L] and the rotated part of the keys [B, T, P], and the context."""
        latent_BTL, key_BTP = self.memorize(params, x_BTD, context.queries)
        return (latent_BTL, self.turned(key_BTP[:, None], context.queries.positions)[:, 0]), context

    def memorize(self, params: Params, source_BSD: jax.Array, places: Places) -> Any:
        """Returns the latents and the shared part of the keys, without positions."""
        return self._latent(params, "latent", source_BSD), linear(source_BSD, params["key"])

    def attend(
        self, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, context: Context
    ) -> jax.Array:
        """Returns the attention output of each head, [B, H, T, V]."""
        latent_BCL, key_BCP = memory
        weight_LHM, width = params["key_value"].astype(q_BHTK.dtype), self.config.head_width
        if context.table is None:  # many queries: keys and values are made once for all of them
            made_BHCM = jnp.einsum("BCL,LHM->BHCM", latent_BCL, weight_LHM)
            k_BHCN, v_BHCV = jnp.split(made_BHCM, [width], axis=-1)
            key_BHCP = jnp.broadcast_to(key_BCP[:, None], (*k_BHCN.shape[:-1], key_BCP.shape[-1]))
            made = jnp.concatenate([k_BHCN, key_BHCP], axis=-1), v_BHCV
            return super().attend(params, q_BHTK, made, queries, keys, context)
        absorbed_BHTL = jnp.einsum("BHTN,LHN->BHTL", q_BHTK[..., :width], weight_LHM[..., :width])
        q_BHTJ = jnp.concatenate([absorbed_BHTL, q_BHTK[..., width:]], axis=-1)
        if not self.config.query_scale:  # `scores` divides by the root of the wider query's width
            q_BHTJ = q_BHTJ * math.sqrt(q_BHTJ.shape[-1] / q_BHTK.shape[-1])
        k_B1CJ = jnp.concatenate([latent_BCL, key_BCP], axis=-1)[:, None]
        read_BHTL = super().attend(params, q_BHTJ, (k_B1CJ, latent_BCL[:, None]), queries, keys, context)
        return jnp.einsum("BHTL,LHV->BHTV", read_BHTL, weight_LHM[..., width:])

    def _latent(self, params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
        normalized = over_root_mean_square(linear(x_BTD, params[name]), self.config.norm_epsilon)
        return (normalized * scale_factor(self.config, params[f"{name}_scale"])[None, None]).astype(x_BTD.dtype)

    @property
    def turned_width(self) -> int:
        return self.rotary_width or max(2, self.config.head_width // 4 * 2)

    def _check(self) -> None:
        """Raises a UserError if a key does not go with latents."""
        super()._check()
        config = self.config
        unread = {"qk_norm": False, "base_width": 0, "n_kv_heads": 0, "rotary_share": 1.0}
        require_off("model", config, unread, "model.attention 'latent' does not read it")
        if config.attention_bias not in ("output", "none"):
            expected = "expected 'output' or 'none' with model.attention 'latent'"
            raise UserError(f"model.attention_bias: {expected}, got {config.attention_bias!r}")

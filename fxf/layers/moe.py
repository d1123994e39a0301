"""A mixture of experts: each token goes to the few feed-forward layers that a router chooses (Shazeer et al. 2017).

No token is dropped: the rows of all tokens and their experts are sorted by expert, and one product of groups maps each
row by the weight of its expert (Gale et al. 2022, MegaBlocks). Two methods balance the load of the experts: a term of
the objective (Fedus et al. 2021, Switch Transformers), and a bias of the choice that moves without gradients (Wang et
al. 2024).

Letters: N tokens, E experts, K experts of a token, M = N · K rows.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fxf.base.config import key
from fxf.base.devices import DATA, EXPERT, FSDP, ROWS, SEQUENCE, divides, target_mesh
from fxf.base.errors import UserError
from fxf.base.on_gpu import embedding_lookup, product_of_experts
from fxf.base.weights import Params, Spec, Weight, fan_in, stack
from fxf.layers import fp8
from fxf.layers.config import TransformerConfig
from fxf.layers.feed_forward import Dense, feed_forward
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32, linear
from fxf.layers.named import figure, moved, named, term

# Added to a sum of scores, which may be 0 in float32. The gradient divides by its square.
LEAST = 1e-18


@dataclasses.dataclass(frozen=True)
class MoE:
    """Feed-forward layers of the model's kind and width (`model.layers.NAME.d_ff` sets another), and their router."""

    config: TransformerConfig
    n_experts: int = key(8, "number of experts", minimum=1)
    top_k: int = key(2, "number of experts of a token", minimum=1)
    scores: Literal["softmax", "sigmoid"] = key("softmax", "how logits become scores; sigmoid is DeepSeek-V3's")
    normalized: bool = key(True, "divide the scores of a token's experts by their sum, to weigh the experts")
    scale: float = key(1.0, "factor of the weights of the experts", above=0)
    expert_groups: int = key(1, "equal groups of experts", minimum=1)
    best_in_group: int = key(2, "a group's score sums this many of its best experts; 1 in DeepSeek-V2", minimum=1)
    best_groups: int = key(1, "a token's experts are chosen from this many of the best groups", minimum=1)
    biased_logits: bool = key(False, "add a trained bias to the logits of the experts (gpt-oss)")
    d_shared: int = key(0, "width inside the shared expert, which every token passes; 0: no shared expert", minimum=0)
    shared_gate: bool = key(False, "gate the shared expert by a sigmoid of a linear map (Qwen2-MoE)", when="d_shared")
    balance: float = key(0.01, "factor of the load-balancing loss, which is 1 for an even load", minimum=0)
    bias_rate: float = key(0.0, "how far a step moves an expert's bias against its load; 0: no bias", minimum=0)

    @property
    def by_row(self) -> bool:
        """Whether rows of a batch are independent: the balance term multiplies sums over all rows."""
        return not self.balance

    def spec(self) -> Spec:
        self._check()
        config = self.config
        bias = Weight((self.n_experts,), ("router",), jax.nn.initializers.zeros)
        gate = Weight((config.d_model, 1), ("embed", "router"), fan_in(size=config.base_d_model))
        return {
            "router": dataclasses.replace(gate, shape=(config.d_model, self.n_experts)),
            **({"router_bias": dataclasses.replace(bias, rate=self.bias_rate, by="sign")} if self.bias_rate else {}),
            **({"logits_bias": bias} if self.biased_logits else {}),
            "experts": stack(Dense(config).spec(), self.n_experts, EXPERT),
            **({"shared": Dense(self._shared).spec()} if self.d_shared else {}),
            **({"shared_gate": gate} if self.shared_gate else {}),
        }

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the weighted sum of the chosen experts' outputs, plus the shared expert's, [R, T, D]."""
        scores_RTE, chosen_RTK, weights_RTK = self.route(params, x_RTD)
        self._balance_load(params, scores_RTE, chosen_RTK, context.real)
        y_RTD = apply_experts(self.config, params["experts"], x_RTD, chosen_RTK, weights_RTK)
        if self.d_shared:
            shared_RTD = feed_forward(self._shared, params["shared"], x_RTD)
            if self.shared_gate:
                shared_RTD = shared_RTD * jax.nn.sigmoid(self._logits(x_RTD, params["shared_gate"])).astype(x_RTD.dtype)
            y_RTD = y_RTD + shared_RTD
        return y_RTD, context

    def route(self, params: Params, x_RTD: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the scores of the experts [R, T, E], and the chosen experts with their weights, each [R, T, K]."""
        logits_RTE = self._logits(x_RTD, params["router"])
        logits_RTE = logits_RTE + params["logits_bias"][None, None] if self.biased_logits else logits_RTE
        scores_RTE = jax.nn.softmax(logits_RTE) if self.scores == "softmax" else jax.nn.sigmoid(logits_RTE)
        # The bias acts on the choice, and not on the weights.
        preferences_RTE = scores_RTE + params["router_bias"][None, None] if self.bias_rate else scores_RTE
        chosen_RTK = jax.lax.top_k(self._within_best_groups(preferences_RTE), self.top_k)[1]
        weights_RTK = jnp.take_along_axis(scores_RTE, chosen_RTK, axis=-1)
        if self.normalized:
            weights_RTK = weights_RTK / (weights_RTK.sum(-1, keepdims=True) + LEAST)
        return scores_RTE, chosen_RTK, self.scale * weights_RTK

    def _logits(self, x_RTD: jax.Array, w_DE: jax.Array) -> jax.Array:
        """Returns the router's logits in float32 or float64; model.base_width scales them like those of the readout."""
        with fp8.products(False):
            logits = linear(as_float32(x_RTD), w_DE)
        return logits * (self.config.base_d_model / self.config.d_model)

    def _within_best_groups(self, preferences_RTE: jax.Array) -> jax.Array:
        """Returns the preferences, with -inf for the experts outside of a token's best groups (DeepSeek-V3, 2024)."""
        if self.expert_groups == 1:
            return preferences_RTE
        in_groups = preferences_RTE.reshape(*preferences_RTE.shape[:-1], self.expert_groups, -1)
        group_scores = jax.lax.top_k(in_groups, min(self.best_in_group, in_groups.shape[-1]))[0].sum(-1)
        best = jax.lax.top_k(group_scores, self.best_groups)[1]
        is_best = jax.nn.one_hot(best, self.expert_groups).sum(-2) > 0
        return jnp.where(is_best[..., None], in_groups, -jnp.inf).reshape(preferences_RTE.shape)

    def _balance_load(self, params: Params, scores_RTE: jax.Array, chosen_RTK: jax.Array, real_RT: jax.Array) -> None:
        """Adds the balance term, the move of the bias, and a metric of the load to training.

        `moe/max_violation` is the busiest expert's load, minus the mean, over the mean (Wang et al. 2024). Padding that
        `input_mask` or `documents` names does not count. Other padding does, as do the rows that fill a batch up to a
        multiple of the devices.
        """
        real_RT1 = jnp.broadcast_to(real_RT, chosen_RTK.shape[:2])[..., None]
        taken_RTE = jax.nn.one_hot(chosen_RTK, self.n_experts, dtype=scores_RTE.dtype).sum(-2)
        counts_E = jnp.where(real_RT1, taken_RTE, 0).sum((0, 1))
        n = real_RT1.sum().astype(scores_RTE.dtype)
        loads_E = named("loads", counts_E / jnp.maximum(n * self.top_k, 1))
        shares_RTE = scores_RTE / (scores_RTE.sum(-1, keepdims=True) + LEAST)
        total_E = jnp.where(real_RT1, shares_RTE, 0).sum((0, 1))
        if self.balance:
            term("moe/balance", self.balance * self.n_experts * jnp.sum(loads_E * total_E), n)
        if self.bias_rate:
            # The numbers add up over the parts of a batch, so that the sign is that of the whole batch.
            moved("moe/router_bias", params["router_bias"], self.n_experts * counts_E - n * self.top_k)
        figure("moe/max_violation", self.n_experts * loads_E.max() - 1)

    @property
    def _shared(self) -> TransformerConfig:
        return dataclasses.replace(self.config, d_ff=self.d_shared)

    def _check(self) -> None:
        """Raises a UserError if the numbers of experts do not fit each other."""
        if self.n_experts % self.expert_groups:
            what = f"{self.expert_groups} does not divide n_experts {self.n_experts}"
            raise UserError(f"model.layers: expert_groups: {what}")
        n_candidates = self.n_experts // self.expert_groups * self.best_groups
        for name, most in (("best_groups", self.expert_groups), ("top_k", n_candidates)):
            if getattr(self, name) > most:
                raise UserError(f"model.layers: {name}: expected at most {most}, got {getattr(self, name)}")


def apply_experts(
    config: TransformerConfig, params: Params, x_RTD: jax.Array, chosen_RTK: jax.Array, weights_RTK: jax.Array
) -> jax.Array:
    """Returns the weighted sum of the outputs of each vector's experts, [R, T, D].

    The n devices along the mesh axis `expert` hold E / n experts and R / n rows each. They gather the rows, and each
    adds the part of its own experts to all of them. If the mesh does not divide rows, tokens or experts, the compiler
    decides on the sharding.

    Args:
      params: the weights of a feed-forward layer, each with an axis of experts in front.
    """
    mesh, arrays = target_mesh(), (x_RTD, chosen_RTK, weights_RTK)

    def local(params: Params, *arrays: jax.Array) -> jax.Array:
        # Devices that hold the same experts sum their gradients in the type of the weights.
        params = jax.lax.pcast(params, (DATA, FSDP, SEQUENCE), to="varying")
        x_RTD, chosen_RTK, weights_RTK = (jax.lax.all_gather(x, EXPERT, axis=0, tiled=True) for x in arrays)
        chosen_RTK = chosen_RTK - jax.lax.axis_index(EXPERT) * len(params["up"])
        return jax.lax.psum_scatter(_sum_of_experts(config, params, x_RTD, chosen_RTK, weights_RTK), EXPERT, tiled=True)

    cuts = zip((ROWS, (SEQUENCE,), (EXPERT,)), (*x_RTD.shape[:2], len(params["up"])), strict=True)
    if mesh is None or not all(divides(mesh, axes, n) for axes, n in cuts):
        return _sum_of_experts(config, params, *arrays)
    tokens, experts = P(ROWS, SEQUENCE), jax.tree.map(lambda _: P(EXPERT), params)
    return jax.shard_map(local, mesh=mesh, in_specs=(experts, *[tokens] * 3), out_specs=tokens)(params, *arrays)


def _sum_of_experts(
    config: TransformerConfig, params: Params, x_RTD: jax.Array, chosen_RTK: jax.Array, weights_RTK: jax.Array
) -> jax.Array:
    """Returns the weighted sum of the outputs of each vector's experts, [R, T, D], among the experts of this device.

    Args:
      chosen_RTK: the experts of each token; those of this device are 0 … E - 1.
    """
    x_ND, chosen_NK, weights_NK = (x.reshape(-1, x.shape[-1]) for x in (x_RTD, chosen_RTK, weights_RTK))
    n_experts, top_k = len(params["up"]), chosen_NK.shape[1]
    chosen_M, is_here_NK = chosen_NK.reshape(-1), (chosen_NK >= 0) & (chosen_NK < n_experts)
    place_M = jnp.where(is_here_NK.reshape(-1), chosen_M, n_experts)  # those that are not here come last
    order_M = jnp.argsort(place_M, stable=True)
    experts_M = jnp.minimum(place_M[order_M], n_experts - 1)
    sizes_E = (place_M[:, None] == jnp.arange(n_experts)[None]).sum(0, dtype=jnp.int32)

    def product(x_MI: jax.Array, w_EIO: jax.Array, bias_EO: jax.Array | None) -> jax.Array:
        y_MO = product_of_experts(x_MI, w_EIO.astype(x_MI.dtype), sizes_E)
        return y_MO if bias_EO is None else y_MO + embedding_lookup(bias_EO, experts_M).astype(y_MO.dtype)

    # Both gathers are permutations, so their gradients are gathers too, without sums in a nondeterministic order.
    rows_MD = jnp.repeat(x_ND, top_k, axis=0).at[order_M].get(unique_indices=True)
    y_MD = feed_forward(config, params, rows_MD, product)
    y_NKD = y_MD.at[jnp.argsort(order_M)].get(unique_indices=True).reshape(*chosen_NK.shape, -1)
    y_NKD = jnp.where(is_here_NK[..., None], y_NKD, 0)
    return jnp.einsum("NKD,NK->ND", y_NKD, weights_NK.astype(y_NKD.dtype)).reshape(x_RTD.shape)

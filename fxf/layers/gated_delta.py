"""Gated DeltaNet: a memory in each head that fades and corrects itself (Yang et al. 2024, arXiv 2412.06464).

With a short convolution before queries, keys and values, and a gate after the norm of what is read, as in Qwen3-Next.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.config import TransformerConfig
from fxf.layers.convolution import causal_convolution, taps_weight
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32, from_heads, to_heads
from fxf.layers.named import named
from fxf.layers.normalization import over_root_mean_square
from fxf.layers.recurrence import fading_memory, groups_of, log_decays, rates, step_biases

CONVOLVED = ("query", "key", "value")


@dataclasses.dataclass(frozen=True)
class GatedDelta:
    """Reads of a memory [K, O] in each of n_heads heads. They are G groups of E heads, with one query and key a group.

    Its cache has the memories of each row, and the last inputs of its convolutions.
    """

    config: TransformerConfig
    n_key_heads: int = key(0, "heads of queries and keys, which must divide n_heads; 0: n_heads", minimum=0)
    key_dim: int = key(0, "width of a head's queries and keys; 0: that of attention", minimum=0)
    value_dim: int = key(0, "width of a head's values; 0: that of attention", minimum=0)
    n_taps: int = key(4, "tokens that the convolution reads, the newest included", minimum=1)

    def spec(self) -> Spec:
        config, groups = self.config, groups_of(self.config.n_heads, self.n_key_heads)
        keys, values = (groups[0], self.key_dim or config.head_width), (*groups, self.value_dim or config.head_width)
        shapes = {"query": keys, "key": keys, "value": values, "gate": values, "beta": groups, "step": groups}
        axes = ("heads", "head_dim", "head_dim")

        def of_input(shape: tuple[int, ...]) -> Weight:
            return Weight((config.d_model, *shape), ("embed", *axes[: len(shape)]), fan_in())

        return {
            **{name: of_input(shape) for name, shape in shapes.items()},
            **{f"{name}_taps": taps_weight(self.n_taps, *shapes[name]) for name in CONVOLVED},
            "step_bias": Weight(groups, axes[:2], step_biases),
            "log_rate": Weight(groups, axes[:2], rates),
            "scale": Weight(values[2:], ("head_dim",), jax.nn.initializers.ones),
            "output": Weight((*values, config.d_model), (*axes, "embed"), fan_in(3)),
        }

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output for each token, [R, T, D], by what it reads of this and earlier tokens of its document."""
        before, inputs, tails = context.cache or {}, {}, {}
        for name in CONVOLVED:
            heads, taps = to_heads(x, params[name]), params[f"{name}_taps"]
            convolved, tails[name] = causal_convolution(heads, taps, context, before.get(name))
            inputs[name] = as_float32(jax.nn.silu(convolved))
        q_RTGK, k_RTGK = unit(inputs["query"]) / inputs["query"].shape[-1] ** 0.5, unit(inputs["key"])
        beta_RTGE = named("beta", jax.nn.sigmoid(as_float32(to_heads(x, params["beta"]))))
        beta_RTGE = jnp.where(context.real[..., None, None], beta_RTGE, 0)  # padding writes nothing
        step_RTGE = jax.nn.softplus(as_float32(to_heads(x, params["step"])) + params["step_bias"][None, None])
        log_decay_RTGE = log_decays(context, named("log_decay", -jnp.exp(params["log_rate"])[None, None] * step_RTGE))
        earlier = before.get("memory")
        read_RTGEO, memory = fading_memory(q_RTGK, k_RTGK, inputs["value"], log_decay_RTGE, beta_RTGE, earlier)
        scale = params["scale"].reshape(1, 1, 1, 1, -1)
        gate_RTGEO = jax.nn.silu(as_float32(to_heads(x, params["gate"])))
        heads_RTGEO = over_root_mean_square(read_RTGEO, self.config.norm_epsilon) * scale * gate_RTGEO
        cache = None if context.cache is None else {**tails, "memory": memory}
        return from_heads(heads_RTGEO.astype(x.dtype), params["output"]), context.replace(cache=cache)


def unit(x: jax.Array) -> jax.Array:
    """Returns x over its length, which counts a little more than it is, so that 0 stays 0."""
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-6)

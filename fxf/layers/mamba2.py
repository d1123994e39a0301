"""Mamba-2: a state space in each head, as a memory that fades (Dao and Gu 2024, arXiv 2405.21060).

In the paper's words a query is C, a key B, a value x, the width of a key N, and the skip D. A step Δ, which
each token chooses, scales what it writes, and how much of the memory fades: a head forgets at the rate A.
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
class Mamba2:
    """Reads of a memory [K, O] in each of n_heads heads. They are G groups of E heads, with one query and key a group.

    Its cache has the memories of each row, and the last inputs of its convolutions.
    """

    config: TransformerConfig
    n_key_heads: int = key(1, "heads of queries and keys (C and B), which must divide n_heads; 0: n_heads", minimum=0)
    key_dim: int = key(128, "width of a head's queries and keys: its state size", minimum=1)
    value_dim: int = key(0, "width of a head's values; 0: twice that of attention", minimum=0)
    n_taps: int = key(4, "tokens that the convolution reads, the newest included", minimum=1)

    def spec(self) -> Spec:
        config, groups = self.config, groups_of(self.config.n_heads, self.n_key_heads)
        keys, values = (groups[0], self.key_dim), (*groups, self.value_dim or 2 * config.head_width)
        shapes = {"gate": values, "value": values, "key": keys, "query": keys, "step": groups}
        axes, ones = ("heads", "head_dim", "head_dim"), jax.nn.initializers.ones

        def of_input(shape: tuple[int, ...]) -> Weight:
            return Weight((config.d_model, *shape), ("embed", *axes[: len(shape)]), fan_in())

        def bias(shape: tuple[int, ...]) -> Weight:
            return Weight(shape, axes[: len(shape)], jax.nn.initializers.zeros)

        return {
            **{name: of_input(shape) for name, shape in shapes.items()},
            **{f"{name}_taps": taps_weight(self.n_taps, *shapes[name]) for name in CONVOLVED},
            **{f"{name}_taps_bias": bias(shapes[name]) for name in CONVOLVED},
            "step_bias": Weight(groups, axes[:2], step_biases),
            "log_rate": Weight(groups, axes[:2], rates),
            "skip": Weight(groups, axes[:2], ones),
            "scale": Weight(values, axes, ones),
            "output": Weight((*values, config.d_model), (*axes, "embed"), fan_in(3)),
        }

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output for each token, [R, T, D], by what it reads of this and earlier tokens of its document."""
        before, inputs, tails = context.cache or {}, {}, {}
        for name in CONVOLVED:
            heads, taps, bias = to_heads(x, params[name]), params[f"{name}_taps"], params[f"{name}_taps_bias"]
            convolved, tails[name] = causal_convolution(heads, taps, context, before.get(name))
            inputs[name] = as_float32(jax.nn.silu(convolved + bias.astype(x.dtype)[None, None]))
        v_RTGEO, real = inputs["value"], context.real[..., None, None]
        step_RTGE = jax.nn.softplus(as_float32(to_heads(x, params["step"])) + params["step_bias"][None, None])
        step_RTGE = jnp.where(real, named("step", step_RTGE), 0)  # padding writes nothing
        log_decay_RTGE = log_decays(context, named("log_decay", -jnp.exp(params["log_rate"])[None, None] * step_RTGE))
        written_RTGEO, earlier = v_RTGEO * step_RTGE[..., None], before.get("memory")
        read_RTGEO, memory = fading_memory(
            inputs["query"], inputs["key"], written_RTGEO, log_decay_RTGE, memory_RGEKO=earlier
        )
        read_RTGEO = read_RTGEO + v_RTGEO * params["skip"][None, None, :, :, None]
        gated_RTGEO = read_RTGEO * jax.nn.silu(as_float32(to_heads(x, params["gate"])))
        groups_RTGI = gated_RTGEO.reshape(*gated_RTGEO.shape[:3], -1)  # each group has a norm
        heads_RTGEO = over_root_mean_square(groups_RTGI, self.config.norm_epsilon).reshape(v_RTGEO.shape)
        y_RTD = from_heads((heads_RTGEO * params["scale"][None, None]).astype(x.dtype), params["output"])
        cache = None if context.cache is None else {**tails, "memory": memory}
        return y_RTD, context.replace(cache=cache)

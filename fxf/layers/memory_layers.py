"""Layers whose heads have a memory that decays: Gated DeltaNet (Yang et al. 2024), Mamba-2 (Dao and Gu 2024).

Queries, keys and values pass a short causal convolution: each channel of a token becomes a weighted sum of its last few
values. A gate multiplies what is read from the memory, before or after its norm.
"""

import abc
import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from fxf.base.config import key
from fxf.base.devices import SEQUENCE, devices_along, target_mesh
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32, from_heads, to_heads
from fxf.layers.named import named
from fxf.layers.normalization import over_root_mean_square
from fxf.layers.recurrence import fading_memory, log_decays, rates, step_biases

CONVOLVED = ("query", "key", "value")
AXES = ("heads", "head_dim", "head_dim")


@dataclasses.dataclass(frozen=True)
class FadingMemory(abc.ABC):
    """A memory [K, O] in each of n_heads heads. They are G groups of E heads; a group has one query and one key.

    The cache has the memories of each row, and the last inputs of its convolutions.

    Attributes:
      per_head: names of the maps from a token to one number for each head.
      widening: the default width of values, as a multiple of attention's.
    """

    config: TransformerConfig
    n_key_heads: int = key(0, "heads of queries and keys, which must divide n_heads; 0: n_heads", minimum=0)
    key_dim: int = key(0, "width of a head's queries and keys; 0: that of attention", minimum=0)
    value_dim: int = key(0, "width of a head's values; 0: that of attention", minimum=0)
    n_taps: int = key(4, "tokens that the convolution reads, the newest included", minimum=1)
    per_head: ClassVar[tuple[str, ...]] = ("step",)
    widening: ClassVar[int] = 1

    def spec(self) -> Spec:
        config, n_heads, width = self.config, self.config.n_heads, self.config.head_width
        n_groups = self.n_key_heads or n_heads
        if n_heads % n_groups:
            raise UserError(f"model.layers: n_key_heads {n_groups} does not divide n_heads {n_heads}")
        heads = (n_groups, n_heads // n_groups)
        keys, values = (n_groups, self.key_dim or width), (*heads, self.value_dim or self.widening * width)
        shapes = {"query": keys, "key": keys, "value": values, "gate": values, **dict.fromkeys(self.per_head, heads)}
        return {
            **{n: Weight((config.d_model, *s), ("embed", *AXES[: len(s)]), fan_in()) for n, s in shapes.items()},
            **{f"{name}_taps": taps_weight(self.n_taps, *shapes[name]) for name in CONVOLVED},
            "step_bias": Weight(heads, AXES[:2], step_biases),
            "log_rate": Weight(heads, AXES[:2], rates),
            "output": Weight((*values, config.d_model), (*AXES, "embed"), fan_in(3)),
        }

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output [R, T, D]. A token reads this and earlier tokens of its document."""
        before, inputs, tails = context.cache or {}, [], {}
        for name in CONVOLVED:
            heads, taps = to_heads(x, params[name]), params[f"{name}_taps"]
            convolved, tails[name] = causal_convolution(heads, taps, context, before.get(name))
            if f"{name}_taps_bias" in params:
                convolved = convolved + params[f"{name}_taps_bias"].astype(x.dtype)[None, None]
            inputs.append(as_float32(jax.nn.silu(convolved)))
        heads_RTGEO, memory = self.heads(params, x, inputs, context)
        cache = None if context.cache is None else {**tails, "memory": memory}
        return from_heads(heads_RTGEO.astype(x.dtype), params["output"]), context.replace(cache=cache)

    @abc.abstractmethod
    def heads(self, params: Params, x: jax.Array, inputs: list[jax.Array], context: Context) -> list[jax.Array]:
        """Returns the output of the heads, normalized and gated, [R, T, G, E, O], and the memory after the tokens.

        Args:
          inputs: queries and keys [R, T, G, K], and values [R, T, G, E, O].
        """

    def step(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the step size of each token and head, which scales the decay of the memory."""
        return jax.nn.softplus(as_float32(to_heads(x, params["step"])) + params["step_bias"][None, None])

    def fades(self, params: Params, step_RTGE: jax.Array, context: Context) -> jax.Array:
        """Returns the log decay of the memory at each token."""
        return log_decays(context, named("log_decay", -jnp.exp(params["log_rate"])[None, None] * step_RTGE))


class GatedDelta(FadingMemory):
    """Gated DeltaNet: a memory that decays and corrects itself (arXiv 2412.06464), as in Qwen3-Next."""

    per_head = ("beta", "step")

    def spec(self) -> Spec:
        spec = super().spec()
        return {**spec, "scale": Weight(spec["value"].shape[3:], ("head_dim",), jax.nn.initializers.ones)}

    def heads(self, params: Params, x: jax.Array, inputs: list[jax.Array], context: Context) -> list[jax.Array]:
        q_RTGK, k_RTGK, v_RTGEO = inputs
        q_RTGK, k_RTGK = unit(q_RTGK) / q_RTGK.shape[-1] ** 0.5, unit(k_RTGK)
        beta_RTGE = named("beta", jax.nn.sigmoid(as_float32(to_heads(x, params["beta"]))))
        beta_RTGE = jnp.where(context.real[..., None, None], beta_RTGE, 0)  # padding writes nothing
        log_decay_RTGE, earlier = self.fades(params, self.step(params, x), context), (context.cache or {}).get("memory")
        read_RTGEO, memory = fading_memory(q_RTGK, k_RTGK, v_RTGEO, log_decay_RTGE, beta_RTGE, earlier)
        scale = params["scale"].reshape(1, 1, 1, 1, -1)
        gate_RTGEO = jax.nn.silu(as_float32(to_heads(x, params["gate"])))
        heads_RTGEO = over_root_mean_square(read_RTGEO, self.config.norm_epsilon) * scale * gate_RTGEO
        return [heads_RTGEO, memory]


@dataclasses.dataclass(frozen=True)
class Mamba2(FadingMemory):
    """Mamba-2: a state space model in each head, as a memory that decays (arXiv 2405.21060).

    In the paper's notation a query is C, a key B, a value x, the width of a key N, and the skip D. The step Δ of each
    token scales what the token writes, and how much the memory decays: a head forgets at the rate A.
    """

    n_key_heads: int = key(1, "heads of queries and keys (C and B), which must divide n_heads; 0: n_heads", minimum=0)
    key_dim: int = key(128, "width of a head's queries and keys: its state size", minimum=1)
    value_dim: int = key(0, "width of a head's values; 0: twice that of attention", minimum=0)
    widening: ClassVar[int] = 2

    def spec(self) -> Spec:
        spec, zeros, ones = super().spec(), jax.nn.initializers.zeros, jax.nn.initializers.ones
        shapes = {name: spec[name].shape[1:] for name in (*CONVOLVED, "step")}
        biases = {f"{n}_taps_bias": Weight(shapes[n], AXES[: len(shapes[n])], zeros) for n in CONVOLVED}
        scales = {"skip": Weight(shapes["step"], AXES[:2], ones), "scale": Weight(shapes["value"], AXES, ones)}
        return {**spec, **biases, **scales}

    def heads(self, params: Params, x: jax.Array, inputs: list[jax.Array], context: Context) -> list[jax.Array]:
        q_RTGK, k_RTGK, v_RTGEO = inputs
        real = context.real[..., None, None]
        step_RTGE = jnp.where(real, named("step", self.step(params, x)), 0)  # padding writes nothing
        log_decay_RTGE, earlier = self.fades(params, step_RTGE, context), (context.cache or {}).get("memory")
        written_RTGEO = v_RTGEO * step_RTGE[..., None]
        read_RTGEO, memory = fading_memory(q_RTGK, k_RTGK, written_RTGEO, log_decay_RTGE, memory_RGEKO=earlier)
        read_RTGEO = read_RTGEO + v_RTGEO * params["skip"][None, None, :, :, None]
        gated_RTGEO = read_RTGEO * jax.nn.silu(as_float32(to_heads(x, params["gate"])))
        groups_RTGI = gated_RTGEO.reshape(*gated_RTGEO.shape[:3], -1)  # each group has a norm
        normalized_RTGEO = over_root_mean_square(groups_RTGI, self.config.norm_epsilon).reshape(v_RTGEO.shape)
        return [normalized_RTGEO * params["scale"][None, None], memory]


def unit(x: jax.Array) -> jax.Array:
    """Returns x / √(|x|² + 1e-6), so that 0 stays 0."""
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + 1e-6)


def taps_weight(n_taps: int, *sizes: int) -> Weight:
    """Returns the weights of a convolution over heads of these sizes; the last row weighs the token itself.

    They are a table with a row for each distance, and not a matrix: no product sums over the rows.
    """
    return Weight((n_taps, *sizes), ("position", "heads", *("head_dim" for _ in sizes[1:])), fan_in())


def causal_convolution(
    x_RT: jax.Array, taps: jax.Array, context: Context, tail: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns Σ_i taps[i] x[t - n + 1 + i] for each token t and i = 0 … n - 1, and the inputs that later tokens need.

    A token reads those of its own document, and no padding.

    Args:
      x_RT: inputs [R, T, …].
      taps: weights [n, …], with the axes of x after its tokens.
      tail: the inputs that this function returned for the tokens before these, [R, n - 1, …], with zeros where there
        are none; None: all zeros. They belong to the document of the first token here.

    Returns:
      y like x, and the inputs of each row's last n - 1 tokens before its padding, [R, n - 1, …].
    """
    n_before, length = taps.shape[0] - 1, x_RT.shape[1]
    if devices_along(SEQUENCE) > 1:
        # XLA may compute wrong gradients of shifts along sharded tokens, as after experts with microbatches.
        gathered = P(*(None if axis == 1 else P.UNCONSTRAINED for axis in range(x_RT.ndim)))
        x_RT = jax.lax.with_sharding_constraint(x_RT, jax.sharding.NamedSharding(target_mesh(), gathered))
    if tail is None:
        tail = jnp.zeros((x_RT.shape[0], n_before, *x_RT.shape[2:]), x_RT.dtype)
    whole, documents = jnp.concatenate([tail, x_RT], 1), context.places.documents
    terms = [whole[:, i : i + length] for i in range(n_before + 1)]
    if documents is not None:
        before = jnp.pad(documents, ((0, 0), (n_before, 0)), "edge")
        same = [_like(before[:, i : i + length] == documents, x_RT) for i in range(n_before + 1)]
        terms = [jnp.where(of_document, term, 0) for of_document, term in zip(same, terms, strict=True)]
    taps = taps.astype(x_RT.dtype)[:, None, None]
    y_RT = functools.reduce(jnp.add, (term * tap for term, tap in zip(terms, taps, strict=True)))
    if documents is None:
        return y_RT, whole[:, length:]
    at = context.real.sum(1, keepdims=True) + jnp.arange(n_before)[None]
    return y_RT, jnp.take_along_axis(whole, _like(at, x_RT), 1)


def _like(of_tokens: jax.Array, x_RT: jax.Array) -> jax.Array:
    """Returns an array [R, T] with axes of size 1 appended, for as many axes as x has."""
    return of_tokens.reshape(*of_tokens.shape, *(1 for _ in x_RT.shape[2:]))

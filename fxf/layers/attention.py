"""Multi-head attention (seed 004, "Multi-Head Causal Attention"; seed 000, "SelfAttention Unit"), in several kinds.

A kind is a subclass of `Attention`. To change the weights of the mean over values, override `weigh`, `bias` or
`turned`; to change the keys and values, override `keys_values`; for anything else override `apply`, as
linear_attention.py does.
"""

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fxf.base.config import key, one_of, require_off
from fxf.base.errors import UserError, of_shape
from fxf.base.on_gpu import with_gradient_added_last
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.chunked_attention import chunked
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.flash_attention import kernel_of
from fxf.layers.layer import Context, Memory, Places, remember, sort_slots
from fxf.layers.linear import as_float32, from_heads, linear, soft_cap
from fxf.layers.named import named
from fxf.layers.normalization import over_root_mean_square, scale_factor, scale_weight
from fxf.layers.positions import POSITIONS, rotary_frequencies

# Config keys that act on attention scores, with the values that switch them off.
ACT_ON_SCORES = {
    **{"window": 0, "attention_dropout": 0.0, "qk_norm": False, "attention_softcap": 0.0, "query_scale": 0.0},
    "attention_implementation": "xla",
}
IN_KERNELS = ("scores", "weigh", "read", "seen", "mask")  # methods that a flash kernel replaces


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention whose weights are the softmax of the products of queries and keys.

    Queries are [B, H, T, K], keys and values [B, G, C, K]; H is a multiple of G.

    Attributes:
      has_scores: whether each query and key have a score. Positions, windows and dropout act on it.
      ordered: whether `read` needs the keys in token order.
      by_document: whether tokens attend only within their own document, where a row packs several.
    """

    config: TransformerConfig
    has_scores: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    by_document: ClassVar[bool] = True

    def spec(self) -> Spec:
        config = self.config
        self._check()
        d_model, head_dim, zeros = config.d_model, config.head_width, jax.nn.initializers.zeros
        heads = {"query": config.n_heads, "key": config.n_groups, "value": config.n_groups}
        shapes = {name: (n_heads, head_dim) for name, n_heads in heads.items()}
        axes = ("heads", "head_dim")
        spec = {name: Weight((d_model, *shape), ("embed", *axes), fan_in()) for name, shape in shapes.items()}
        spec["output"] = Weight((*shapes["query"], d_model), (*axes, "embed"), fan_in(2))
        if config.attention_bias in ("all", "qkv"):
            spec |= {f"{name}_bias": Weight(shape, axes, zeros) for name, shape in shapes.items()}
        if config.attention_bias in ("all", "output"):
            spec["output_bias"] = Weight((d_model,), ("embed",), zeros)
        for name in ("query", "key") if config.qk_norm else ():
            scale = scale_weight(config, head_dim, "head_dim")
            joint = dataclasses.replace(scale, shape=shapes[name], axes=axes)
            spec[f"{name}_scale"] = joint if config.qk_norm_joint else scale
        return spec

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output of self-attention, [R, T, D]."""
        x_BTD, queries = context.by_prompt(x), context.queries
        for_queries, for_keys = with_gradient_added_last(x_BTD)
        q_BHTK = self.turned(self.project(params, "query", for_queries), queries.positions)
        new, context = self.keys_values(params, for_keys, context)
        memory, keys, cache = remember(context, new)
        memory, keys, reading = sort_slots(memory, keys, context) if self.ordered else (memory, keys, context)
        heads_BHTK = self.attend(params, q_BHTK, memory, queries, keys, reading)
        return self.output(params, heads_BHTK, x_BTD).reshape(x.shape), context.replace(cache=cache)

    def keys_values(self, params: Params, x_BTD: jax.Array, context: Context) -> tuple[Any, Context]:
        """Returns the keys and values of tokens, each [B, G, T, K], and the context, possibly with a new carry."""
        k_BGTK = self.turned(self.project(params, "key", x_BTD), context.queries.positions)
        return (k_BGTK, self.project(params, "value", x_BTD)), context

    def memorize(self, params: Params, source_BSD: jax.Array, places: Places) -> Any:
        """Returns the keys and values of the source that cross-attention reads."""
        return self.project(params, "key", source_BSD), self.project(params, "value", source_BSD)

    def turned(self, x_BHTK: jax.Array, positions_BT: jax.Array) -> jax.Array:
        """Returns queries or keys, rotated if the positional encoding rotates them."""
        rotate = POSITIONS[self.config.positions].rotate
        return x_BHTK if rotate is None else rotate(self.config, x_BHTK, positions_BT)

    @property
    def turned_width(self) -> int:
        """The number of elements of each query and key that rotary positions rotate."""
        return int(self.config.head_width * self.config.rotary_share)

    def bias(self, params: Params, queries: Places, keys: Places) -> jax.Array | None:
        """Returns the positional bias of the scores, [B, H, T, C], where axes of size 1 broadcast; None for no bias."""
        bias = POSITIONS[self.config.positions].bias
        return None if bias is None else bias(self.config.n_heads, queries.positions, keys.positions)

    def weigh(self, params: Params, scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
        """Returns the attention weights.

        The bias is -inf at masked keys: later tokens, padding, and empty slots of a cache. The weights must not depend
        on how many keys are masked.
        """
        return jax.nn.softmax(scores_BHTC + bias_BHTC)

    def attend(
        self, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, context: Context
    ) -> jax.Array:
        """Returns the attention output of each head, [B, H, T, K].

        With a cache, all scores are computed at once: a decoding step has few. A kind with `cached = False` is not
        chunked either, because it may mix queries.
        """
        by_query = context.cache is None and getattr(self, "cached", True)
        if by_query and self.config.attention_implementation == "chunked":
            return chunked(self, params, q_BHTK, memory, queries, keys, context.rng)
        if context.cache is None and self.config.attention_implementation == "flash":
            self._check_kernel()
            return kernel_of(self.config).attend(self, params, q_BHTK, memory, queries, keys)
        return self.read(params, q_BHTK, memory, self.mask(params, queries, keys, context.reads), context.rng)

    def mask(self, params: Params, queries: Places, keys: Places, reads: jax.Array | None = None) -> jax.Array:
        """Returns the bias, with -inf at masked keys."""

        def masked(bias: jax.Array) -> jax.Array:
            seen = self.seen(queries, keys, reads)
            return bias if seen is None else jnp.where(seen, bias, -jnp.inf)

        bias = None if queries.elsewhere else self.bias(params, queries, keys)
        if bias is None and keys is queries and reads is None:
            return queries.once(self, lambda: masked(jnp.zeros((1, 1, 1, 1))))
        return masked(jnp.zeros((1, 1, 1, 1)) if bias is None else bias)

    def seen(self, queries: Places, keys: Places, reads: jax.Array | None = None) -> jax.Array | None:
        """Returns which keys each query may see, bool [B, H, T, C], where axes of size 1 broadcast; None if all.

        Args:
          reads: which slots of a cache each hypothesis of a prompt reads, bool [B, T, C].
        """
        seen = queries.sees(keys, self.config.window)
        if reads is not None:
            seen = reads if seen is None else seen & reads
        return None if seen is None else seen[:, None]

    def read(
        self, params: Params, q_BHTK: jax.Array, memory: Any, bias: jax.Array, rng: jax.Array | None = None
    ) -> jax.Array:
        """Returns the attention output of each head with this bias, [B, H, T, K]; `rng` is that of dropout."""
        k_BGCK, v_BGCK = memory
        scores_BHTC = self.scores(q_BHTK, k_BGCK)
        bias_BHTC = jnp.broadcast_to(bias.astype(scores_BHTC.dtype), scores_BHTC.shape)
        weights_BHTC = self.weigh(params, scores_BHTC, bias_BHTC)
        weights_BHTC = named("weights", of_shape(weights_BHTC, scores_BHTC.shape, f"{type(self).__name__}.weigh"))
        weights_BHTC = dropout(rng, weights_BHTC, self.config.attention_dropout).astype(q_BHTK.dtype)
        weights_BGQC = weights_BHTC.reshape(*v_BGCK.shape[:2], -1, v_BGCK.shape[2])
        return jnp.einsum("BGQC,BGCK->BGQK", weights_BGQC, v_BGCK).reshape(*q_BHTK.shape[:-1], -1)

    def scores(self, q_BHTK: jax.Array, k_BGCK: jax.Array) -> jax.Array:
        """Returns the scaled products of queries and keys, [B, H, T, C], in float32, or in float64 if q is float64."""
        config, q_BGQK = self.config, q_BHTK.reshape(*k_BGCK.shape[:2], -1, q_BHTK.shape[-1])
        products = as_float32(jnp.einsum("BGQK,BGCK->BGQC", q_BGQK, k_BGCK))
        scaled = products * config.query_scale if config.query_scale else products / math.sqrt(q_BHTK.shape[-1])
        return soft_cap(scaled, config.attention_softcap).reshape(*q_BHTK.shape[:-1], -1)

    def project(self, params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
        """Maps vectors to the queries [B, H, T, K], or to the keys or values [B, G, T, K]."""
        weight, bias = params[name], params.get(f"{name}_bias")
        rows = linear(x_BTD, weight.reshape(weight.shape[0], -1), None if bias is None else bias.reshape(-1))
        heads = rows.reshape(*x_BTD.shape[:-1], *weight.shape[1:])
        scale = params.get(f"{name}_scale")
        if scale is not None:
            vectors = rows if self.config.qk_norm_joint else heads
            normalized = over_root_mean_square(vectors, self.config.norm_epsilon)
            factors = scale_factor(self.config, scale).reshape((1,) * (vectors.ndim - 1) + (-1,))
            heads = (normalized * factors).astype(heads.dtype).reshape(heads.shape)
        return heads.transpose(0, 2, 1, 3)

    def output(self, params: Params, heads_BHTK: jax.Array, x_BTD: jax.Array) -> jax.Array:
        """Maps the outputs of heads to vectors [B, T, D]; x are the layer's inputs."""
        read_BTHK = named("heads", heads_BHTK).transpose(0, 2, 1, 3)
        return from_heads(read_BTHK, params["output"], params.get("output_bias"))

    def _check_kernel(self) -> None:
        """Raises a UserError if this kind overrides a method that a flash kernel replaces."""
        kind = type(self)
        if own := [name for name in IN_KERNELS if getattr(kind, name) is not getattr(Attention, name)]:
            what = f"the kernel of 'flash' has no {kind.__name__}.{own[0]}; set it to 'xla' or 'chunked'"
            raise UserError(f"model.attention_implementation: {what}")

    def _check(self) -> None:
        """Raises a UserError if a config key does not fit this kind."""
        positions, width = POSITIONS[one_of(self.config.positions, POSITIONS, "model.positions")], self.turned_width
        if positions.rotate and (width % 2 or not width):
            raise UserError(f"model.positions: '{self.config.positions}' rotates pairs, not a width of {width}")
        if positions.rotate:
            rotary_frequencies(self.config, width // 2)  # raises one too, if rope_factors do not fit
        if not self.has_scores:
            acts_there = {"positions": "none"} if positions.rotate or positions.bias else {}
            why = f"it acts on the scores of queries and keys; model.attention '{self.config.attention}' has none"
            require_off("model", self.config, {**acts_there, **ACT_ON_SCORES}, why)


class Expressive(Attention):
    """Attention whose weights are z² / (1 + z²) · e^bias of scores z, normalized.

    Gros 2024; seed 002, "expressive attention".
    """

    def weigh(self, params: Params, scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
        # The small number gives equal weights where all scores are zero.
        squares = jnp.square(scores_BHTC) + 1e-20
        # The gradient divides by the square of the sum; the power of two is exact and keeps that from underflowing.
        weights = 2.0**40 * (squares / (1 + squares) * jnp.exp(bias_BHTC))
        return weights / weights.sum(-1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class SinkLogits(Attention):
    """Attention whose weights sum to less than one: each head's softmax has one more logit, without a key (gpt-oss).

    OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card". With the logit fixed at 0: softmax off by one (Miller 2023).
    """

    learned: bool = key(True, "train a logit for each head; otherwise all stay at 0")

    def spec(self) -> Spec:
        sink = Weight((self.config.n_heads,), ("heads",), jax.nn.initializers.zeros)
        return {**super().spec(), **({"sink": sink} if self.learned else {})}

    def weigh(self, params: Params, scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
        sink_BHT1 = jnp.zeros((*scores_BHTC.shape[:3], 1), scores_BHTC.dtype)
        if self.learned:
            sink_BHT1 += params["sink"].reshape(1, -1, 1, 1)
        return jax.nn.softmax(jnp.concatenate([scores_BHTC + bias_BHTC, sink_BHT1], -1))[..., :-1]


@dataclasses.dataclass(frozen=True)
class GatedAttention(Attention):
    """Attention whose heads' outputs are multiplied by σ(x gate) (Qiu et al. 2025, arXiv 2505.06708)."""

    def spec(self) -> Spec:
        config = self.config
        shape = (config.d_model, config.n_heads, config.head_width)
        return {**super().spec(), "gate": Weight(shape, ("embed", "heads", "head_dim"), fan_in())}

    def output(self, params: Params, heads_BHTK: jax.Array, x_BTD: jax.Array) -> jax.Array:
        gate_BHTK = jax.nn.sigmoid(self.project(params, "gate", x_BTD))
        return super().output(params, heads_BHTK * gate_BHTK, x_BTD)


@dataclasses.dataclass(frozen=True)
class CrossAttention:
    """Attention of the model's kind to another sequence, the context's source.

    Positions and windows act within a sequence, so they are off here. In a beam search, one row of the source's memory
    serves several consecutive rows of x, the hypotheses of a prompt.
    """

    kind: Attention
    by_document: ClassVar[bool] = False

    def spec(self) -> Spec:
        return self.kind.spec()

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        kind, memory = self.kind, context.cache
        if not memory:
            if context.source is None:
                raise UserError("model.blocks: cross_attention reads the output of an encoder, and there is none here")
            source_BSD, places = context.source
            memory = Memory(kind.memorize(params, source_BSD, places), places)
        n_rows = jax.tree.leaves(memory.entries)[0].shape[0]
        x_BTD = x.reshape(n_rows, -1, x.shape[-1])
        q_BHTK = kind.project(params, "query", x_BTD)
        queries = Places(jnp.zeros((1, q_BHTK.shape[2]), jnp.int32), elsewhere=True)
        heads_BHTK = kind.attend(params, q_BHTK, memory.entries, queries, memory.places, context.replace(table=None))
        cache = None if context.cache is None else memory
        return kind.output(params, heads_BHTK, x_BTD).reshape(x.shape), context.replace(cache=cache)

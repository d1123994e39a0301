"""Multi-head attention (seed 004, "Multi-Head Causal Attention"; seed 000, "SelfAttention Unit"), in several kinds.

A kind whose output is a weighted mean of values needs one function from scores to weights and a line in `ATTENTIONS`.
Any other kind needs an `Attention` of its own, as in linear_attention.py.
"""

from typing import Any

import jax

from fxf.config import Choices, one_of
from fxf.errors import UserError
from fxf.layers import flash_attention
from fxf.layers.attention_kinds import Attention, expressive, of_whole_sequences, softmax, weighted
from fxf.layers.cache import KeysValues
from fxf.layers.chunked_attention import chunked, require_whole_sequences
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.layers.linear_attention import FEATURE_MAPS, LINEAR
from fxf.layers.mask import Mask
from fxf.layers.normalization import over_root_mean_square, scale_factor, scale_weight
from fxf.layers.positions import POSITIONS
from fxf.weights import Params, Spec, Weight, fan_in

ATTENTIONS: Choices[Attention] = Choices(
    {
        "softmax": weighted(softmax),
        "expressive": weighted(expressive),
        "linear": LINEAR,
    }
)
FLASH = of_whole_sequences(ATTENTIONS["softmax"], flash_attention.attend)


def kind_of(config: TransformerConfig) -> Attention:
    """Returns the kind of attention in the implementation that the config names."""
    if config.attention_implementation == "flash":
        return FLASH
    kind = ATTENTIONS[config.attention]
    return chunked(kind) if config.attention_implementation == "chunked" else kind


def require_implementation(config: TransformerConfig, n_sequences: int) -> None:
    """Raises a UserError if the devices, or a mesh that shards sequences, cannot have the config's implementation.

    Args:
      n_sequences: parts into which a mesh shards each sequence.
    """
    if config.attention_implementation == "flash":
        flash_attention.require_flash(config, n_sequences)
    elif config.attention_implementation == "chunked":
        require_whole_sequences(n_sequences)


def attention_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of an attention layer.

    Raises:
      UserError: the kind of attention is unknown, or cannot be combined with another key.
    """
    _check(config)
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
    if config.qk_norm:
        spec |= {f"{name}_scale": scale_weight(config, head_dim, "head_dim") for name in ("query", "key")}
    return spec


def _check(config: TransformerConfig) -> None:
    kind = ATTENTIONS[one_of(config.attention, ATTENTIONS, "model.attention")]
    positions = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
    one_of(config.feature_map, FEATURE_MAPS, "model.feature_map")
    if not kind.scores:
        acts_on_scores = {
            "positions": positions.rotate is not None or positions.bias is not None,
            "window": config.window > 0,
            "attention_dropout": config.attention_dropout > 0,
            "qk_norm": config.qk_norm,
            "attention_softcap": config.attention_softcap > 0,
            "query_scale": config.query_scale > 0,
            "attention_implementation": config.attention_implementation != "xla",
        }
        for name, acts in acts_on_scores.items():
            if acts:
                value = getattr(config, name)
                raise UserError(
                    f"model.{name}: {value!r} acts on the scores of queries and keys; "
                    f"model.attention '{config.attention}' has none"
                )


def attention(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    mask: Mask,
    *,
    cache: Any = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """Returns the output of self-attention, [B, T, D], and the cache with the new keys and values.

    Args:
      x_BTD: a sequence, or, with a cache, its newest tokens.
      rng: key for dropout of the attention weights; None means no dropout.
    """
    kind, q_BHTK, new = kind_of(config), queries(config, params, x_BTD), keys_values(config, params, x_BTD)
    rotate = POSITIONS[config.positions].rotate
    if mask.documents_BT is not None and not kind.scores:
        what = f"model.attention '{config.attention}' remembers all earlier tokens of a row"
        raise UserError(f"documents: {what}; leave attention within a document (task.document_mask) off")
    if rotate is not None:
        assert mask.positions is not None
        q_BHTK, k_BGTK = (rotate(config, x, mask.positions, mask.is_global) for x in (q_BHTK, new.keys))
        new = KeysValues(k_BGTK, new.values)
    if mask.causal:
        heads_BHTK, cache = kind.attend_causally(config, q_BHTK, new, mask, cache, rng)
    else:
        heads_BHTK = kind.attend(config, q_BHTK, kind.memorize(config, new, mask), mask, rng)
    return _output(config, params, heads_BHTK, x_BTD.shape), cache


def cross_memory(config: TransformerConfig, params: Params, z_BSD: jax.Array, mask: Mask) -> Any:
    """Returns the memory of another sequence, [B, S, D], which cross-attention reads."""
    return kind_of(config).memorize(config, keys_values(config, params, z_BSD), mask)


def cross_attention(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    memory: Any,
    mask: Mask,
    *,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Returns the output of attention from x to the memory of another sequence, [B, T, D].

    The memory may have fewer rows. Each of them then serves several consecutive rows of x, the hypotheses of a beam.
    """
    n_rows = jax.tree.leaves(memory)[0].shape[0]
    q = queries(config, params, x_BTD.reshape(n_rows, -1, x_BTD.shape[-1]))
    return _output(config, params, kind_of(config).attend(config, q, memory, mask, rng), x_BTD.shape)


def queries(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Returns the queries of x, [B, H, T, K]."""
    return _project(config, params, "query", x_BTD)


def keys_values(config: TransformerConfig, params: Params, z_BCD: jax.Array) -> KeysValues:
    """Returns the keys and values of z, each [B, G, C, K]."""
    return KeysValues(_project(config, params, "key", z_BCD), _project(config, params, "value", z_BCD))


def _project(config: TransformerConfig, params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
    """Maps [B, T, D] to the queries [B, H, T, K], or to the keys or values [B, G, T, K]."""
    weight, bias = params[name], params.get(f"{name}_bias")
    rows = linear(x_BTD, weight.reshape(weight.shape[0], -1), None if bias is None else bias.reshape(-1))
    heads = rows.reshape(*x_BTD.shape[:-1], *weight.shape[1:])
    scale = params.get(f"{name}_scale")
    if scale is not None:
        normalized = over_root_mean_square(heads, config.norm_epsilon)
        heads = (normalized * scale_factor(config, scale).reshape(1, 1, 1, -1)).astype(heads.dtype)
    return heads.transpose(0, 2, 1, 3)


def _output(config: TransformerConfig, params: Params, heads_BHTK: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Maps the heads' outputs to vectors of the shape [B, T, D]."""
    concatenated = heads_BHTK.transpose(0, 2, 1, 3).reshape(*shape[:-1], config.n_heads * config.head_width)
    return linear(concatenated, params["output"].reshape(-1, shape[-1]), params.get("output_bias"))

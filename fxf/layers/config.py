"""The config keys that layers read, which the `model` sections of all transformers have."""

import dataclasses
from typing import Any, ClassVar, Literal

import jax

from fxf.base.config import key, require_off
from fxf.base.errors import UserError

ROTARY = "positions=rotary"


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The keys of every transformer's `model` section; seed 004, "Definition of TransformerLM", has the defaults."""

    n_layers: int = key(6, "number of blocks; an encoder and a decoder have this many each", minimum=1)
    d_model: int = key(512, "width of the residual stream", minimum=1)
    d_ff: int = key(2048, "width inside the feed-forward layer", minimum=1)
    n_heads: int = key(8, "number of attention heads; without a head_dim it must divide d_model", minimum=1)
    n_kv_heads: int = key(0, "grouped-query attention: heads of keys and values; 0: n_heads", minimum=0)
    head_dim: int = key(0, "width of a head's queries, keys and values; 0: d_model / n_heads", minimum=0)
    base_width: int = key(
        0,
        "μP (Yang et al. 2022): d_model of a base model whose best learning rate this one shares; it has d_ff and "
        "n_heads in proportion and the same head_dim; 0: off",
        minimum=0,
    )
    max_len: int = key(2048, "maximum number of tokens in a sequence, including the start token", minimum=1)
    dropout: float = key(0.0, "dropout rate of sublayer outputs", minimum=0, below=1)
    embedding_dropout: float = key(0.0, "dropout rate of embeddings, after positions are added", minimum=0, below=1)
    embedding_norm: bool = key(False, "normalize embeddings, after positions are added and before dropout")
    attention_dropout: float = key(0.0, "dropout rate of attention weights", minimum=0, below=1)
    blocks: str = key("attention+feed_forward", "layers of the blocks over the depth; fxf.layers.kinds has the syntax")
    layers: dict[str, dict[str, Any]] = key({}, "keys of single layers of model.blocks: model.layers.NAME.KEY")
    block: str = key("pre_norm", "how layers join the residual stream: one of fxf.layers.block.BLOCKS, with formulas")
    final_norm: bool = key(True, "normalize the output of the last block")
    norm_epsilon: float = key(1e-6, "small number that keeps the normalization of a constant vector finite", above=0)
    norm_epsilon_in: Literal["deviation", "variance"] = key(
        "deviation", "add norm_epsilon to the standard deviation (seed 004), or to the variance (seeds 000, 003)"
    )
    norm: str = key("layer", "layer norm, or RMS norm, which does not centre: one of fxf.layers.normalization.NORMS")
    zero_centered_scale: bool = key(False, "norms multiply by 1 + scale, where the scale starts at 0 (Gemma)")
    positions: str = key(
        "sinusoidal_trained",
        "one of fxf.layers.positions.POSITIONS; trained tables start from sinusoids (seed 004) or random (learned); "
        "sinusoids are interleaved (seed 003), or sines come first: concatenated from 1 (seed 000), halves from 0",
    )
    position_range: int = key(0, "training draws each sequence's positions from this many; 0: off", minimum=0)
    position_gap: int = key(1, "spacing of positions outside training", minimum=1, when="position_range")
    position_stretch: float = key(1.0, "training multiplies a row's positions by a random factor, 1 to this", minimum=1)
    rope_theta: float = key(10000.0, "wavelengths are 2π · rope_theta^(2i/head_dim)", above=1, when=ROTARY)
    rope_factor: float = key(1.0, "factor of wavelengths, which extends the context", minimum=1, when=ROTARY)
    rope_trained_len: int = key(
        0,
        "rope_factor multiplies only wavelengths longer than this trained length; 0: all (Chen et al. 2023)",
        minimum=0,
        when="rope_factor",
    )
    rope_ramp: Literal["llama3", "yarn", "yarn_exact", "longrope"] = key(
        "llama3",
        "how shorter wavelengths are interpolated; llama3: from a quarter of rope_trained_len on; yarn: from 32 turns "
        "to 1 (Peng et al. 2023; set query_scale to (0.1 ln rope_factor + 1)² / √head_dim); yarn_exact: unrounded (gpt-"
        "oss); longrope: by rope_factors, queries and keys times √(1 + ln rope_factor / ln rope_trained_len) (Phi-3)",
        when="rope_trained_len",
    )
    rope_factors: str = key(
        "",
        "factors of pairs, comma-separated; after a semicolon, those for max_len above rope_trained_len",
        when="rope_ramp=longrope",
    )
    rotary_share: float = key(1.0, "first share of a head's width that is rotated", above=0, maximum=1, when=ROTARY)
    attention: str = key("softmax", "one of fxf.layers.kinds.ATTENTIONS")
    attention_implementation: Literal["xla", "chunked", "flash"] = key(
        "xla",
        "how training computes attention; xla: all scores at once; chunked: 256 queries at a time in rows of over "
        "1,024 tokens; flash: a kernel on TPUs and NVIDIA GPUs from Ampere on, for softmax in bfloat16",
    )
    feature_map: str = key("elu", "one of fxf.layers.linear_attention.FEATURE_MAPS", when="attention=linear")
    window: int = key(0, "self-attention sees tokens at a distance below this; 0: all tokens", minimum=0)
    global_every: int = key(0, "n: every n-th block has no window; 0: all have it", minimum=0, when="window")
    local_rope_theta: float = key(
        0.0, "rope_theta with a window, without rope_factor; 0: same", minimum=0, when=f"{ROTARY}, global_every"
    )
    qk_norm: bool = key(False, "normalize each head's queries and keys by an RMS norm, whatever model.norm is")
    qk_norm_joint: bool = key(False, "normalize all heads of a token together", when="qk_norm")
    feed_forward: str = key("dense", "kind of feed-forward layer: one of fxf.layers.kinds.FEED_FORWARDS")
    activation: str = key("relu", "nonlinearity of the feed-forward layer: one of fxf.layers.feed_forward.ACTIVATIONS")
    feed_forward_bias: bool = key(True, "linear maps of the feed-forward layer have a bias")
    gated: bool = key(False, "gate the hidden layer: SwiGLU with silu, GeGLU with gelu, gpt-oss's with silu_clamped")
    logits_bias: bool = key(False, "add a bias to logits", when="tied_embeddings=True, embeddings=shared")
    final_bias: bool = key(True, "add a bias to logits", when="tied_embeddings=False, embeddings=separate")
    logit_softcap: float = key(0.0, "logits become c·tanh(logits/c), where c is this; 0: off", minimum=0)
    attention_softcap: float = key(0.0, "scores become c·tanh(scores/c), where c is this; 0: off", minimum=0)
    query_scale: float = key(0.0, "factor of attention scores; 0: 1 / √(width of a head)", minimum=0)
    attention_bias: Literal["output", "all", "qkv", "none"] = key(
        "output", "projections with a bias: the output (seed 004), all (seed 000), all but the output, none (seed 003)"
    )
    init: Literal["default", "uniform", "gpt2"] = key(
        "default",
        "default: scaled to each weight; uniform: within ±1/2 (seed 004); gpt2: normal(0.02), last maps smaller",
    )
    scan_blocks: bool = key(False, "training loops over blocks: deep models compile faster and run slower")
    remat: Literal["none", "full", "dots"] = key(
        "none", "gradient checkpointing; full: recompute all inside a block; dots: all but products with weights"
    )
    dtype: Literal["float32", "bfloat16", "float64"] = key(
        "float32",
        "type of the computation (bfloat16: mixed precision); weights, norms, softmaxes, logits and losses are "
        "float32, or all float64 (with the environment variable JAX_ENABLE_X64=1)",
    )

    FLASH: ClassVar[dict[str, Any]] = {"attention": "softmax", "dtype": "bfloat16", "attention_dropout": 0}

    def __post_init__(self) -> None:
        if self.dtype == "float64" and jax.dtypes.canonicalize_dtype("float64") != "float64":
            raise UserError("model.dtype: 'float64' needs the environment variable JAX_ENABLE_X64=1")
        if not self.head_dim and self.d_model % self.n_heads:
            raise UserError(f"model.n_heads: {self.n_heads} does not divide model.d_model {self.d_model}")
        if self.n_heads % self.n_groups:
            raise UserError(f"model.n_kv_heads: {self.n_kv_heads} does not divide model.n_heads {self.n_heads}")
        if self.global_every == 1:
            raise UserError("model.global_every: 1 leaves no block with model.window; expected 0 or at least 2")
        if 0 < self.local_rope_theta <= 1:
            raise UserError(f"model.local_rope_theta: expected 0 or more than 1, got {self.local_rope_theta}")
        if self.rope_trained_len == 1:
            raise UserError("model.rope_trained_len: expected 0 or at least 2, got 1")
        if self.window:
            require_off("model", self, {"position_range": 0, "position_stretch": 1}, "it would spread a model.window")
        if self.position_range:
            require_off("model", self, {"position_stretch": 1}, "a model.position_range draws positions already")
            if not (largest_gap := self.position_range // self.max_len):
                expected = f"expected 0 or at least model.max_len {self.max_len}"
                raise UserError(f"model.position_range: {expected}, got {self.position_range}")
            if self.position_gap > largest_gap:
                expected = f"expected at most model.position_range / model.max_len, {largest_gap}"
                raise UserError(f"model.position_gap: {expected}, got {self.position_gap}")
        if self.attention_implementation == "flash":
            require_off("model", self, self.FLASH, "model.attention_implementation 'flash' needs another value")
        if self.base_width and not self.head_dim:
            also = f"{self.head_width} here, because wider models have more heads of the same width"
            raise UserError(f"model.base_width: {self.base_width} needs model.head_dim too, {also}")
        for name in ("n_heads", "d_ff"):  # the base's widths are whole numbers in proportion
            value = getattr(self, name)
            if value * self.base_width % self.d_model:
                there = f"{value} at model.d_model {self.d_model} is {value * self.base_width / self.d_model:.4g}"
                raise UserError(f"model.{name}: {there} at model.base_width {self.base_width}; expected a whole number")

    @property
    def n_groups(self) -> int:
        """The number of heads of keys and values."""
        return self.n_kv_heads or self.n_heads

    @property
    def head_width(self) -> int:
        """The width of a head's queries, keys and values."""
        return self.head_dim or self.d_model // self.n_heads

    @property
    def base_d_model(self) -> int:
        """The base's d_model, or the model's own if it has no base."""
        return self.base_width or self.d_model

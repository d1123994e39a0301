"""The keys that layers read: what the `model` sections of all transformers hold."""

import dataclasses
from typing import Literal

from fxf.config import key
from fxf.errors import UserError


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """What every transformer's `model` section holds; the defaults are seed 004's, "Definition of TransformerLM"."""

    n_layers: int = key(6, "blocks; with an encoder, of the encoder and of the decoder each", minimum=1)
    d_model: int = key(512, "width of the residual stream", minimum=1)
    d_ff: int = key(2048, "width inside the feed-forward layer", minimum=1)
    n_heads: int = key(8, "attention heads; divides d_model", minimum=1)
    n_kv_heads: int = key(0, "heads of keys and values, each shared by a group of query heads; 0: n_heads", minimum=0)
    max_len: int = key(2048, "longest sequence, in tokens, the leading 0 included", minimum=1)
    dropout: float = key(0.0, "rate on what a sublayer adds to the residual stream", minimum=0, below=1)
    embedding_dropout: float = key(0.0, "rate on embeddings with their positions", minimum=0, below=1)
    embedding_norm: bool = key(False, "normalize embeddings with their positions, before dropout")
    attention_dropout: float = key(0.0, "rate on attention weights", minimum=0, below=1)
    block: Literal["pre_norm", "post_norm", "idea"] = key(
        "pre_norm", "X + F(N X) for each sublayer, N(X + F X), or seed 004's idea X + FF(N(X + CA(N X)))"
    )
    final_norm: bool = key(True, "normalize what leaves the last block")
    norm_epsilon: float = key(1e-6, "keeps the normalization of a constant vector finite", above=0)
    norm_epsilon_in: Literal["deviation", "variance"] = key(
        "deviation", "add it to the standard deviation (seed 004), or to the variance under the root (seeds 000, 003)"
    )
    norm: Literal["layer", "rms"] = key("layer", "layer norm, or RMS norm, which neither centres nor shifts")
    positions: str = key(
        "sinusoidal_trained",
        "one of fxf.layers.positions.POSITIONS: none; a trained table that starts from sinusoids (seed 004) or learned "
        "from random; fixed, sine and cosine interleaved (003) or all sines first, counted from 1 (000) or, as "
        "sinusoidal_halves, from 0; rotary or alibi (002), in "
        "self-attention",
    )
    position_range: int = key(
        0,
        "training draws each sequence's positions from this many (randomised positions); 0: they are 0, 1, …",
        minimum=0,
    )
    position_gap: int = key(
        1,
        "with a position_range, how far apart tokens are outside training; Ruoss et al. have N tokens about "
        "position_range / N apart",
        minimum=1,
    )
    position_stretch: float = key(
        1.0, "training multiplies each sequence's positions by a factor from 1 to this; 1: it does not", minimum=1
    )
    attention: str = key("softmax", "one of fxf.layers.attention.ATTENTIONS")
    attention_implementation: Literal["xla", "cudnn"] = key(
        "xla",
        "what computes attention in training: XLA; or, of softmax in bfloat16, cuDNN's flash attention, which never "
        "holds the scores whole in memory and needs an NVIDIA GPU of Ampere or later",
    )
    feature_map: str = key("elu", "of linear attention: one of fxf.layers.linear_attention.FEATURE_MAPS")
    window: int = key(0, "positions that self-attention sees around a token, its own included; 0: all", minimum=0)
    qk_norm: bool = key(False, "RMS-normalize each head's queries and keys, with a scale")
    activation: str = key("relu", "nonlinearity of the feed-forward layer: one of ACTIVATIONS there")
    gated: bool = key(False, "multiply the feed-forward's hidden layer by a linear map: silu makes SwiGLU, gelu GeGLU")
    logits_bias: bool = key(False, "where logits are read from the embedding table, add a bias to each")
    logit_softcap: float = key(0.0, "logits become c·tanh(logits/c); 0 leaves them", minimum=0)
    attention_bias: Literal["output", "all", "none"] = key(
        "output", "which of attention's linear maps have a bias: the last (seed 004), all (000), none (003)"
    )
    init: Literal["default", "uniform", "gpt2"] = key(
        "default",
        "a scaled init for each weight; seed 004's uniform(-1/2, 1/2) for all; or GPT-2's normal(0.02), with less for "
        "what a sublayer adds",
    )
    scan_blocks: bool = key(
        False, "train in a loop over blocks, their weights stacked: many compile faster, and run slower"
    )
    remat: Literal["none", "full", "dots"] = key(
        "none",
        "what the backward pass computes again: nothing; all inside a block; all but its products with weights",
    )
    dtype: Literal["float32", "bfloat16"] = key(
        "float32", "of the computation; weights, statistics of norms and softmaxes, logits and losses stay float32"
    )

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise UserError(f"model.n_heads: {self.n_heads} does not divide model.d_model {self.d_model}")
        if self.n_heads % self.n_groups:
            raise UserError(f"model.n_kv_heads: {self.n_kv_heads} does not divide model.n_heads {self.n_heads}")
        if 0 < self.position_range < self.max_len:
            raise UserError(
                f"model.position_range: expected 0 or at least model.max_len {self.max_len}, got {self.position_range}"
            )
        if self.position_gap > 1 and not self.position_range:
            raise UserError("model.position_gap: only read with a model.position_range; leave it at 1")
        if self.position_range and self.position_gap * self.max_len > self.position_range:
            most = self.position_range // self.max_len
            raise UserError(
                f"model.position_gap: expected at most model.position_range / model.max_len, {most}, "
                f"got {self.position_gap}"
            )
        for name, off in (("position_range", 0), ("position_stretch", 1)):
            if getattr(self, name) != off and self.positions == "none":
                raise UserError(f"model.{name}: model.positions 'none' does not read it; leave it at {off}")
            if getattr(self, name) != off and self.window:
                raise UserError(f"model.window: not with model.{name}, which spreads the tokens")
        if self.position_range and self.position_stretch > 1:
            raise UserError("model.position_stretch: not with model.position_range; training draws positions one way")
        if self.attention != "linear" and self.feature_map != "elu":
            raise UserError(
                f"model.feature_map: model.attention '{self.attention}' does not read it; leave it at 'elu'"
            )

        if self.attention_implementation == "cudnn":
            self._check_cudnn()

    def _check_cudnn(self) -> None:
        """Raises a UserError if another key asks for what cuDNN's flash attention has not."""
        needs, head_dim = "model.attention_implementation: cudnn needs", self.d_model // self.n_heads
        for name, needed in (("attention", "softmax"), ("dtype", "bfloat16"), ("attention_dropout", 0.0)):
            if getattr(self, name) != needed:
                raise UserError(f"{needs} model.{name} {needed!r}, got {getattr(self, name)!r}")
        if head_dim % 8 or head_dim > 128:
            raise UserError(
                f"{needs} heads whose width (model.d_model / model.n_heads) is a multiple of 8 and at most 128, "
                f"got {head_dim}"
            )

    @property
    def n_groups(self) -> int:
        """Heads of keys and values."""
        return self.n_kv_heads or self.n_heads


@dataclasses.dataclass(frozen=True)
class CrossAttentionConfig(TransformerConfig):
    """The keys of blocks that also read a source."""

    cross_norm: Literal["queries", "source"] = key(
        "queries", "the stream that cross-attention normalizes in a pre_norm block: the decoder's, or the encoder's"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block != "pre_norm" and self.cross_norm != "queries":
            raise UserError(f"model.cross_norm: model.block '{self.block}' does not read it; leave it at 'queries'")

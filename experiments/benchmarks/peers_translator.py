"""A translator in plain PyTorch with fxf's weights, for comparison with fxf."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

from fxf.base.weights import Params
from fxf.layers.positions import interleaved
from fxf.models.encoder_decoder import EncoderDecoderConfig


def translator_training(
    config: EncoderDecoderConfig, params: Params, batch: dict[str, Any], smoothing: float, steps: int, *, compiled: bool
) -> tuple[float, Callable[[], float]]:
    """Returns the loss without dropout, and a function that takes n training steps with Adam on one batch."""
    translator = TorchTranslator(config, params)
    source, inputs, targets = (torch.tensor(batch[name]).long() for name in ("source", "inputs", "targets"))
    padding = torch.tensor(~batch["source_mask"])
    model: Any = torch.compile(translator) if compiled else translator
    optimizer = torch.optim.Adam(translator.parameters(), lr=1e-3, fused=True)

    def loss(model: Any = model) -> torch.Tensor:
        logits = model(source, padding, inputs)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)

    def run() -> float:
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
        return value.item()

    translator.eval()
    with torch.no_grad():
        first = loss(translator).item()
    translator.train()
    return first, run


class TorchTranslator(torch.nn.Module):
    """`torch.nn.Transformer` between embeddings and logits, with fxf's params."""

    def __init__(self, config: EncoderDecoderConfig, params: Params) -> None:
        super().__init__()
        self.config = config
        self.table = _parameter(params["embedding"]["table"])
        sinusoids = interleaved(jnp.arange(config.max_len), config.d_model)
        self.register_buffer("sinusoids", torch.tensor(np.array(sinusoids)))
        self.embedding_dropout = torch.nn.Dropout(config.embedding_dropout)
        options: dict[str, Any] = {
            **{"batch_first": True, "norm_first": config.block == "pre_norm", "layer_norm_eps": config.norm_epsilon},
            **{"dropout": config.dropout, "activation": config.activation},
        }
        sizes = (config.d_model, config.n_heads, config.d_ff)
        encoder_layer = torch.nn.TransformerEncoderLayer(*sizes, **options)
        decoder_layer = torch.nn.TransformerDecoderLayer(*sizes, **options)
        self.transformer = torch.nn.Transformer(
            *sizes[:2],
            custom_encoder=torch.nn.TransformerEncoder(encoder_layer, config.n_layers, enable_nested_tensor=False),
            custom_decoder=torch.nn.TransformerDecoder(decoder_layer, config.n_layers),
            batch_first=True,
        )
        for name in ("encoder", "decoder"):
            stack = getattr(self.transformer, name)
            for i, layer in enumerate(stack.layers):
                _copy_block(layer, jax.tree.map(np.asarray, params[name]["blocks"][str(i)]))
            stack.norm = torch.nn.Identity()
            if config.final_norm:
                stack.norm = torch.nn.LayerNorm(config.d_model, config.norm_epsilon)
                _copy_norm(stack.norm, params[name]["norm"])

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        x = functional.embedding(tokens, self.table) * self.config.d_model**0.5
        return self.embedding_dropout(x + self.sinusoids[: tokens.shape[1]])

    def forward(self, source: torch.Tensor, padding: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        causal = torch.nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], dtype=torch.bool)
        hidden = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        sides = self.embed(source), self.embed(inputs)
        return self.transformer(*sides, tgt_mask=causal, tgt_is_causal=True, **hidden) @ self.table.T


def _parameter(x: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(x)))


def _copy_norm(norm: Any, weights: Params) -> None:
    norm.weight, norm.bias = _parameter(weights["scale"]), _parameter(weights["bias"])


def _copy_block(layer: Any, block: Params) -> None:
    """Gives a layer of torch.nn.Transformer the weights of one block, and fxf's dropout."""
    d_model = layer.self_attn.embed_dim
    attentions, norms = {"self_attn": "attention"}, {"norm1": "attention", "norm2": "feed_forward"}
    if "cross_attention" in block:
        attentions |= {"multihead_attn": "cross_attention"}
        norms |= {"norm2": "cross_attention", "norm3": "feed_forward"}
    for name, ours in attentions.items():
        attention, weights, zeros = getattr(layer, name), block[ours], np.zeros(d_model, np.float32)
        kernels = [weights[part].reshape(d_model, -1).T for part in ("query", "key", "value")]
        biases = [weights.get(f"{part}_bias", zeros).reshape(-1) for part in ("query", "key", "value")]
        attention.in_proj_weight = _parameter(np.concatenate(kernels))
        attention.in_proj_bias = _parameter(np.concatenate(biases))
        attention.out_proj.weight = _parameter(weights["output"].reshape(-1, d_model).T)
        attention.out_proj.bias = _parameter(weights.get("output_bias", zeros))
        attention.dropout = 0.0
    for name, ours in {"linear1": "up", "linear2": "down"}.items():
        linear, weights = getattr(layer, name), block["feed_forward"]
        linear.weight, linear.bias = _parameter(weights[ours].T), _parameter(weights[f"{ours}_bias"])
    for name, ours in norms.items():
        _copy_norm(getattr(layer, name), block[f"{ours}_norm"])
    layer.dropout = torch.nn.Identity()  # inside the feed-forward layer

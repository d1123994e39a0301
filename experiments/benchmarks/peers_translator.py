"""A translator in plain PyTorch, which has the weights of fxf's, for comparisons with fxf."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

from fxf.layers.position_kinds import interleaved
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.weights import Params


def translator_training(
    config: EncoderDecoderConfig, params: Params, batch: dict[str, Any], smoothing: float, steps: int, *, compiled: bool
) -> tuple[float, Callable[[], float]]:
    """Returns the loss without dropout, and a function that takes some training steps with Adam on one batch."""
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
    """`torch.nn.Transformer` between embeddings and logits, with the weights of fxf's params."""

    def __init__(self, config: EncoderDecoderConfig, params: Params) -> None:
        super().__init__()
        assert config.embeddings == "shared" and config.positions == "sinusoidal"
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
        x = self.transformer(
            self.embed(source),
            self.embed(inputs),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return x @ self.table.T

    @torch.inference_mode()
    def beam_search(
        self,
        source: torch.Tensor,
        padding: torch.Tensor,
        *,
        width: int,
        max_tokens: int,
        end_token: int,
    ) -> torch.Tensor:
        """Returns the tokens found by the rule of `fxf.decoding.beam.beam_search`, with scores divided by length."""
        batch_size, n_rows, vocab_size = len(source), len(source) * width, len(self.table)
        d_model, n_heads = self.config.d_model, self.config.n_heads
        nowhere = torch.full((batch_size, width), -torch.inf)
        live_log, done_score = nowhere.clone(), nowhere.clone()
        live_log[:, 0] = 0
        live = torch.full((batch_size, width, max_tokens), end_token)
        done = live.clone()
        stopped = torch.zeros(batch_size, dtype=torch.bool)
        last = torch.zeros(n_rows, dtype=torch.long)
        first_rows = torch.arange(batch_size)[:, None] * width
        layers = self.transformer.decoder.layers
        encoded = self.transformer.encoder(self.embed(source), src_key_padding_mask=padding)
        # All hypotheses of a sentence share the keys and values of cross-attention.
        sources = [_heads(_project(layer.multihead_attn, encoded, 1, 3), 2 * n_heads).chunk(2, 1) for layer in layers]
        allowed = ~padding[:, None, None]
        empty = torch.zeros(n_rows, n_heads, 0, d_model // n_heads)
        caches = [(empty, empty) for _ in layers]

        for i in range(max_tokens):
            x = functional.embedding(last, self.table) * d_model**0.5 + self.sinusoids[i]
            for j, (layer, (source_keys, source_values)) in enumerate(zip(layers, sources, strict=True)):
                query, *new = _heads(_project(layer.self_attn, layer.norm1(x), 0, 3)[:, None], 3 * n_heads).chunk(3, 1)
                keys, values = (torch.cat(pair, 2) for pair in zip(caches[j], new, strict=True))
                caches[j] = keys, values
                heads = functional.scaled_dot_product_attention(query, keys, values)
                x = x + layer.self_attn.out_proj(heads.reshape(n_rows, d_model))
                query = _project(layer.multihead_attn, layer.norm2(x), 0, 1).view(batch_size, width, d_model)
                heads = functional.scaled_dot_product_attention(
                    _heads(query, n_heads), source_keys, source_values, attn_mask=allowed
                )
                x = x + layer.multihead_attn.out_proj(heads.transpose(1, 2).reshape(n_rows, d_model))
                x = x + layer.linear2(functional.relu(layer.linear1(layer.norm3(x))))
            x = self.transformer.decoder.norm(x)
            log = functional.log_softmax(x @ self.table.T, dim=-1).view(batch_size, width, vocab_size)
            log, index = (live_log[..., None] + log).view(batch_size, -1).topk(2 * width)
            parent, token = index // vocab_size, index % vocab_size
            tokens = live.gather(1, parent[..., None].expand(-1, -1, max_tokens))
            tokens[:, :, i] = token

            ends = token == end_token
            aside = ends & (torch.arange(2 * width) < width) & ~stopped[:, None]
            done_score, done = _merge(done_score, done, torch.where(aside, log / (i + 1), -torch.inf), tokens)
            live_log, chosen = log.masked_fill(ends, -torch.inf).topk(width)
            live = tokens.gather(1, chosen[..., None].expand(-1, -1, max_tokens))
            last = token.gather(1, chosen).view(-1)
            rows = (first_rows + parent.gather(1, chosen)).view(-1)
            caches = [(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in caches]
            stopped |= done_score[:, -1] > -torch.inf
            if stopped.all():
                break
        left = torch.where(stopped[:, None], -torch.inf, live_log / max_tokens)
        return _merge(done_score, done, left, live)[1]


def _project(attention: torch.nn.MultiheadAttention, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """Returns the queries (0), keys (1) or values (2) of x, or several of them side by side."""
    rows = slice(start * attention.embed_dim, end * attention.embed_dim)
    return functional.linear(x, attention.in_proj_weight[rows], attention.in_proj_bias[rows])


def _heads(x: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Returns x [B, T, D] as [B, H, T, K]."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def _merge(
    done_score: torch.Tensor, done: torch.Tensor, score: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    best, chosen = torch.cat([done_score, score], 1).topk(done_score.shape[1])
    both = torch.cat([done, tokens], 1)
    return best, both.gather(1, chosen[..., None].expand(-1, -1, both.shape[2]))


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

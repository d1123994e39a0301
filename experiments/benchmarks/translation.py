"""Training and beam search of encoder–decoders beside PyTorch, in one run.

pip install -e '.[bench]'
python experiments/benchmarks/translation.py [--part=training] [--part=six] [--part=beam] [--repeats=5]

PyTorch's model is `torch.nn.Transformer` with the weights of fxf's, on all cores. What is compared:
  training    tokens/s at Transformer-Tiny's size: batches of 256 pairs of 16 tokens, dropout, label smoothing, Adam
  six         seconds a step at the size of seed 003, on a batch of 6 pairs of 20 tokens, as its six pairs are
  beam        sentences/s of a beam of 5 at Transformer-Tiny's size, for 24 tokens each: `make_predictor`, and in
              PyTorch a batched search by the same rule with a cache, 64 sentences at a time and one at a time
Before anything is timed, both must give the same loss without dropout, or find the same translations.

Where they differ: fxf compiles the step, PyTorch runs it operation by operation, with its fused Adam. Dropout is where
fxf has it: on embeddings and on what a sublayer adds (`nn.Transformer`'s two others are off). In `six`, PyTorch's
attention has biases, which are 0 at first. Warm-up is not counted; the ways take turns, and the median of each counts.
"""

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from absl import app, flags
from torch.nn import functional

from fxf.config import DecodeConfig, OptimizerConfig, TrainConfig
from fxf.decoding.predict import make_predictor
from fxf.layers.positions import interleaved
from fxf.model_config import EncoderDecoderConfig
from fxf.models.encoder_decoder import PRESETS, encoder_decoder
from fxf.training.optimizer import make_optimizer
from fxf.training.step import TrainState, batch_loss, make_fed_train_steps
from fxf.weights import Params, initialize

PARTS = ("training", "six", "beam")
PART = flags.DEFINE_multi_enum("part", list(PARTS), list(PARTS), "what to compare")
REPEATS = flags.DEFINE_integer("repeats", 5, "times that each way is timed; the median counts", lower_bound=1)
STEPS = flags.DEFINE_integer("steps", 4, "training steps timed at a time", lower_bound=1)
THREADS = flags.DEFINE_integer("threads", os.cpu_count() or 1, "threads of PyTorch; XLA takes every core")
SENTENCES = flags.DEFINE_integer("sentences", 64, "sentences that a beam search translates at a time", lower_bound=1)

TINY_CHOICES: dict[str, Any] = {
    **{"n_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4, "max_len": 64},
    **{"dropout": 0.3, "embedding_dropout": 0.3, "block": "pre_norm", "final_norm": False},
    **{"norm_epsilon": 1e-5, "norm_epsilon_in": "variance", "positions": "sinusoidal"},
    **{"attention_bias": "all", "embeddings": "shared"},
}
TINY = EncoderDecoderConfig(**TINY_CHOICES)
TINY_VOCAB_SIZE = 9712
SIX = EncoderDecoderConfig(**PRESETS["annotated"])
SIX_VOCAB_SIZE = 32
BEAM_WIDTH, MAX_TOKENS = 5, 24
ALONE = 4  # sentences translated one at a time
NO_END = -1  # a token that is never chosen, so that both ways take the same number of steps


class TorchTranslator(torch.nn.Module):
    """`torch.nn.Transformer` between embeddings and logits, with the weights of fxf's params."""

    def __init__(self, config: EncoderDecoderConfig, params: Params) -> None:
        super().__init__()
        assert config.embeddings == "shared" and config.positions == "sinusoidal" and not config.final_norm
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
            for i, layer in enumerate(getattr(self.transformer, name).layers):
                _copy_block(layer, jax.tree.map(lambda w, i=i: np.asarray(w[i]), params[name]["blocks"]))

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
        """Returns the tokens found, by the rule of `fxf.decoding.beam.beam_search`, whose scores divide by length."""
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
        # What cross-attention sees is the same for every hypothesis of a sentence, so it is kept once.
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
    """Returns one or more of the queries (0), keys (1) and values (2) of x, side by side."""
    rows = slice(start * attention.embed_dim, end * attention.embed_dim)
    return functional.linear(x, attention.in_proj_weight[rows], attention.in_proj_bias[rows])


def _heads(x: torch.Tensor, n_heads: int) -> torch.Tensor:
    """[B, T, D] to [B, H, T, K]."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def _merge(
    done_score: torch.Tensor, done: torch.Tensor, score: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    best, chosen = torch.cat([done_score, score], 1).topk(done_score.shape[1])
    both = torch.cat([done, tokens], 1)
    return best, both.gather(1, chosen[..., None].expand(-1, -1, both.shape[2]))


def _parameter(x: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.array(x)))


def _copy_block(layer: Any, block: Params) -> None:
    """Gives a layer of torch.nn.Transformer the weights of one block, and the dropout that fxf has."""
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
        norm, weights = getattr(layer, name), block[f"{ours}_norm"]
        norm.weight, norm.bias = _parameter(weights["scale"]), _parameter(weights["bias"])
    layer.dropout = torch.nn.Identity()  # inside the feed-forward layer


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Returns the median seconds of each way; they take turns, so that a slower minute of the machine meets all."""
    for run in ways.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def report(what: str, unit: str, seconds: Mapping[str, float], amount: int = 0) -> None:
    """Prints each way's amount a second, or its seconds where there is no amount, and their ratio."""
    figures = {name: amount / value if amount else value for name, value in seconds.items()}
    both = "   ".join(f"{name} {figure:10,.2f} {unit}" for name, figure in figures.items())
    print(f"{what:32}{both}   fxf is {seconds['PyTorch'] / seconds['fxf']:.2f} x as fast", flush=True)


def random_batch(n_pairs: int, length: int, vocab_size: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    source, inputs, targets = rng.integers(3, vocab_size, (3, n_pairs, length)).astype(np.int32)
    everywhere = np.ones((n_pairs, length), np.float32)
    return {
        **{"source": source, "source_mask": everywhere > 0},
        **{"inputs": inputs, "targets": targets, "weights": everywhere},
    }


def training(
    config: EncoderDecoderConfig, vocab_size: int, batch: dict[str, Any], smoothing: float, rate: float
) -> dict[str, float]:
    """Returns each way's median seconds a step."""
    model = encoder_decoder(config, vocab_size)
    train = TrainConfig(label_smoothing=smoothing)
    optimizer = make_optimizer(OptimizerConfig(learning_rate=rate), train.steps, model.spec)
    params = jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))
    translator = TorchTranslator(config, params)
    torch_optimizer = torch.optim.Adam(translator.parameters(), lr=rate, fused=True)
    source, inputs, targets = (torch.tensor(batch[name]).long() for name in ("source", "inputs", "targets"))
    padding = torch.tensor(~batch["source_mask"])

    def torch_loss() -> torch.Tensor:
        logits = translator(source, padding, inputs)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)

    loss_sum, weight_sum = jax.jit(lambda p: batch_loss(model, p, batch, label_smoothing=smoothing))(params)
    translator.eval()
    with torch.no_grad():
        np.testing.assert_allclose(torch_loss().item(), loss_sum / weight_sum, rtol=1e-4)
    translator.train()

    state = TrainState(jnp.int32(0), params, jax.jit(optimizer.init)(params))
    train_steps = make_fed_train_steps(model, optimizer, train, itertools.repeat(batch), 0, nullcontext)

    def ours() -> None:
        nonlocal state
        state, _ = train_steps(state, STEPS.value)

    def theirs() -> None:
        for _ in range(STEPS.value):
            torch_optimizer.zero_grad()
            loss = torch_loss()
            loss.backward()
            torch_optimizer.step()
        loss.item()

    seconds = medians({"fxf": ours, "PyTorch": theirs}, REPEATS.value)
    return {name: value / STEPS.value for name, value in seconds.items()}


def beam() -> None:
    model = encoder_decoder(TINY, TINY_VOCAB_SIZE)
    params = jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))
    translator = TorchTranslator(TINY, params).eval()
    predict = make_predictor(model, NO_END, decode=DecodeConfig(beam_width=BEAM_WIDTH))
    batch = random_batch(SENTENCES.value, 16, TINY_VOCAB_SIZE)

    def ours(rows: slice) -> np.ndarray:
        source = {name: batch[name][rows] for name in ("source", "source_mask")}
        n = len(source["source"])
        prompts = {**source, "tokens": np.zeros((n, 0), np.int32), "lengths": np.zeros(n, np.int32)}
        return predict(params, prompts, MAX_TOKENS)[0]

    def theirs(rows: slice) -> np.ndarray:
        source, padding = torch.tensor(batch["source"][rows]).long(), torch.tensor(~batch["source_mask"][rows])
        options = {"width": BEAM_WIDTH, "max_tokens": MAX_TOKENS, "end_token": NO_END}
        return translator.beam_search(source, padding, **options).numpy()

    def each(way: Callable[[slice], np.ndarray], groups: list[slice]) -> None:
        for rows in groups:
            way(rows)

    everything = slice(None)
    same = (ours(everything) == theirs(everything)).mean()
    print(f"both searches find the same for {same:.2%} of the tokens", flush=True)
    assert same > 0.9  # not all: float32 sums differ, and two hypotheses may score almost the same
    for what, groups in {
        f"beam, {SENTENCES.value} sentences at a time": [everything],
        "beam, one sentence at a time": [slice(i, i + 1) for i in range(min(ALONE, SENTENCES.value))],
    }.items():
        n = sum(len(batch["source"][rows]) for rows in groups)
        ways = {"fxf": functools.partial(each, ours, groups), "PyTorch": functools.partial(each, theirs, groups)}
        report(what, "sentences/s", medians(ways, REPEATS.value), n)


def main(_: list[str]) -> None:
    torch.set_num_threads(THREADS.value)
    torch.manual_seed(0)
    if "training" in PART.value:
        batch = random_batch(256, 16, TINY_VOCAB_SIZE)
        seconds = training(TINY, TINY_VOCAB_SIZE, batch, 0.1, 1e-3)
        report("training, Transformer-Tiny", "tokens/s", seconds, batch["targets"].size)
    if "six" in PART.value:
        seconds = training(SIX, SIX_VOCAB_SIZE, random_batch(6, 20, SIX_VOCAB_SIZE), 0.0, 1e-4)
        report("training, seed 003's size", "s/step", seconds)
    if "beam" in PART.value:
        beam()


if __name__ == "__main__":
    app.run(main)

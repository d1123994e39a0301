"""Rows of training: the same model, batch and optimizer in fxf, PyTorch (eager and compiled) and Flax NNX.

Two differences remain: fxf's layer norms always have biases, and its weight decay leaves embeddings out. Each step
reads the same random batch. The losses before the first step must agree: up to rounding if the peer has fxf's weights
(the translators), else within a tenth. Peers run at their best: also compiled, with all threads, fused optimizers and
donated arrays. By default glibc returns freed memory to Linux; fxf (`fxf/base/kept_memory.py`) and each peer here keep
it.
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.rows import Row, Rows, Settings, Sizes, Way, added_bytes
from fxf.base.devices import require_devices
from fxf.base.kept_memory import keep_memory
from fxf.base.weights import Params, initialize
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.configs import folder
from fxf.runs.guests import load
from fxf.training.gradient import batch_loss
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import TrainState, hyperparameters
from fxf.training.step import TrainConfig, Trainer, jit_step, make_step, make_train_steps_from_iterator

PRESETS = load(folder() / "translation.py").PRESETS

TINY_CHOICES: dict[str, Any] = {
    **{"n_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4, "max_len": 64},
    **{"dropout": 0.3, "embedding_dropout": 0.3, "block": "pre_norm", "final_norm": False},
    **{"norm_epsilon": 1e-5, "norm_epsilon_in": "variance", "positions": "sinusoidal"},
    **{"attention_bias": "all", "embeddings": "shared"},
}
TINY = EncoderDecoderConfig(**TINY_CHOICES)
TINY_VOCAB_SIZE, GPT2_VOCAB_SIZE = 9712, 50257
PADDED = 50304  # nanoGPT pads GPT-2's vocabulary to a multiple of 64; fxf does so inside a step
NANOGPT_CPU, NANOGPT_ROWS = (4, 128, 4, 64, 65), 12
# Sizes for `growth`: each varies one of layers, width, heads, length and vocabulary.
SMALL: dict[str, Any] = {"n_layers": 2, "d_model": 64, "n_heads": 2, "length": 64, "vocab_size": 65}
GROWTH: dict[str, tuple[int, ...]] = {
    **{"length": (128, 512, 2048, 8192), "length in chunks": (2048, 4096, 8192)},
    **{"n_layers": (2, 8, 24, 48), "d_model": (64, 256, 1024), "vocab_size": (256, 4096, 65536)},
}
Ways = Mapping[str, Callable[[], Way]]
Peer = Callable[[], tuple[float, Callable[[], Any]]]  # returns the first loss, and a function that trains n steps


def drawn(model: Model) -> Params:
    return jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))


class Fxf:
    """fxf's training of a model on one batch."""

    def __init__(self, model: Model, batch: dict[str, Any], optimizer: OptimizerConfig, train: TrainConfig) -> None:
        self.model, self.batch, self.smoothing = model, batch, train.label_smoothing
        made = make_optimizer(optimizer, train.steps, model.spec)
        self.trainer = Trainer(model, made, train, make_layout(ParallelConfig(data=1), require_devices()))
        params = drawn(model)
        state = TrainState(jnp.int32(0), params, jax.jit(made.init)(params))
        self.state = jax.device_put(state, self.trainer.layout.replicated)
        self.numbers = hyperparameters(0, train, optimizer)
        self.steps = make_train_steps_from_iterator(self.trainer, itertools.repeat(batch))

    def loss(self) -> float:
        """Returns the mean loss without dropout."""
        mean = jax.jit(lambda p: batch_loss(self.model, p, self.batch, label_smoothing=self.smoothing))
        loss, weight = mean(self.state.params)[:2]
        return float(loss / weight)

    def run(self, n: int) -> None:
        self.state, _ = self.steps(self.state, self.numbers, n)

    def planned_bytes(self) -> int:
        """Returns the bytes that the compiled step needs besides its arguments."""
        lowered = jit_step(make_step(self.trainer), self.trainer).lower(self.state, self.batch, self.numbers)
        return lowered.compile().memory_analysis().temp_size_in_bytes


def lm(sizes: Sizes, **changes: Any) -> Model:
    """Returns fxf's GPT of these sizes."""
    choices: dict[str, Any] = {
        **{"n_layers": sizes.n_layers, "d_model": sizes.d_model, "d_ff": 4 * sizes.d_model, "n_heads": sizes.n_heads},
        **{"max_len": sizes.length, "positions": "learned", "tied_embeddings": True, "init": "gpt2"},
        **{"activation": "gelu_tanh" if sizes.gpt2 else "gelu", "norm_epsilon": 1e-5, "norm_epsilon_in": "variance"},
        **{"attention_bias": "all" if sizes.gpt2 else "none", "feed_forward_bias": sizes.gpt2, "dtype": sizes.dtype},
    }
    return transformer_lm(TransformerLMConfig(**{**choices, **changes}), sizes.vocab_size)


def random_tokens(rows: int, length: int, vocab_size: int) -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(1, vocab_size, (rows, length + 1)).astype(np.int32)
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:], "weights": np.ones((rows, length), np.float32)}


def random_pairs(rows: int, length: int, vocab_size: int) -> dict[str, Any]:
    source, inputs, targets = np.random.default_rng(0).integers(3, vocab_size, (3, rows, length)).astype(np.int32)
    weights = np.ones((rows, length), np.float32)
    return {"source": source, "source_mask": weights > 0, "inputs": inputs, "targets": targets, "weights": weights}


def fxf_gpt(sizes: Sizes, batch: dict[str, Any], attention: str = "xla") -> Fxf:
    optimizer = OptimizerConfig(name="adamw", learning_rate=1e-3, b2=0.99, weight_decay=0.1, clip_norm=1.0)
    return Fxf(lm(sizes, attention_implementation=attention), batch, optimizer, TrainConfig())


def ours(make: Callable[[], Fxf], settings: Settings) -> Way:
    fxf = make()
    first = fxf.loss()
    return Way(lambda: fxf.run(settings.steps), lambda: first)


def theirs(peer: Peer, keeps: bool = True) -> Way:
    """Returns a peer's way, which keeps freed memory as fxf does, unless the machine has too little."""
    if keeps:
        keep_memory(jax.config)
    first, run = peer()
    return Way(run, lambda: first)


def agreement(losses: dict[str, float], within: float) -> str:
    """Fails if the first losses differ by more than the share `within`."""
    for name, loss in losses.items():
        if loss is not None:
            np.testing.assert_allclose(loss, next(iter(losses.values())), rtol=within, err_msg=name)
    return ""


def training_row(what: str, ways: Ways, tokens: int, settings: Settings, within: float) -> Row:
    note = functools.partial(agreement, within=within)
    return Row(f"training step, {what}", "tokens/s", tokens * settings.steps, ways, note)


def gpt_peers(sizes: Sizes, batch: dict[str, Any], settings: Settings) -> dict[str, Peer]:
    from experiments.benchmarks import peers_flax

    torch = functools.partial(_gpt_in_torch, sizes, batch, settings)
    return {
        "PyTorch": functools.partial(torch, mode=""),
        "PyTorch compiled": functools.partial(torch, mode="default"),
        "PyTorch max-autotune": functools.partial(torch, mode="max-autotune"),
        "Flax NNX": functools.partial(peers_flax.gpt_training, sizes, batch, settings.steps),
    }


def _gpt_in_torch(sizes: Sizes, batch: dict[str, Any], settings: Settings, mode: str) -> tuple[float, Any]:
    import torch

    from experiments.benchmarks.peers_gpt import gpt_training

    torch.set_num_threads(settings.threads)
    padded = sizes._replace(vocab_size=PADDED) if sizes.dtype == "bfloat16" else sizes
    return gpt_training(padded, batch, settings.steps, mode=mode)


def gpt_row(what: str, sizes: Sizes, rows: int, settings: Settings, keeps: bool = True) -> Row:
    """Returns a training row of a GPT with AdamW, clipping, and no dropout, beside PyTorch and Flax."""
    batch = random_tokens(rows, sizes.length, sizes.vocab_size)
    peers = gpt_peers(sizes, batch, settings)
    ways = {"fxf": functools.partial(ours, functools.partial(fxf_gpt, sizes, batch), settings)}
    ways |= {name: functools.partial(theirs, peer, keeps) for name, peer in peers.items() if "max" not in name}
    return training_row(what, ways, rows * sizes.length, settings, 0.1)


def nanogpt_cpu(settings: Settings) -> Iterator[Row]:
    """nanoGPT's recipe for a CPU: 4 layers, width 128, 12 rows of 64 characters."""
    yield gpt_row("nanoGPT's CPU size", Sizes(*NANOGPT_CPU), NANOGPT_ROWS, settings)


def nanogpt_gpu(settings: Settings) -> Iterator[Row]:
    """nanoGPT's recipe for a GPU: 6 layers, width 384, 64 rows of 256 characters, without dropout."""
    rows, settings = 2 if settings.quick else 64, settings._replace(steps=1)  # a step takes seconds
    yield gpt_row("nanoGPT's GPU size", Sizes(6, 384, 6, 256, 65), rows, settings)


def gpt2_small(settings: Settings) -> Iterator[Row]:
    """GPT-2 small (124M) on 2 rows of 128 tokens."""
    sizes = Sizes(1 if settings.quick else 12, 768, 12, 128, GPT2_VOCAB_SIZE, gpt2=True)
    yield gpt_row("GPT-2 small, 2 rows of 128 tokens", sizes, 2, settings, keeps=False)  # needs more than 24 GiB


def translator_row(what: str, sizes: tuple[Any, int, tuple[int, int]], settings: Settings, smoothing: float) -> Row:
    """Returns a training row of an encoder–decoder with Adam, beside `torch.nn.Transformer` with the same weights."""
    config, vocab_size, shape = sizes
    model, batch = encoder_decoder(config, vocab_size), random_pairs(*shape, vocab_size)

    def of_fxf() -> Fxf:
        return Fxf(model, batch, OptimizerConfig(learning_rate=1e-3), TrainConfig(label_smoothing=smoothing))

    def of_torch(compiled: bool) -> tuple[float, Callable[[], Any]]:
        import torch

        from experiments.benchmarks.peers_translator import translator_training

        torch.set_num_threads(settings.threads)
        return translator_training(config, drawn(model), batch, smoothing, settings.steps, compiled=compiled)

    ways: dict[str, Callable[[], Way]] = {
        "fxf": lambda: ours(of_fxf, settings),
        "PyTorch": lambda: theirs(lambda: of_torch(False)),
        "PyTorch compiled": lambda: theirs(lambda: of_torch(True)),
    }
    return training_row(what, ways, shape[0] * shape[1], settings, 1e-4)


def transformer_tiny(settings: Settings) -> Iterator[Row]:
    """Transformer-Tiny (Wu et al. 2021): 256 pairs of 16 tokens, dropout, label smoothing."""
    shape = (16 if settings.quick else 256, 16)
    yield translator_row("Transformer-Tiny", (TINY, TINY_VOCAB_SIZE, shape), settings, 0.1)


def seed_003(settings: Settings) -> Iterator[Row]:
    """The size of seed 003 on 6 pairs of 20 tokens."""
    sizes = (EncoderDecoderConfig(**PRESETS["annotated"]), 32, (6, 20))
    yield translator_row("seed 003's size", sizes, settings, 0.0)


def growth(settings: Settings) -> Iterator[Row]:
    """Growth of a step's time with length, depth (scanned blocks), width, vocabulary; the note has planned memory."""
    for axis, values in GROWTH.items():
        chunks = {"attention_implementation": "chunked"} if "chunks" in axis else {}
        for value in values[:1] if settings.quick else values:
            sizes = Sizes(**{**SMALL, axis.split()[0]: value})
            ways = {"fxf": functools.partial(_growing, sizes, {"scan_blocks": axis == "n_layers", **chunks})}
            yield Row(f"growth, {axis} {value:,}", "tokens/s", sizes.length, ways, lambda facts: facts["fxf"])


def _growing(sizes: Sizes, options: dict[str, Any]) -> Way:
    batch = random_tokens(1, sizes.length, sizes.vocab_size)
    fxf = Fxf(lm(sizes, **options), batch, OptimizerConfig(), TrainConfig())
    return Way(lambda: fxf.run(1), lambda: f"plan {fxf.planned_bytes() / 2**20:.0f} MiB")


def memory_of(way: str) -> float:
    """Returns the MiB that building and training a GPT of nanoGPT's CPU size adds to this process."""
    from experiments.benchmarks import peers_flax, peers_gpt  # noqa: F401  Their libraries are not what training adds.

    sizes, settings = Sizes(*NANOGPT_CPU), Settings(0, 4, os.cpu_count() or 1)
    batch = random_tokens(NANOGPT_ROWS, sizes.length, sizes.vocab_size)
    peers = gpt_peers(sizes, batch, settings)
    return added_bytes(lambda: fxf_gpt(sizes, batch).run(settings.steps) if way == "fxf" else peers[way]()[1]()) / 2**20


ROWS: dict[str, Rows] = {
    **{"nanogpt_cpu": nanogpt_cpu, "nanogpt_gpu": nanogpt_gpu, "transformer_tiny": transformer_tiny},
    **{"seed_003": seed_003, "gpt2_small": gpt2_small, "growth": growth},
}

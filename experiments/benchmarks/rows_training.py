"""Rows of training: the same model, batch and optimizer in fxf, PyTorch (eager and compiled), Flax Linen and NNX.

Each step reads the same random batch. Losses before the first step must agree: within float rounding where the peer has
fxf's weights (the translators), else within a tenth. By default glibc returns freed memory to Linux, and fxf keeps it
(`fxf/machine/kept_memory.py`); most rows also have PyTorch with it kept.
"""

import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ceilings import Ceiling
from rows import Measured, Row, Rows, Settings, Way, added_bytes, is_here

from fxf.layers.chunked_attention import SEVERAL, WORTHWHILE
from fxf.machine.devices import require_devices
from fxf.machine.kept_memory import keep_memory
from fxf.machine.on_gpu import in_order
from fxf.models.encoder_decoder import PRESETS, EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.reports.describe import times
from fxf.training.gradient import batch_loss
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import TrainState, hyperparameters
from fxf.training.step import TrainConfig, Trainer, jit_step, make_step, make_train_steps_from_iterator
from fxf.weights import Params, initialize

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
NANOGPT_CPU, NANOGPT_ROWS = (4, 128, 4, 64, 65), 12


def drawn(model: Model) -> Params:
    return jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))


class Fxf:
    """fxf's training of a model on one batch."""

    def __init__(self, model: Model, batch: dict[str, Any], optimizer: OptimizerConfig, train: TrainConfig) -> None:
        self.model, self.batch = model, batch
        made = make_optimizer(optimizer, train.steps, model.spec)
        self.trainer = Trainer(model, made, train, make_layout(ParallelConfig(data=1), require_devices()))
        params = drawn(model)
        state = TrainState(jnp.int32(0), params, jax.jit(made.init)(params))
        self.state = jax.device_put(state, self.trainer.layout.replicated)
        self.numbers = hyperparameters(0, train, optimizer)
        self.steps = make_train_steps_from_iterator(self.trainer, itertools.repeat(batch), nullcontext)

    def loss(self, smoothing: float) -> float:
        """Returns the mean loss without dropout."""
        sums = jax.jit(lambda p: batch_loss(self.model, p, self.batch, label_smoothing=smoothing))(self.state.params)
        return float(sums[0] / sums[1])

    def run(self, n: int) -> None:
        self.state, _ = self.steps(self.state, self.numbers, n)

    def compiled(self) -> Any:
        lowered = jit_step(make_step(self.trainer), self.trainer).lower(self.state, self.batch, self.numbers)
        return lowered.compile(in_order(lowered))

    def planned_bytes(self) -> int:
        """Returns the bytes that the compiled step needs besides its arguments."""
        return self.compiled().memory_analysis().temp_size_in_bytes

    def predicted(self, tokens: int) -> str:
        """Returns the speed that `fxf describe` predicts for a step of so many tokens."""
        seconds, *_ = times(self.compiled()).values()
        return f"predicted {tokens / seconds:,.4g}"


def sizes_of(n_layers: int, d_model: int, n_heads: int, length: int, vocab_size: int, gpt2: bool = False) -> Any:
    from peers_gpt import Sizes

    return Sizes(vocab_size, length, n_layers, n_heads, d_model, gpt2)


def lm_config(sizes: Any, **changes: Any) -> TransformerLMConfig:
    """Returns the config of fxf's GPT of these sizes."""
    choices: dict[str, Any] = {
        **{"n_layers": sizes.n_layers, "d_model": sizes.d_model, "d_ff": 4 * sizes.d_model, "n_heads": sizes.n_heads},
        **{"max_len": sizes.length, "positions": "learned", "tied_embeddings": True, "init": "gpt2"},
        **{"activation": "gelu_tanh" if sizes.gpt2 else "gelu", "norm_epsilon": 1e-5, "norm_epsilon_in": "variance"},
        **{"attention_bias": "all" if sizes.gpt2 else "none", "dtype": sizes.dtype},
    }
    return TransformerLMConfig(**{**choices, **changes})


def lm(sizes: Any, **changes: Any) -> Model:
    """Returns fxf's GPT of these sizes."""
    return transformer_lm(lm_config(sizes, **changes), sizes.vocab_size)


def random_tokens(rows: int, length: int, vocab_size: int) -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(1, vocab_size, (rows, length + 1)).astype(np.int32)
    return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:], "weights": np.ones((rows, length), np.float32)}


def random_pairs(rows: int, length: int, vocab_size: int) -> dict[str, Any]:
    source, inputs, targets = np.random.default_rng(0).integers(3, vocab_size, (3, rows, length)).astype(np.int32)
    weights = np.ones((rows, length), np.float32)
    return {"source": source, "source_mask": weights > 0, "inputs": inputs, "targets": targets, "weights": weights}


def fxf_gpt(sizes: Any, batch: dict[str, Any], attention: str = "xla") -> Fxf:
    optimizer = OptimizerConfig(name="adamw", learning_rate=1e-3, b2=0.99, weight_decay=0.1, clip_norm=1.0)
    return Fxf(lm(sizes, attention_implementation=attention), batch, optimizer, TrainConfig())


def memory_of(way: str) -> float:
    """Returns the MiB that building and training a GPT of nanoGPT's CPU size adds to this process."""
    sizes = sizes_of(*NANOGPT_CPU)
    batch, settings = random_tokens(NANOGPT_ROWS, sizes.length, sizes.vocab_size), Settings(0, 4, os.cpu_count() or 1)
    peers = _gpt_peers(sizes, batch, settings)  # imports their libraries
    return added_bytes(lambda: fxf_gpt(sizes, batch).run(settings.steps) if way == "fxf" else peers[way]()[1]()) / 2**20


def seconds_of_steps(steps: int) -> float:
    """Returns the seconds of steps at nanoGPT's CPU size, after as many that do not count."""
    sizes = sizes_of(*NANOGPT_CPU)
    ours = fxf_gpt(sizes, random_tokens(NANOGPT_ROWS, sizes.length, sizes.vocab_size))
    ours.run(steps)
    start = time.perf_counter()
    ours.run(steps)
    return time.perf_counter() - start


class FirstLoss(NamedTuple):
    """The fact of a way that trains: its loss before the first step, and a remark."""

    value: float
    remark: str = ""


Peer = Callable[[], tuple[float, Callable[[], Any]]]  # returns the first loss, and a function that takes steps


def training_ways(
    make: Callable[[], Fxf],
    peers: dict[str, Peer],
    smoothing: float,
    settings: Settings,
    tokens: int,
    keeps: bool = True,
) -> dict[str, Callable[[], Way]]:
    """Returns fxf's way to train, those of the peers, and the ceiling.

    Args:
      keeps: whether PyTorch also trains with freed memory kept, in one process more.
    """

    def ours() -> Way:
        fxf = make()
        first = fxf.loss(smoothing)
        return Way(lambda: fxf.run(settings.steps), lambda: FirstLoss(first, fxf.predicted(tokens)))

    def theirs(peer: Peer, keeps: bool) -> Way:
        if keeps:
            keep_memory(jax.config)
        first, run = peer()
        return Way(run, lambda: FirstLoss(first))

    def ceiling() -> Way:
        fxf = make()
        measure = Ceiling(fxf.model, fxf.batch)
        return Way(lambda: Measured(settings.steps * measure()))

    of_peers = {name: functools.partial(theirs, peer, False) for name, peer in peers.items()}
    if "PyTorch" in peers and keeps:
        of_peers["PyTorch, memory kept"] = functools.partial(theirs, peers["PyTorch"], True)
    return {"fxf": ours, **of_peers, "ceiling": ceiling}


def agreement(facts: dict[str, Any], within: float) -> str:
    """Returns fxf's remark. Fails if the first losses differ by a larger share than `within`."""
    losses = {name: fact for name, fact in facts.items() if fact is not None}
    for name, (loss, _) in losses.items():
        np.testing.assert_allclose(loss, next(iter(losses.values())).value, rtol=within, err_msg=name)
    return losses["fxf"].remark if "fxf" in losses else ""


def gpt_row(what: str, sizes: Any, rows: int, settings: Settings) -> Row:
    """Returns a training row of a GPT with AdamW, clipping, and no dropout, beside PyTorch and Flax."""
    batch, tokens = random_tokens(rows, sizes.length, sizes.vocab_size), rows * sizes.length
    peers = _gpt_peers(sizes, batch, settings)
    # Seven processes of GPT-2 would not fit into 24 GiB.
    ways = training_ways(lambda: fxf_gpt(sizes, batch), peers, 0.0, settings, tokens, keeps=not sizes.gpt2)
    if sizes.length >= SEVERAL * WORTHWHILE:

        def chunked() -> Way:
            fxf = fxf_gpt(sizes, batch, "chunked")
            return Way(lambda: fxf.run(settings.steps))

        ways["fxf, attention in chunks"] = chunked
    return Row(what, "tokens/s", tokens * settings.steps, ways, functools.partial(agreement, within=0.1))


def _gpt_peers(sizes: Any, batch: dict[str, Any], settings: Settings) -> dict[str, Peer]:
    import peers_flax

    found: dict[str, Peer] = {
        "Flax Linen": lambda: peers_flax.linen(sizes, batch, settings.steps),
        "Flax NNX": lambda: peers_flax.nnx_(sizes, batch, settings.steps),
    }
    if not is_here("torch"):
        return found

    def of_torch(compiled: bool) -> tuple[float, Callable[[], Any]]:
        import torch
        from peers_gpt import gpt_training

        torch.set_num_threads(settings.threads)
        return gpt_training(sizes, batch, settings.steps, compiled=compiled)

    return {"PyTorch": lambda: of_torch(False), "PyTorch compiled": lambda: of_torch(True), **found}


def translator_row(
    what: str,
    config: EncoderDecoderConfig,
    vocab_size: int,
    shape: tuple[int, int],
    settings: Settings,
    smoothing: float,
) -> Row:
    """Returns a training row of an encoder–decoder with Adam, beside `torch.nn.Transformer` with the same weights."""
    model, batch, tokens = encoder_decoder(config, vocab_size), random_pairs(*shape, vocab_size), math.prod(shape)

    def of_torch(compiled: bool) -> tuple[float, Callable[[], Any]]:
        import torch
        from peers_translator import translator_training

        torch.set_num_threads(settings.threads)
        return translator_training(config, drawn(model), batch, smoothing, settings.steps, compiled=compiled)

    def ours() -> Fxf:
        return Fxf(model, batch, OptimizerConfig(learning_rate=1e-3), TrainConfig(label_smoothing=smoothing))

    peers: dict[str, Peer] = {}
    if is_here("torch"):
        peers = {"PyTorch": lambda: of_torch(False), "PyTorch compiled": lambda: of_torch(True)}
    ways = training_ways(ours, peers, smoothing, settings, tokens)
    return Row(what, "tokens/s", tokens * settings.steps, ways, functools.partial(agreement, within=1e-4))


def nanogpt_cpu(settings: Settings) -> Iterator[Row]:
    """nanoGPT's recipe for a CPU: 4 layers, width 128, 12 rows of 64 characters."""
    yield gpt_row("training step, nanoGPT's CPU size", sizes_of(*NANOGPT_CPU), NANOGPT_ROWS, settings)


def nanogpt_gpu(settings: Settings) -> Iterator[Row]:
    """nanoGPT's recipe for a GPU: 6 layers, width 384, 64 rows of 256 characters, without dropout."""
    rows = 2 if settings.quick else 64
    settings = settings._replace(steps=1)  # which takes seconds
    yield gpt_row("training step, nanoGPT's GPU size", sizes_of(6, 384, 6, 256, 65), rows, settings)


def gpt2_small(settings: Settings) -> Iterator[Row]:
    """GPT-2 small (124M) on 2 rows of 128 tokens."""
    sizes = sizes_of(1 if settings.quick else 12, 768, 12, 128, 50257, gpt2=True)
    yield gpt_row("training step, GPT-2 small, 2 rows of 128 tokens", sizes, 2, settings)


def transformer_tiny(settings: Settings) -> Iterator[Row]:
    """Transformer-Tiny (Wu et al. 2021): 256 pairs of 16 tokens, dropout, label smoothing."""
    shape = (16 if settings.quick else 256, 16)
    yield translator_row("training step, Transformer-Tiny", TINY, TINY_VOCAB_SIZE, shape, settings, 0.1)


def seed_003(settings: Settings) -> Iterator[Row]:
    """The size of seed 003 on 6 pairs of 20 tokens."""
    yield translator_row("training step, seed 003's size", SIX, SIX_VOCAB_SIZE, (6, 20), settings, 0.0)


ROWS: dict[str, Rows] = {
    "nanogpt_cpu": nanogpt_cpu,
    "nanogpt_gpu": nanogpt_gpu,
    "transformer_tiny": transformer_tiny,
    "seed_003": seed_003,
    "gpt2_small": gpt2_small,
}

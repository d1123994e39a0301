"""Speed of training and beam search of encoder–decoders in fxf and in PyTorch, in one run.

make environment EXTRAS=test,bench
python experiments/benchmarks/translation.py [--part=training] [--part=beam] [--repeats=5]
python experiments/benchmarks/translation.py --part=text --workdir=runs/multi30k_de --input=sentences.txt

PyTorch's model is `torch.nn.Transformer` with the weights of fxf's model, on all cores. The parts are:
  training    tokens/s at Transformer-Tiny's size: batches of 256 pairs of 16 tokens, dropout, label smoothing, Adam
  six         seconds per step at the size of seed 003, on a batch of 6 pairs of 20 tokens, like its six pairs
  beam        sentences/s of a beam of 5 at Transformer-Tiny's size, for 24 tokens each. fxf has `make_decoder`, and
              PyTorch a batched search by the same rule with a cache. Both translate 64 sentences at a time, the number
              of slots of `make_decoder`, and one at a time
  generate    the same with `generate` of Hugging Face's transformers, and the weights of its Marian model
  text        sentences/s of a beam of 5 on real text with a trained run, from a list of lines to a list of lines.
              Translations end at the end token. fxf works as `fxf generate` does. PyTorch translates one
              sentence at a time, as in seed 003, and batches, in the given order or sorted by length
Before anything is timed, both must give the same loss without dropout, or find the same translations.

The two differ: fxf compiles the step, and PyTorch runs it operation by operation, with its fused Adam. Both apply
dropout to embeddings and to the outputs of sublayers (`nn.Transformer`'s two others are off). In `six`, PyTorch's
attention has biases, which start at 0. The ways take turns. The median of each counts, without the warm-up.
"""

import functools
import itertools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from absl import app, flags, logging
from peers import TorchTranslator
from torch.nn import functional

from fxf.data.tokenizer import EOS, PAD, TOKENIZER_FILE, read_tokenizer
from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import make_decoder
from fxf.interop import huggingface
from fxf.models.encoder_decoder import PRESETS, EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.runs import run
from fxf.tasks.prompts import decode_groups
from fxf.training.metrics import Clock
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import TrainState, hyperparameters
from fxf.training.step import TrainConfig, Trainer, batch_loss, make_train_steps_from_iterator
from fxf.weights import Params, initialize

PARTS = ["training", "six", "beam", "generate"]
PART = flags.DEFINE_multi_enum("part", PARTS, [*PARTS, "text"], "parts of the comparison")
WORKDIR = flags.DEFINE_string("workdir", "", "run folder for the part `text`")
INPUT = flags.DEFINE_string("input", "", "file with one sentence per line for the part `text`")
REPEATS = flags.DEFINE_integer("repeats", 5, "number of timings of each way; the median counts", lower_bound=1)
STEPS = flags.DEFINE_integer("steps", 4, "training steps in a timing", lower_bound=1)
THREADS = flags.DEFINE_integer("threads", os.cpu_count() or 1, "threads of PyTorch; XLA takes every core")
SENTENCES = flags.DEFINE_multi_integer("sentences", [64], "sentences that a beam search translates at a time", 1)

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
# Marian's model of that size. With its default init_std a random model repeats one token, and all scores are alike.
MARIAN: dict[str, Any] = {
    **{"d_model": 128, "activation_function": "relu", "max_position_embeddings": 64, "scale_embedding": True},
    **{"pad_token_id": 0, "decoder_start_token_id": 0, "forced_eos_token_id": None, "init_std": 0.3},
    **{"encoder_layers": 4, "encoder_attention_heads": 4, "encoder_ffn_dim": 256},
    **{"decoder_layers": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 256},
}
BEAM_WIDTH, MAX_TOKENS = 5, 24
ALONE = 4  # sentences translated one at a time
NO_END = -1  # no token has this number, so both ways take the same number of steps


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Returns the median seconds of each way; the ways take turns, so a slow minute of the machine affects all."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def report(what: str, unit: str, seconds: Mapping[str, float], amount: int = 0) -> None:
    """Prints each way's amount per second (its seconds if the amount is 0), and the ratio of the ways."""
    figures = {name: amount / value if amount else value for name, value in seconds.items()}
    both = "   ".join(f"{name} {figure:10,.2f} {unit}" for name, figure in figures.items())
    print(f"{what:36}{both}   fxf is {seconds['PyTorch'] / seconds['fxf']:.2f} x as fast", flush=True)


def random_batch(n_pairs: int, length: int, vocab_size: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    source, inputs, targets = rng.integers(3, vocab_size, (3, n_pairs, length)).astype(np.int32)
    weights = np.ones((n_pairs, length), np.float32)
    return {
        **{"source": source, "source_mask": weights > 0},
        **{"inputs": inputs, "targets": targets, "weights": weights},
    }


def training(
    config: EncoderDecoderConfig, vocab_size: int, batch: dict[str, Any], smoothing: float, rate: float
) -> dict[str, float]:
    """Returns each way's median seconds per step."""
    model = encoder_decoder(config, vocab_size)
    train = TrainConfig(label_smoothing=smoothing)
    rates = OptimizerConfig(learning_rate=rate)
    optimizer = make_optimizer(rates, train.steps, model.spec)
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
    trainer = Trainer(model, optimizer, train, make_layout(ParallelConfig(data=1), jax.devices()))
    state = jax.device_put(state, trainer.layout.replicated)
    train_steps = make_train_steps_from_iterator(trainer, itertools.repeat(batch), nullcontext)
    numbers = hyperparameters(0, train, rates)

    def ours() -> None:
        nonlocal state
        state, _ = train_steps(state, numbers, STEPS.value)

    def theirs() -> None:
        for _ in range(STEPS.value):
            torch_optimizer.zero_grad()
            loss = torch_loss()
            loss.backward()
            torch_optimizer.step()
        loss.item()

    seconds = medians({"fxf": ours, "PyTorch": theirs}, REPEATS.value)
    return {name: value / STEPS.value for name, value in seconds.items()}


Search = Callable[[slice], np.ndarray]  # returns the tokens of the best hypotheses for some sentences of the batch


def fxf_search(model: Model, params: Params, batch: dict[str, Any]) -> Search:
    decode = make_decoder(model, NO_END, config=DecodeConfig(beam_width=BEAM_WIDTH))

    def search(rows: slice) -> np.ndarray:
        source = {name: batch[name][rows] for name in ("source", "source_mask")}
        n = len(source["source"])
        prompts = {**source, "tokens": np.zeros((n, 0), np.int32), "lengths": np.zeros(n, np.int32)}
        return decode(params, prompts, MAX_TOKENS)[0][:, 0]

    return search


def compare_searches(what: str, ours: Search, theirs: Search) -> None:
    def each(way: Search, groups: list[slice]) -> None:
        for rows in groups:
            way(rows)

    everything = slice(max(SENTENCES.value))
    same = (ours(everything) == theirs(everything)).mean()
    print(f"{what}: both find the same for {same:.2%} of the tokens", flush=True)
    # Float32 sums differ, and two hypotheses may score almost the same.
    assert same > 0.9
    sizes = {f"{what}, {n} sentences at a time": [slice(n)] for n in SENTENCES.value}
    for title, groups in {**sizes, f"{what}, one at a time": [slice(i, i + 1) for i in range(ALONE)]}.items():
        ways = {"fxf": functools.partial(each, ours, groups), "PyTorch": functools.partial(each, theirs, groups)}
        n = sum(rows.stop - (rows.start or 0) for rows in groups)
        report(title, "sentences/s", medians(ways, REPEATS.value), n)


def beam() -> None:
    model = encoder_decoder(TINY, TINY_VOCAB_SIZE)
    params = jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))
    translator = TorchTranslator(TINY, params).eval()
    batch = random_batch(max(SENTENCES.value), 16, TINY_VOCAB_SIZE)

    def theirs(rows: slice) -> np.ndarray:
        source, padding = torch.tensor(batch["source"][rows]).long(), torch.tensor(~batch["source_mask"][rows])
        options = {"width": BEAM_WIDTH, "max_tokens": MAX_TOKENS, "end_token": NO_END}
        return translator.beam_search(source, padding, **options)[:, 0].numpy()

    compare_searches("beam", fxf_search(model, params, batch), theirs)


def generate() -> None:
    import transformers

    marian = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=TINY_VOCAB_SIZE, **MARIAN)).eval()
    loaded = huggingface.load(marian)
    batch = random_batch(max(SENTENCES.value), 16, TINY_VOCAB_SIZE)

    @torch.inference_mode()
    def theirs(rows: slice) -> np.ndarray:
        source, counts = torch.tensor(batch["source"][rows]).long(), torch.tensor(batch["source_mask"][rows]).long()
        options = {"num_beams": BEAM_WIDTH, "max_new_tokens": MAX_TOKENS, "early_stopping": True, "do_sample": False}
        return marian.generate(source, attention_mask=counts, eos_token_id=None, **options)[:, 1:].numpy()

    compare_searches("generate", fxf_search(loaded.model, loaded.params, batch), theirs)


def text() -> None:
    if not (WORKDIR.value and INPUT.value):
        raise app.UsageError("--part=text needs --workdir and --input")
    with open(INPUT.value, encoding="utf-8") as file:
        lines = file.read().splitlines()
    experiment, _, params = run.load(Path(WORKDIR.value), decode={"beam_width": BEAM_WIDTH})
    layout = experiment.layout_of_one_copy()
    evaluator = experiment.evaluator(Clock(time.perf_counter()), layout)(params)
    to_prompts = experiment.task.to_prompts
    assert to_prompts is not None
    config = EncoderDecoderConfig(**experiment.config["model"])
    translator = TorchTranslator(config, params).eval()
    tokenizer = read_tokenizer(Path(WORKDIR.value) / TOKENIZER_FILE)

    def ours() -> list[str]:
        groups = to_prompts(lines, 0, config.max_len)
        found = decode_groups(evaluator.decode, groups, EOS, len(lines))
        return [tokenizer.decode(hypotheses[0][0]) for hypotheses in found]

    def theirs(batch_size: int, by_length: bool) -> list[str]:
        sources = [torch.tensor([*tokens, EOS]) for tokens in tokenizer.encode_all(lines)]
        order = sorted(range(len(lines)), key=lambda i: len(sources[i])) if by_length else range(len(lines))
        found = [""] * len(lines)
        for start in range(0, len(lines), batch_size):
            chosen = order[start : start + batch_size]
            source = torch.nn.utils.rnn.pad_sequence([sources[i] for i in chosen], True, PAD)
            options = {"width": BEAM_WIDTH, "max_tokens": 2 * source.shape[1] + 16, "end_token": EOS}
            tokens = translator.beam_search(source, source == PAD, **options)[:, 0]
            for i, row in zip(chosen, tokens.tolist(), strict=True):
                found[i] = tokenizer.decode(row[: [*row, EOS].index(EOS)])
        return found

    peers = {"one at a time": functools.partial(theirs, 1, False)}
    for n in SENTENCES.value:
        peers[f"{n} at a time"] = functools.partial(theirs, n, False)
        peers[f"{n} at a time, by length"] = functools.partial(theirs, n, True)
    found = ours()
    for name, way in peers.items():
        same = np.mean([one == other for one, other in zip(found, way(), strict=True)])
        print(f"text, {name}: both find the same for {same:.2%} of the sentences", flush=True)
        assert same > 0.9
    seconds = medians({"fxf": ours, **peers}, REPEATS.value)
    for name in peers:
        report(f"text, {name}", "sentences/s", {"fxf": seconds["fxf"], "PyTorch": seconds[name]}, len(lines))


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.WARNING)
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
    if "generate" in PART.value:
        generate()
    if "text" in PART.value:
        text()


if __name__ == "__main__":
    app.run(main)

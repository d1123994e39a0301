"""Speed of training a character model in fxf, and in PyTorch by nanoGPT's recipe for a CPU, in one run.

make environment EXTRAS=test,bench
python experiments/benchmarks/characters.py --config=configs/characters.py:nanogpt_cpu --config.data.path=input.txt
python experiments/benchmarks/characters.py --config=configs/characters.py:fast --config.data.path=input.txt --train

PyTorch's model is a plain GPT like nanoGPT's: the same sizes, `scaled_dot_product_attention`, fused AdamW, no
`torch.compile`. fxf trains from the given config. Both take turns of a few steps on all cores. The median of each
counts, without compilation and the first steps. --train trains both to the end, and prints the validation loss of the
whole validation part, in nats per character.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import math
import os
import time

import jax
import numpy as np
import torch
from absl import flags
from peers import GPT, Sizes, adamw
from torch import nn

from fxf.config import section
from fxf.data.text import TextConfig, encoded_text
from fxf.runs import cli
from fxf.runs.experiment import Experiment, build
from fxf.training.metrics import Clock
from fxf.training.step import make_train_steps

CONFIG = cli.define_config()
TRAIN = flags.DEFINE_boolean("train", False, "train both to the end")
TURNS = flags.DEFINE_integer("turns", 7, "turns of each, without --train", 1)
STEPS = flags.DEFINE_integer("steps", 20, "steps in a turn", 1)
THREADS = flags.DEFINE_integer("threads", os.cpu_count() or 1, "threads of PyTorch; XLA takes every core", 1)

# nanoGPT's recipe, from the part of its README for CPUs.
N_LAYERS, N_HEADS, D_MODEL, LENGTH, BATCH, N_STEPS = 4, 4, 128, 64, 12, 2000
PEAK, FINAL, WARMUP, DECAY, CLIP, BETAS = 1e-3, 1e-4, 100, 0.1, 1.0, (0.9, 0.99)


class Torch:
    """A PyTorch run of nanoGPT's recipe."""

    name, n_steps = "PyTorch", N_STEPS

    def __init__(self, vocab_size: int, train: np.ndarray, validation: np.ndarray) -> None:
        torch.set_num_threads(THREADS.value)
        torch.manual_seed(0)
        self.tokens, self.validation = (torch.tensor(part.astype(np.int64)) for part in (train, validation))
        self.model = GPT(Sizes(vocab_size, LENGTH, N_LAYERS, N_HEADS, D_MODEL))
        self.optimizer = adamw(self.model, PEAK, BETAS, DECAY)
        self.step = 0

    def run(self, n: int) -> None:
        for _ in range(n):
            progress = (self.step - WARMUP) / (N_STEPS - WARMUP)
            rate = FINAL + (PEAK - FINAL) * (1 + math.cos(math.pi * progress)) / 2
            for group in self.optimizer.param_groups:
                group["lr"] = PEAK * (self.step + 1) / (WARMUP + 1) if progress < 0 else rate
            windows = torch.randint(len(self.tokens) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH + 1)
            rows = self.tokens[windows]
            self.model(rows[:, :-1], rows[:, 1:]).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1

    @torch.no_grad()
    def validation_loss(self) -> float:
        n = (len(self.validation) - 1) // LENGTH * LENGTH
        x, y = (self.validation[i : n + i].view(-1, LENGTH) for i in (0, 1))
        losses = [(self.model(a, b).item(), len(a)) for a, b in zip(x.split(128), y.split(128), strict=True)]
        return sum(loss * rows for loss, rows in losses) / len(x)


class Fxf:
    """An fxf run of a config."""

    name = "fxf"

    def __init__(self, experiment: Experiment) -> None:
        assert experiment.task.batch is not None
        self.experiment, self.n_steps = experiment, experiment.train.steps
        self.layout, self.numbers = experiment.layout(), experiment.hyperparameters()
        self.state = experiment.new_state(self.layout)
        self.train_steps = make_train_steps(experiment.trainer(self.layout), experiment.task.batch, STEPS.value)

    def run(self, n: int) -> None:
        self.state, _ = self.train_steps(self.state, self.numbers, np.int32(n))
        jax.block_until_ready(self.state)

    def validation_loss(self) -> float:
        evaluator = self.experiment.evaluator(Clock(0.0), self.layout)(self.state.params)
        return self.experiment.task.validate(evaluator)["validation_loss"]


def take_turns(ways: list[Fxf | Torch]) -> dict[str, list[float]]:
    """Trains the ways in turns; returns the seconds per step of each turn."""
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    done = dict.fromkeys(seconds, 0)
    while any(left(way, done[way.name]) for way in ways):
        for way in ways:
            n = min(STEPS.value, left(way, done[way.name]))
            if n:
                start = time.perf_counter()
                way.run(n)
                seconds[way.name].append((time.perf_counter() - start) / n)
                done[way.name] += n
    return seconds


def left(way: Fxf | Torch, done: int) -> int:
    return (way.n_steps if TRAIN.value else min(way.n_steps, TURNS.value * STEPS.value)) - done


def main(_: list[str]) -> None:
    config, _origin = cli.config_and_origin(CONFIG)
    experiment = build(config)
    text = encoded_text(section(TextConfig, config["data"], "data"), None, LENGTH + 1)
    ways: list[Fxf | Torch] = [
        Fxf(experiment),
        Torch(text.tokenizer.vocab_size, text.tokens("train"), text.tokens("validation")),
    ]
    seconds = take_turns(ways)
    medians = {name: float(np.median(turns[1:] or turns)) for name, turns in seconds.items()}
    for way in ways:
        line = f"{way.name:8} {1e3 * medians[way.name]:7.2f} ms/step   {way.n_steps} steps in"
        line += f" {medians[way.name] * way.n_steps:6.1f} s"
        print(line + (f"   validation_loss {way.validation_loss():.4f}" if TRAIN.value else ""), flush=True)
    whole = medians["fxf"] * ways[0].n_steps / (medians["PyTorch"] * ways[1].n_steps)
    print(f"a step of fxf takes {medians['fxf'] / medians['PyTorch']:.2f} of PyTorch's time, its whole run {whole:.2f}")


if __name__ == "__main__":
    cli.run(main)

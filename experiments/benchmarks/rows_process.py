"""Rows of matrix products, and of whole processes: imports, start-up, memory, a sweep, a whole recipe."""

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.rows import Measured, Row, Rows, Settings, Way
from experiments.runner import ROOT, command, verb
from fxf.base.config import section
from fxf.base.errors import UserError
from fxf.base.kept_memory import keep_memory
from fxf.data.text import EncodedText
from fxf.runs.configs import read_config
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import build
from fxf.tasks import TASKS
from fxf.training.step import make_train_steps

POINTS = 24  # in the sweep of configs/reversal.py
MODULES = ("fxf", "jax", "flax.linen", "torch", "transformers")


def products(settings: Settings) -> Iterator[Row]:
    """The product of two float32 matrices, on which the ratios of the other rows depend."""
    n, times = 1024, 20
    ways = product_ways(n, times, "float32", settings.threads)
    yield Row(f"product of two matrices, {n} x {n}", "GFLOP/s", times * 2 * n**3 / 1e9, ways)


def product_ways(n: int, times: int, dtype: str, threads: int) -> dict[str, Callable[[], Way]]:
    values = np.random.default_rng(0).normal(size=(n, n)).astype(np.float32)

    def of_xla() -> Way:
        multiply, x = jax.jit(lambda x: x @ x), jnp.asarray(values, dtype)
        return Way(lambda: jax.block_until_ready([multiply(x) for _ in range(times)]))

    def of_torch() -> Way:
        import torch

        torch.set_num_threads(threads)
        x = torch.tensor(values, device="cuda" if torch.cuda.is_available() else "cpu", dtype=getattr(torch, dtype))
        return Way(lambda: [x @ x for _ in range(times)][-1][0, 0].item())

    return {"XLA": of_xla, "PyTorch": of_torch}


def _way(run: Callable[..., Any], *args: Any) -> Callable[[], Way]:
    """Returns a function that makes the way of calling `run`."""
    return lambda: Way(functools.partial(run, *args))


def seconds(words: list[str]) -> Measured:
    """Returns the seconds that a process takes."""
    start = time.perf_counter()
    command(words)
    return Measured(time.perf_counter() - start)


def imports(settings: Settings) -> Iterator[Row]:
    """The import of fxf's model and training functions, beside other libraries'."""
    del settings
    programs = {"fxf.fit": "import fxf; fxf.fit", **{name: f"import {name}" for name in MODULES}}
    yield Row("import", "s", 0, {name: _way(seconds, [sys.executable, "-c", code]) for name, code in programs.items()})


def seconds_to_line(beginning: str, words: list[str], environment: dict[str, str]) -> Measured:
    """Returns the seconds until a process prints a line that starts so. The process then runs to its end.

    Raises an error with its last line if it fails or prints no such line.
    """
    start, found, line = time.perf_counter(), 0.0, "no message"
    options: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **environment}, "text": True}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        for line in process.stdout or ():
            if not found and line.startswith(beginning):
                found = time.perf_counter() - start
    if process.returncode or not found:
        raise RuntimeError(line.strip())
    return Measured(found)


def start(settings: Settings) -> Iterator[Row]:
    """A short run of reversal:example0, to its first step and to its result, without and with cached programs."""
    del settings

    def run(beginning: str, cold: bool, *changes: str) -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--config.train.steps=21", "--config.log.every=1", *changes, f"--workdir={folder}/run"]
            words = verb("train", "--config=reversal:example0", *options)
            return seconds_to_line(beginning, words, {"XDG_CACHE_HOME": folder} if cold else {})

    other = ("--config.seed=7", "--config.optimizer.learning_rate=0.002")
    kinds = {"warm": (False,), "warm, another seed and rate": (False, *other), "cold": (True,)}
    for what, line in {"command to first step": "step 1/", "command to last step, of 21,": "step 21/"}.items():
        yield Row(f"{what} of reversal:example0", "s", 0, {name: _way(run, line, *of) for name, of in kinds.items()})


def in_python(call: str) -> Measured:
    """Calls a function of rows_training.py in a new process, and returns its result."""
    code = f"from experiments.benchmarks import rows_training; print(rows_training.{call})"
    return Measured(command([sys.executable, "-c", code]).split()[-1])


def peak_memory(settings: Settings) -> Iterator[Row]:
    """The memory that training adds to a process that has imported all libraries; each way has its own process."""
    del settings
    ways = {name: _way(in_python, f"memory_of({name!r})") for name in ("fxf", "PyTorch", "Flax NNX")}
    yield Row("peak memory that training adds, nanoGPT's CPU size", "MiB", 0, ways)


def sweep(settings: Settings) -> Iterator[Row]:
    """A sweep of 24 points in two processes, and one process per point (two are measured, times 12)."""
    steps = ["--config.train.steps=25"] if settings.quick else []

    def of(*words: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return seconds(verb(*words, "--config=reversal:example0", *steps, f"--workdir={folder}/runs"))

    def together() -> float:
        return of("sweep", f"--workers={min(2, os.cpu_count() or 1)}")

    def alone() -> Measured:
        return Measured(sum(of("train", f"--config.model.n_layers={depth}") for depth in (1, 2)) * POINTS / 2)

    ways = {"fxf": _way(together), "one after another": _way(alone)}
    yield Row(f"sweep of {POINTS} points", "points/s", POINTS, ways)


def recipe(settings: Settings) -> Iterator[Row]:
    """nanoGPT's whole CPU recipe on real text; the note has the validation losses. Takes minutes; needs --text."""
    if not settings.text:
        raise UserError("--text: missing; the row recipe trains on it")

    def note(losses: dict[str, float]) -> str:
        return ", ".join(f"{name} validation loss {value:.3f}" for name, value in losses.items())

    for argument in ("nanogpt_cpu", "fast"):
        config = f"characters:{argument}"
        ways = {"fxf": functools.partial(_whole, config, settings)}
        ways |= {
            f"PyTorch{' compiled' * is_so}": functools.partial(_nanogpt, settings, is_so) for is_so in (False, True)
        }
        yield Row(f"{config}, all of training and validation", "s", 0, ways, note)


def _whole(name: str, settings: Settings) -> Way:
    """Returns a way that trains a config on a text, with its validation loss as the fact."""
    config = read_config(name)
    config.data.path, config.train.steps = settings.text, 20 if settings.quick else config.train.steps
    experiment, losses = build(config), list[float]()
    layout, n_steps = experiment.layout(), experiment.train.steps
    train_steps = make_train_steps(experiment.trainer(layout), experiment.task.batch, n_steps)
    evaluator = Evaluators(experiment, layout)

    def train() -> None:
        state, _ = train_steps(experiment.new_state(layout), experiment.hyperparameters(), np.int32(n_steps))
        losses.append(experiment.task.validate(evaluator(state.params))["validation_loss"])

    return Way(train, lambda: losses[-1])


def _nanogpt(settings: Settings, compiled: bool) -> Way:
    import torch

    from experiments.benchmarks.peers_gpt import NanoGPT

    keep_memory(jax.config)
    torch.set_num_threads(settings.threads)
    config = read_config("characters:nanogpt_cpu")
    config.data.path = settings.text
    data: Any = section(TASKS["language_model"].sections["data"], config.to_dict()["data"], "data")
    text, losses = EncodedText(data, None, config.model.max_len + 1), list[float]()
    peer = NanoGPT(text.tokenizer.vocab_size, text.tokens("train"), text.tokens("validation"))
    return Way(lambda: losses.append(peer.train(20 if settings.quick else 0, compiled)), lambda: losses[-1])


ROWS: dict[str, Rows] = {
    **{"products": products, "imports": imports, "start": start, "peak_memory": peak_memory},
    **{"sweep": sweep, "recipe": recipe},
}

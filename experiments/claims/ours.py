"""What fxf says of itself, measured in small. The tests check more, and at other sizes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fxf
from experiments.claims.claim import Single
from experiments.seeds.claims import at_least, at_most, equal
from fxf.layers.loss import cross_entropy
from fxf.training.gradient import batch_loss

COMMAND = "python -m experiments.claims --only=ours"


def bits_after_a_kill(folder: Path) -> int:
    """Returns how many weights differ between a run that was killed and resumed and an unbroken one."""
    for name, kills in (("killed", 2), ("unbroken", 0)):
        while not (folder / name / "result.json").exists():
            process = _train(folder / name, folder / f"{name}.txt", ["--config.checkpoint.every=10"])
            if kills:
                kills -= 1
                _wait_for_a_step(folder / name, process)
                process.send_signal(signal.SIGKILL)
            if process.wait() not in (0, -signal.SIGKILL):
                raise RuntimeError((folder / f"{name}.txt").read_text())
    one, other = (jax.tree.leaves(fxf.load(folder / name).params) for name in ("killed", "unbroken"))
    return sum(int((np.asarray(a) != np.asarray(b)).sum()) for a, b in zip(one, other, strict=True))


def _train(folder: Path, log: Path, flags: list[str], **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "fxf", "train", "--config=reversal:example0", f"--workdir={folder}", *flags]
    quiet = ["--config.log.tensorboard=False", "--config.log.report=False"]
    with log.open("w") as file:
        return subprocess.Popen([*command, *quiet], stdout=file, stderr=file, env={**os.environ, **environment})


def _wait_for_a_step(folder: Path, process: subprocess.Popen) -> None:
    """Waits until the run has a checkpoint that it did not have before, or ends."""
    before = set(folder.glob("checkpoints/*"))
    while process.poll() is None and not {p for p in folder.glob("checkpoints/[0-9]*")} - before:
        time.sleep(0.02)


def devices(folder: Path) -> float:
    """Returns the relative difference of the final loss of training on eight devices from that on one."""
    losses = []
    for n in (1, 8):
        run = folder / f"devices_{n}"
        flags = ["--config.train.steps=20", "--config.optimizer.warmup_steps=2"]
        process = _train(run, folder / f"devices_{n}.txt", flags, JAX_NUM_CPU_DEVICES=str(n))
        if process.wait():
            raise RuntimeError((folder / f"devices_{n}.txt").read_text())
        losses.append(json.loads((run / "result.json").read_text())["train_loss"])
    return abs(losses[1] / losses[0] - 1)


def turns(folder: Path) -> float:
    """Returns the exact match at length 200 after training on at most 20 symbols, positions by turns."""
    config = fxf.read_config("studies/turns")
    changes = {"task.max_length": 20, "task.longer": 180, "task.longer_every": 200, "task.examples": 100}
    config.update_from_flattened_dict({**changes, "model.max_len": 402, "log.report": False})
    with (folder / "turns.txt").open("a") as log, contextlib.redirect_stdout(log):
        return fxf.train(config, folder / "turns")["exact_match_200"]


def later_tokens(folder: Path) -> float:
    """Returns the largest change of logits in float64 when the tokens behind them are cut off."""
    del folder
    with jax.enable_x64(True):
        choices: dict[str, Any] = {"positions": "rotary", "n_kv_heads": 1, "window": 4, "init": "uniform"}
        sizes = {"vocab_size": 7, "n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "max_len": 11}
        model = fxf.model("transformer_lm", **sizes, **choices, dtype="float64")
        params, found = fxf.initialize(model), []
        tokens_BT = np.random.default_rng(0).integers(1, 7, (5, 11)).astype(np.int32)
        whole = jax.jit(model.apply)(params, {"inputs": tokens_BT})
        for n in range(1, 12):
            cut = jax.jit(model.apply)(params, {"inputs": tokens_BT[:, :n]})
            found.append(float(np.abs(np.asarray(cut) - np.asarray(whole)[:, :n]).max()))
    return max(found)


def accumulation(folder: Path) -> float:
    """Returns the relative difference of a loss in four parts, divided once, from the loss of the whole."""
    del folder
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        logits_BTV, targets_BT = rng.normal(size=(8, 5, 7)), rng.integers(0, 7, (8, 5))
        weights_BT = (rng.random((8, 5)) < 0.6).astype(float)

        def sums(rows: slice) -> np.ndarray:
            parts = (jax.numpy.asarray(x[rows]) for x in (logits_BTV, targets_BT, weights_BT))
            return np.array([float(x) for x in cross_entropy(lambda x: x, *parts)])

        whole, parts = sums(slice(None)), np.sum([sums(slice(i, i + 2)) for i in range(0, 8, 2)], axis=0)
    return float(abs((parts[0] / parts[1]) / (whole[0] / whole[1]) - 1))


def memory_of_chunks(folder: Path) -> float:
    """Returns the memory that a gradient of 8,192 tokens needs over that of 4,096, with attention in chunks."""
    del folder

    def planned_bytes(length: int) -> int:
        sizes = {"vocab_size": 65, "n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 2, "max_len": length}
        model = fxf.model("transformer_lm", **sizes, positions="rotary", attention_implementation="chunked")
        tokens_BT = np.zeros((1, length), np.int32)
        batch: Any = {"inputs": tokens_BT, "targets": tokens_BT, "weights": np.ones((1, length), np.float32)}
        gradient = jax.jit(jax.grad(lambda params: batch_loss(model, params, batch)[0]))
        plan: Any = gradient.lower(fxf.initialize(model)).compile().memory_analysis()
        return plan.temp_size_in_bytes

    return planned_bytes(8192) / planned_bytes(4096)


MEASURES: dict[str, Callable[[Path], Any]] = {
    "bits_after_a_kill": bits_after_a_kill,
    "devices": devices,
    "turns": turns,
    "later_tokens": later_tokens,
    "accumulation": accumulation,
    "memory_of_chunks": memory_of_chunks,
}


def _single(name: str, says: str, what: str, accepts: Any, source: str = "README") -> Single:
    return Single(name, says, source, what, COMMAND, accepts, lambda results: [results["ours"]["figures"][name]])


CLAIMS = (
    _single(
        "bits_after_a_kill",
        "a run that was killed resumes, and ends with the bits of an unbroken one",
        "weights that differ after two kills",
        equal(0),
        "docs/runs.md",
    ),
    _single(
        "devices",
        "training on several devices is that on one",
        "relative difference of the loss after 20 steps, 8 devices",
        at_most(1e-5),
        "docs/devices.md",
    ),
    _single(
        "turns",
        "with turns, reversal generalizes to far longer sequences",
        "exact match at 200 symbols after training on at most 20",
        at_least(0.99),
        "experiments/studies/turns",
    ),
    _single(
        "later_tokens",
        "no output depends on later tokens",
        "largest change of logits, float64, when later tokens are cut off",
        at_most(1e-12),
        "docs/extending.md",
    ),
    _single(
        "accumulation",
        "a split of the batch changes no loss",
        "relative difference of the loss in four parts, float64",
        at_most(1e-12),
        "CONTRIBUTING",
    ),
    _single(
        "memory_of_chunks",
        "with attention in chunks, memory grows with the length and not with its square",
        "bytes that a gradient of 8,192 tokens needs over those of 4,096",
        at_most(2.3),
        "docs/devices.md",
    ),
)

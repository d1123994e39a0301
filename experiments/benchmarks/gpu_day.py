"""Measures all on an NVIDIA GPU in one command: where a step of GPT-2 spends time, and its speed beside PyTorch.

python -m experiments.benchmarks.gpu_day [--output=runs/gpu_day.jsonl] [--toy] [--parts=step,decoding]

It takes at most --seconds on one H100 or H200. Each part has its own process and time limit. Each result is written to
the output at once, as a line, so a part that fails or is cut loses only what was not written yet. Without a GPU each
part says so. The first is `about`: versions and machine. The others:

  step        GPT-2 small, 32 rows of 1,024 tokens: speed, MFU and memory; a trace of 3 steps by kind and by kernel,
              each with its bytes and operations in the program, and the time that these predict
  beside      the same step in turns with PyTorch, compiled and eager, with flash attention and fused AdamW
  medium      GPT-2 medium, 24 layers, 16 rows
  rows64      GPT-2 small, 64 rows, and the memory left
  decoding    1 and 64 prompts: the bytes of weights and cache that a token reads, and their share of the bandwidth
  long        rows of 8,192 and 32,768 tokens
  rates       single operations: the step's matrix products, a large one, and a copy
  tests       pytest -m gpu tests/gpu
  autotune    the step in turns with PyTorch compiled by max-autotune, which may take long to compile
"""

import collections
import contextlib
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.benchmarks import rows_gpu
from experiments.benchmarks import rows_training as training
from experiments.benchmarks.rows import Settings, Sizes, measured_in_processes
from experiments.runner import ROOT, several
from fxf.base.config import one_of
from fxf.base.devices import require_devices
from fxf.base.errors import one_line
from fxf.base.hardware import HARDWARE, hardware_of
from fxf.base.on_gpu import deterministic_options
from fxf.compile import costs, hlo, times
from fxf.compile.topologies import Topology
from fxf.models.decoder import Decoder
from fxf.training.step import jit_step, make_step
from fxf.verbs.flags import Parser, whole

Found = dict[str, Any]
TRACED = 3  # steps
SUMMED = ("kernels", "milliseconds", "GB", "TFLOP")


def gpt2(toy: bool, medium: bool = False, length: int = 1024) -> Sizes:
    """Returns the sizes of GPT-2 small or medium, or of a toy."""
    layers, width, heads = (2, 64, 2) if toy else (24, 1024, 16) if medium else (12, 768, 12)
    vocab, length = (1000, length // 16) if toy else (training.GPT2_VOCAB_SIZE, length)
    return Sizes(layers, width, heads, length, vocab, gpt2=True, dtype="bfloat16")


class Step:
    """fxf's training step of a GPT on one batch, compiled as a run compiles it."""

    def __init__(self, sizes: Sizes, rows: int, settings: Settings) -> None:
        require_devices()
        tokens = training.random_tokens(rows, sizes.length, sizes.vocab_size)
        attention = "flash" if jax.default_backend() == "gpu" else "chunked"
        self.sizes, self.tokens, self.n_steps = sizes, rows * sizes.length, 2 if settings.quick else 20
        self.ours = training.fxf_gpt(sizes, tokens, attention)
        trainer, start = self.ours.trainer, time.perf_counter()
        self.batch = trainer.layout.put(tokens, 1)
        self.lowered = jit_step(make_step(trainer), trainer).lower(self.ours.state, self.batch, self.ours.numbers)
        self.options: dict[str, Any] = deterministic_options(self.lowered) or {}
        self.program = self.lowered.compile(self.options)
        self.compiling = time.perf_counter() - start

    def take(self, n: int) -> float:
        """Takes n steps, and returns the last loss."""
        for _ in range(n):
            self.ours.state, metrics = self.program(self.ours.state, self.batch, self.ours.numbers)
        return float(metrics["loss_sum"] / metrics["weight_sum"])

    def figures(self) -> Found:
        """Returns speed, MFU and memory."""
        self.take(self.n_steps)
        turns = []
        for _ in range(5):
            start = time.perf_counter()
            loss = self.take(self.n_steps)
            turns.append((time.perf_counter() - start) / self.n_steps)
        known, device = hardware_of(jax.devices()[0]), jax.devices()[0].memory_stats() or {}
        seconds = float(np.median(turns))
        return {
            "what": f"{self.sizes.n_layers} layers, {self.tokens:,} tokens in rows of {self.sizes.length:,}",
            "milliseconds": 1e3 * seconds,
            "least to most": [1e3 * min(turns), 1e3 * max(turns)],
            "tokens a second": self.tokens / seconds,
            "mfu": known and rows_gpu._peak(self.sizes, self.ours.batch, 1 / known.flops).run() / seconds,
            "loss": loss,
            "seconds of compiling": self.compiling,
            "GiB of temporaries": self.program.memory_analysis().temp_size_in_bytes / 2**30,
            "GiB at most": device.get("peak_bytes_in_use", 0) / 2**30,
            "GiB of device memory": device.get("bytes_limit", 0) / 2**30,
        }


def step(settings: Settings) -> Iterator[Found]:
    """The step of GPT-2 small: its speed, which needs no trace, and its trace."""
    of_small = Step(gpt2(settings.quick), 2 if settings.quick else 32, settings)
    yield of_small.figures()
    yield from traced(of_small)


def traced(step: Step) -> Iterator[Found]:
    """Yields milliseconds per step by kind of kernel, and by group of equal kernels with their costs in the program.

    A trace does not name the kernels of a CUDA graph (openxla/xprof issue 3070), so this program has no such graph.
    """
    step.program = step.lowered.compile({**step.options, "xla_gpu_graph_min_graph_size": 2**30})
    step.take(1)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            step.take(TRACED)
        spent = durations(next(Path(folder).rglob("*.xplane.pb")))
    module = hlo.read(step.program.as_text())
    ops = [op for computation in module.computations.values() for op in computation]
    names = {op.name: told[1] for op in ops if (told := re.search(r'op_name="([^"]*)"', op.attributes))}  # by JAX
    known = {kernel.name: kernel for kernel in costs.kernels(module.entry, 1) if kernel.costs}
    hardware = hardware_of(jax.devices()[0]) or HARDWARE["h100"]
    table = times.seconds(known.values(), Topology("one", [], hardware), [], hardware.reached or hardware.peak)
    rows: dict[str, dict[str, Found]] = {"kind": {}, "kernel": {}}
    for name, seconds in spent.items():
        found = known.get(name, costs.Kernel(name, "unknown"))
        amounts = 1, 1e3 * seconds, found.times * found.n_bytes / 1e9, found.times * found.work.flops / 1e12
        like = f"{found.kind} {re.sub(r'block_[0-9]+', 'block_*', names.get(name, name))}"
        for by, key in (("kind", found.kind), ("kernel", like)):
            row = rows[by].setdefault(key, {by: key, **dict.fromkeys(SUMMED, 0)})
            row.update({summed: row[summed] + amount for summed, amount in zip(SUMMED, amounts, strict=True)})
    yield from ({**row, "attainable": 1e3 * table.get(kind, 0.0)} for kind, row in rows["kind"].items())
    yield {"kind": "all", "milliseconds": 1e3 * sum(spent.values()), "attainable": 1e3 * sum(table.values())}
    yield from sorted(rows["kernel"].values(), key=lambda row: -row["milliseconds"])[:40]


def durations(path: Path) -> dict[str, float]:
    """Returns the seconds per step of each instruction in a trace, on the GPU if there is one."""
    planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
    found: dict[str, float] = collections.defaultdict(float)
    for plane in [plane for plane in planes if plane.name.startswith("/device:GPU")] or planes:
        for line in plane.lines:
            for event in line.events:
                if name := dict(event.stats).get("hlo_op"):
                    found[str(name)] += event.duration_ns / 1e9 / TRACED
    return found


def beside(peers: tuple[str, ...], settings: Settings) -> Iterator[Found]:
    """Runs the benchmark's row gpu_gpt2 with one peer at a time; a peer that fails, such as to compile, is a line."""
    for peer in peers:
        settings = settings._replace(ways=("fxf", peer), repeats=0 if settings.quick else 4)
        try:
            yield from measured_in_processes(rows_gpu.gpu_gpt2, settings)
        except RuntimeError as error:
            yield {"what": peer, "error": one_line(str(error))[:300]}


def speeds(cases: Sequence[tuple[bool, int, int]], settings: Settings) -> Iterator[Found]:
    """Measures other steps: GPT-2 medium or small, the number of rows, and their length."""
    for is_medium, rows, length in cases:
        yield Step(gpt2(settings.quick, is_medium, length), 2 if settings.quick else rows, settings).figures()


def decoding(settings: Settings) -> Iterator[Found]:
    """Measures greedy decoding of GPT-2 small after prompts of 128 tokens; the time includes prefill.

    Each token reads the weights, and the keys and values so far, once.
    """
    (new, read), sizes = (16, 8) if settings.quick else (256, 128), gpt2(settings.quick)
    attention = "flash" if jax.default_backend() == "gpu" else "xla"
    model = training.lm(sizes, attention_implementation=attention)
    params, known = training.drawn(model), hardware_of(require_devices()[0])
    n_weights = sum(weight.size for weight in jax.tree.leaves(params)) - sizes.length * sizes.d_model
    for n in (1, 64):
        decode = Decoder(model, -1)  # no token ends an answer
        prompts = {"tokens": np.ones((n, read), np.int32), "lengths": np.full(n, read, np.int32)}
        decode(params, prompts, new)
        turns = timeit.repeat(functools.partial(decode, params, prompts, new), number=1, repeat=3)
        took, weights = min(turns) / new, 2 * n_weights / 1e6  # in bfloat16, as keys and values
        cache = 2 * 2 * sizes.n_layers * sizes.d_model * (read + new / 2) * n / 1e6
        found = {"prompts": n, "milliseconds a token": 1e3 * took, "tokens a second": n / took}
        share = known and 1e6 * (weights + cache) / took / known.bandwidth
        yield {**found, "MB of weights": weights, "MB of cache": cache, "share of bandwidth": share}


def tests(settings: Settings) -> Iterator[Found]:
    """Runs the tests that need a GPU; with --toy it only collects them."""
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    words += ["-n0", "--collect-only"] if settings.quick else ["-n4", "--no-skips"]
    env = os.environ if settings.quick else {**os.environ, "JAX_PLATFORMS": "cuda,cpu"}
    done = subprocess.run(words, cwd=ROOT, env=env, text=True, capture_output=True, check=False)
    yield {"exit code": done.returncode, "said": (done.stdout + done.stderr)[-6000:]}


def about(settings: Settings) -> Iterator[Found]:
    """Yields commit, versions and machine."""
    from experiments.benchmarks import bench  # imported here, because only this part needs it

    yield bench.facts()


def taken(name: str, toy: bool, limit: float, keep: Callable[[Found], None]) -> str:
    """Runs a part in its own process group, keeps each line that it prints, and returns why it ended early."""
    words = [sys.executable, "-m", "experiments.benchmarks.gpu_day", f"--part={name}", *(["--toy"] if toy else [])]
    env, cut = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, threading.Event()
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True, "env": env}
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(words, stderr=errors, cwd=ROOT, **options) as part:

        def kill() -> None:
            cut.set()
            os.killpg(part.pid, signal.SIGKILL)  # with its child processes

        timer = threading.Timer(limit, kill)
        timer.start()
        for line in part.stdout or ():
            if line.startswith("{"):
                with contextlib.suppress(json.JSONDecodeError):  # libraries print too, and a kill cuts a line
                    keep(json.loads(line))
        code = part.wait()
        timer.cancel()
        errors.seek(0)
        said = [line for line in errors.read().splitlines() if line.strip()]
    if cut.is_set():
        return f"cut after {limit:.0f} s"
    return one_line((said or [f"exit code {code}"])[-1])[:300] if code else ""


# By name: a generator of results, and its time limit in seconds. The last part gets the time that the others leave.
PARTS: dict[str, tuple[Callable[[Settings], Iterator[Found]], float]] = {
    "about": (about, 40),
    "step": (step, 150),
    "beside": (functools.partial(beside, ("PyTorch compiled", "PyTorch")), 130),
    "medium": (functools.partial(speeds, [(True, 16, 1024)]), 70),
    "rows64": (functools.partial(speeds, [(False, 64, 1024)]), 50),
    "decoding": (decoding, 60),
    "long": (functools.partial(speeds, [(False, 4, 8192), (False, 1, 32768)]), 70),
    "rates": (rows_gpu.rates, 30),
    "tests": (tests, 90),
    "autotune": (functools.partial(beside, ("PyTorch max-autotune",)), math.inf),
}


def flags(parser: Parser) -> None:
    parser.flag("parts", several, list(PARTS)[1:], f"of {', '.join(PARTS)}")
    parser.flag("seconds", whole(1), 450, "time limit of all parts together")
    parser.flag("output", default="runs/gpu_day.jsonl", doc="the file to append lines of JSON to")
    parser.switch("toy", "small sizes on any device, as a test; ignore the numbers")
    parser.flag("part", default="", doc="run only this part, in this process")


def main(args: Namespace) -> None:
    if args.part:
        settings = Settings(0, 1 if args.toy else 20, os.cpu_count() or 1, quick=args.toy)
        rows_gpu.require_gpu(settings)
        for found in PARTS[args.part][0](settings):
            print(json.dumps(found), flush=True)
        return
    names, end = [one_of(name, PARTS, "--parts") for name in args.parts], time.monotonic() + args.seconds
    output = Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as file:

        def keep(part: str, found: Found) -> None:
            line = json.dumps({"part": part, **found}, default=float)
            print(line, file=file, flush=True)
            print(line[:300], flush=True)

        for name in dict.fromkeys(["about", *names]):
            start = time.monotonic()
            limit = min(PARTS[name][1], end - start)
            error = taken(name, args.toy, limit, functools.partial(keep, name)) if limit > 0 else "no time is left"
            keep(name, {"seconds": round(time.monotonic() - start, 1), **({"error": error} if error else {})})


if __name__ == "__main__":
    from fxf.verbs.command import run_verb

    run_verb("gpu_day.py", "experiments.benchmarks.gpu_day", sys.argv[1:])

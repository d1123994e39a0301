"""Faults at random moments of a run: whether the same command goes on, from where, and to which bits.

python experiments/benchmarks/faults.py [--kills=40] [--seed=0]

A small reversal run, which saves every step and so spends most of its time in saves, meets one fault after another:
  SIGKILL        at any moment
  SIGTERM        at any moment; the run saves the step it has reached
  flipped byte   after SIGTERM, a byte of a file of the newest checkpoint is changed
  truncated      after SIGTERM, a file of the newest checkpoint is cut short
  full disk      a tmpfs (it takes root), in which a few checkpoints have room, and which then grows
After each the same command must go on from the newest whole checkpoint, and in the end the whole state, parameters and
optimizer, must have the bits of a run that met none. The exit code is 1 if any fault had another outcome.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging

from fxf import run
from fxf.reports.text_table import aligned
from fxf.training import checkpoint

COUNTS = {
    "SIGKILL": flags.DEFINE_integer("kills", 40, "runs killed by SIGKILL", lower_bound=0),
    "SIGTERM": flags.DEFINE_integer("terminations", 10, "runs asked to stop by SIGTERM", lower_bound=0),
    "flipped byte": flags.DEFINE_integer("flips", 10, "bytes flipped", lower_bound=0),
    "truncated": flags.DEFINE_integer("truncations", 5, "files cut short", lower_bound=0),
    "full disk": flags.DEFINE_integer("full_disks", 3, "runs on a full disk", lower_bound=0),
}
SEED = flags.DEFINE_integer("seed", 0, "of the moments, files and bytes")
AT_ONCE = flags.DEFINE_integer("faults_a_run", 5, "faults that one run meets one after the other", lower_bound=1)

STEPS = 40
FLAGS = """
    --config=configs/reversal.py --config.task.n_tokens=3 --config.task.max_length=2 --config.optimizer.warmup_steps=0
    --config.model.n_layers=1 --config.model.d_model=6 --config.model.d_ff=7 --config.model.n_heads=2
    --config.model.max_len=16 --config.train.batch_size=5 --config.checkpoint.every=1 --config.checkpoint.keep=3
    --config.log.every=1 --config.log.tensorboard=false
"""
COMMAND = [sys.executable, "experiments/train.py", *FLAGS.split(), f"--config.train.steps={STEPS}"]
OPTIONS: Any = {"cwd": Path(__file__).parents[2], "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
LAST = STEPS - 6  # a fault after this many steps still comes before the end
SECONDS = 0.1  # the most from a step's record to the fault; its save comes at once, and takes about half of them
DISK_KB = (120, 330)  # room for one to three checkpoints


@dataclass
class Outcome:
    """What a fault left, and then, where the same command went on."""

    expected: int  # the step of the newest whole checkpoint; 0 where there is none
    told: bool  # the run ended as it should at this fault: by the signal, or with its exit code and line
    resumed_at: int | None = None
    same_bits: bool = False
    within_save: bool = False


def lines(workdir: Path) -> int:
    path = workdir / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stop(process: subprocess.Popen[str], workdir: Path, step: int, seconds: float, number: int) -> str:
    """Sends the signal so long after the record of a step; returns the standard error of the process."""
    step = max(step, lines(workdir) + 1)  # one that this process records
    while lines(workdir) < step and process.poll() is None:
        time.sleep(0.003)
    time.sleep(seconds)
    process.send_signal(number)
    return process.communicate(timeout=300)[1]


def damage(folder: Path, fault: str, rng: np.random.Generator) -> None:
    path = rng.choice(np.array(sorted(path for path in folder.rglob("*") if path.is_file()), object))
    data = bytearray(path.read_bytes())
    at = int(rng.integers(len(data)))
    data[at] ^= int(rng.integers(1, 256))
    path.write_bytes(data if fault == "flipped byte" else data[:at])


def resumption(errors: str) -> int | None:
    """Returns the step at which a process went on, 0 for a start from nothing, or None where it did neither."""
    found = re.search(r"resuming at step (\d+)", errors)
    return int(found[1]) if found else 0 if re.search(r"^step 1/", errors, re.MULTILINE) else None


def meet(workdir: Path, fault: str, n: int, rng: np.random.Generator, start: Callable[..., Any]) -> list[Outcome]:
    """Lets a run meet n faults of a kind, goes on after each, and then to the end."""
    directory, outcomes = workdir / run.CHECKPOINTS, list[Outcome]()
    first = 4 if fault in ("flipped byte", "truncated") else 1  # with an older checkpoint to go back to
    number = signal.SIGKILL if fault == "SIGKILL" else signal.SIGTERM
    for step in np.sort(rng.choice(np.arange(first, LAST), n, replace=False)):
        process = start(workdir)
        errors = stop(process, workdir, int(step), rng.uniform(0, SECONDS), number)
        if outcomes:
            outcomes[-1].resumed_at = resumption(errors)
        if number == signal.SIGKILL:
            newest = max(checkpoint.steps_in(directory), default=0)
            # A step is recorded, then saved: there is no checkpoint yet, or none with digests.
            saving = lines(workdir) > newest or not (directory / str(newest) / checkpoint.DIGESTS).exists()
            outcomes.append(Outcome(newest, process.returncode == -signal.SIGKILL, within_save=saving))
            continue
        stopped = re.search(r"stopped at step (\d+), which is saved", errors)
        outcomes.append(Outcome(int(stopped[1]) if stopped else -1, process.returncode == 75))
        if fault != "SIGTERM" and stopped:
            damage(directory / stopped[1], fault, rng)
            outcomes[-1].expected = max(checkpoint.steps_in(directory)[:-1], default=0)
    outcomes[-1].resumed_at = resumption(start(workdir).communicate(timeout=300)[1])
    return outcomes


def fill(workdir: Path, rng: np.random.Generator, start: Callable[..., Any]) -> Outcome:
    """Runs in a small file system that is there already, makes it larger, and runs again."""
    process = start(workdir)
    errors = process.communicate(timeout=300)[1]
    steps = checkpoint.steps_in(workdir / run.CHECKPOINTS)
    kept = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
    others = [line for line in errors.splitlines() if not line.startswith("step ")]
    told = process.returncode == 2 and len(others) == 1 and "the disk is full" in others[0] and kept in others[0]
    subprocess.run(["mount", "-o", "remount,size=64m", str(workdir.parent)], check=True)
    return Outcome(max(steps, default=0), told, resumption(start(workdir).communicate(timeout=300)[1]))


def final_state(workdir: Path) -> list[np.ndarray]:
    restored = checkpoint.load(workdir / run.CHECKPOINTS, run.load(workdir)[0].state_shapes())
    return [np.asarray(leaf) for leaf in jax.tree.leaves(restored[1])] if restored and restored[0] == STEPS else []


def trials(fault: str, n: int, folder: Path, rng: np.random.Generator, start: Callable[..., Any]) -> list[Outcome]:
    """Raises an OSError where there can be no small disk."""
    outcomes, unbroken = list[Outcome](), final_state(folder / "unbroken")
    while len(outcomes) < n:
        place = folder / f"{fault} {len(outcomes)}"
        place.mkdir()
        if fault == "full disk":
            mount = ["mount", "-t", "tmpfs", "-o", f"size={rng.integers(*DISK_KB)}k", "tmpfs", str(place)]
            mounted = subprocess.run(mount, capture_output=True, text=True)
            if mounted.returncode:
                raise OSError(mounted.stderr.strip())
        try:
            if fault == "full disk":
                found = [fill(place / "run", rng, start)]
            else:
                found = meet(place / "run", fault, min(AT_ONCE.value, n - len(outcomes)), rng, start)
            final = final_state(place / "run")
        finally:
            if fault == "full disk":
                subprocess.run(["umount", str(place)], check=True)
        for outcome in found:
            outcome.same_bits = 0 < len(final) == len(unbroken) and all(map(np.array_equal, final, unbroken))
            print(f"{fault}: {outcome}", file=sys.stderr, flush=True)
        outcomes += found
    return outcomes


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.FATAL)  # Orbax tells of each load
    lost_steps, bits = "steps lost beyond the last checkpoint", "ended with the bits of the unbroken run"
    rows, failed = [["fault", "runs", "resumed", lost_steps, bits]], False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A process that may be killed reads the cache of compiled programs and does not write it: JAX writes in place.
        cache = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
        writes, reads = ({**cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": s} for s in ("0", "1000000"))

        def start(workdir: Path, environment: dict[str, str] = reads) -> subprocess.Popen[str]:
            return subprocess.Popen([*COMMAND, f"--workdir={workdir}"], env=environment, text=True, **OPTIONS)

        print(start(folder / "unbroken", writes).communicate()[1], file=sys.stderr)
        for i, (fault, count) in enumerate(COUNTS.items()):
            try:
                outcomes = trials(fault, count.value, folder, np.random.default_rng([SEED.value, i]), start)
            except OSError as error:
                rows.append([fault, f"none: {error}", "", "", ""])
                continue
            lost = [o.expected - o.resumed_at if o.resumed_at is not None else STEPS for o in outcomes]
            good = [o.told and o.resumed_at is not None for o in outcomes]
            same = [o.same_bits for o in outcomes]
            what = fault if fault != "SIGKILL" else f"{fault} ({sum(o.within_save for o in outcomes)} within a save)"
            rows.append([what, *map(str, (len(outcomes), sum(good), sum(map(abs, lost)), sum(same)))])
            failed |= not all(good) or any(lost) or not all(same)
    print(*aligned(rows), sep="\n")
    sys.exit(int(failed))


if __name__ == "__main__":
    app.run(main)

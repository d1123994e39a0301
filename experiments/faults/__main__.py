"""Faults at random moments of a run, after which the same command must resume and end with the same bits.

python -m experiments.faults [--faults=SIGKILL --count=40] [--seed=0] [--keep]

Small reversal runs meet one fault after another. They save every step, so most of their time goes into saves.
  SIGKILL            at any moment of training
  SIGTERM            at any moment of training; the run saves the step it has reached
  SIGTERM elsewhere  while the script imports, compiles, evaluates, saves, and in the final test
  SIGHUP             in training, and while the script imports
  flipped byte       after SIGTERM, a byte of a file of the newest checkpoint is changed
  truncated          after SIGTERM, a file of the newest checkpoint is cut short
  without digests    after SIGTERM, the newest checkpoint loses its digests, and a file of it is damaged, or all of it
  double start       the same command starts twice at nearly the same time: one trains, the other names it and ends
  full disk          a tmpfs (which needs root) has room for a few checkpoints, and grows later
  small file         after SIGTERM, config.json, result.json, metrics.jsonl or the newest digests.json is damaged; the
                     run resumes, or names the damage in one line and resumes when the file is back
Each process must end by the signal or with its exit code, and with one line. The same command must then resume from the
newest undamaged checkpoint. At the end the whole state, parameters and optimizer, must have the bits of a run without
faults. The exit code is 1 if any fault had another outcome. Moments, files and bytes derive from the seed.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging

from experiments.faults.meet import Outcome, Start, fill, meet, start_twice
from experiments.faults.moments import EVALUATE, LAST, MOMENTS, STEPS
from experiments.kept import keep
from fxf.reports.text_table import aligned
from fxf.runs import run
from fxf.training import checkpoint

COUNTS = {
    "SIGKILL": 40,
    "SIGTERM": 15,
    "SIGTERM elsewhere": 15,
    "SIGHUP": 10,
    "flipped byte": 10,
    "truncated": 10,
    "without digests": 10,
    "double start": 10,
    "full disk": 5,
    "small file": 10,
}
FAULTS = flags.DEFINE_list("faults", list(COUNTS), "kinds of faults")
COUNT = flags.DEFINE_integer("count", None, "faults of each kind; without it, 130 in all", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "seed of the moments, files and bytes", lower_bound=0)
AT_ONCE = flags.DEFINE_integer("faults_a_run", 5, "maximum of faults in one run, one after the other", lower_bound=1)
WORKERS = flags.DEFINE_integer("workers", 2, "runs at the same time", lower_bound=1)
KEEP = flags.DEFINE_boolean("keep", False, "keep the table of all faults in experiments/results/faults")

FLAGS = f"""
    --config=configs/reversal.py --config.task.n_tokens=3 --config.task.max_length=2 --config.optimizer.warmup_steps=0
    --config.model.n_layers=1 --config.model.d_model=6 --config.model.d_ff=7 --config.model.n_heads=2
    --config.model.max_len=16 --config.train.batch_size=5 --config.checkpoint.every=1 --config.checkpoint.keep=3
    --config.log.every=1 --config.log.tensorboard=false --config.train.steps={STEPS}
    --config.train.evaluate_every={EVALUATE}
"""
COMMAND = [sys.executable, "experiments/train.py", *FLAGS.split()]
OPTIONS: Any = {"cwd": Path(__file__).parents[2], "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
DISK_KB = (120, 330)  # room for one to three checkpoints

_loading = threading.Lock()


def final_state(workdir: Path) -> list[np.ndarray]:
    with _loading:
        experiment = run.load(workdir)[0]
        restored = checkpoint.load(workdir / run.CHECKPOINTS, experiment.state_shapes(experiment.layout_of_one_copy()))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(restored[1])] if restored and restored[0] == STEPS else []


def trial(fault: str, n: int, place: Path, unbroken: list[np.ndarray], seed: list[int], start: Start) -> list[Outcome]:
    """Lets one run meet n faults of a kind.

    Raises:
      OSError: a small disk cannot be mounted.
    """
    rng = np.random.default_rng(seed)
    place.mkdir()
    if fault == "full disk":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={rng.integers(*DISK_KB)}k", "tmpfs", str(place)]
        mounted = subprocess.run(mount, capture_output=True, text=True)
        if mounted.returncode:
            raise OSError(mounted.stderr.strip())
    try:
        if fault == "full disk":
            found = [fill(place / "run", start)]
        elif fault == "double start":
            found = [start_twice(place / "run", rng, start)]
        else:
            found = meet(place / "run", fault, n, rng, start)
        final = final_state(place / "run")
    finally:
        if fault == "full disk":
            subprocess.run(["umount", str(place)], check=True)
    for outcome in found:
        outcome.same_bits = 0 < len(final) == len(unbroken) and all(map(np.array_equal, final, unbroken))
        if outcome.ended_well:
            outcome.output = ""
        print(f"{fault}: {outcome}", file=sys.stderr, flush=True)
    return found


def row(fault: str, outcomes: list[Outcome]) -> list[str]:
    resumed = sum(o.ended_well and o.resumed_at is not None for o in outcomes)
    lost = sum(abs(o.expected - o.resumed_at) if o.resumed_at is not None else STEPS for o in outcomes)
    return [fault, *map(str, (len(outcomes), resumed, lost, sum(o.same_bits for o in outcomes)))]


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.FATAL)  # Orbax logs each load
    if unknown := [fault for fault in FAULTS.value if fault not in COUNTS]:
        sys.exit(f"--faults: unknown kind {unknown[0]}; expected one of {', '.join(COUNTS)}")
    if KEEP.value and (COUNT.present or FAULTS.present):
        sys.exit("--keep: keeps the table of all faults; leave --faults and --count")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(WORKERS.value) as pool:
        folder = Path(name)
        # A process that may be killed only reads the cache of compiled programs, because JAX writes files in place.
        none = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        cache = {**none, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
        writes, reads = ({**cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": s} for s in ("0", "1000000"))

        def start(workdir: Path, compiles: bool = False, environment: dict[str, str] = reads) -> Any:
            return subprocess.Popen(
                [*COMMAND, f"--workdir={workdir}"], env=none if compiles else environment, **OPTIONS
            )

        errors = start(folder / "unbroken", environment=writes).communicate()[1]
        if not (unbroken := final_state(folder / "unbroken")):
            sys.exit(f"the run without faults did not end: {errors}")
        runs = {}
        for fault in FAULTS.value:
            left, at_once = COUNT.value or COUNTS[fault], AT_ONCE.value
            at_once = min(at_once, len(MOMENTS.get(fault, range(LAST - 4))))
            at_once = 1 if fault in ("double start", "full disk") else at_once
            sizes = [at_once] * (left // at_once) + [left % at_once] * (left % at_once > 0)
            seeds = [[SEED.value, list(COUNTS).index(fault), i] for i in range(len(sizes))]
            places = [folder / f"{fault} {i}" for i in range(len(sizes))]
            made = zip(sizes, places, seeds, strict=True)
            runs[fault] = [pool.submit(trial, fault, n, place, unbroken, seed, start) for n, place, seed in made]
        columns = "steps lost beyond the last checkpoint", "ended with the bits of the unbroken run"
        rows, every = [["fault", "times", "resumed", *columns]], list[Outcome]()
        for fault, trials in runs.items():
            try:
                outcomes = [outcome for one in trials for outcome in one.result()]
            except OSError as error:
                rows.append([fault, f"none: {error}", "", "", ""])
                continue
            saves = sum(o.what == "within a save" for o in outcomes)
            rows.append(row(f"{fault} ({saves} within a save)" if fault == "SIGKILL" else fault, outcomes))
            every += outcomes
    rows.append(row("all", every))
    print(*aligned(rows), sep="\n")
    print(f"{time.monotonic() - began:.0f} s")
    if KEEP.value:
        keep("faults", rows)
    _all, times, resumed, lost, same = rows[-1]
    sys.exit(int((resumed, lost, same) != (times, "0", times)))


if __name__ == "__main__":
    app.run(main)

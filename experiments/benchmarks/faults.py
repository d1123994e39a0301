"""Faults at random moments of a run, after which the same command must resume and end with the same bits.

python experiments/benchmarks/faults.py [--faults=SIGKILL --count=40] [--seed=0] [--keep]

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

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging
from kept_table import keep

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

STEPS, EVALUATE = 40, 10
FLAGS = f"""
    --config=configs/reversal.py --config.task.n_tokens=3 --config.task.max_length=2 --config.optimizer.warmup_steps=0
    --config.model.n_layers=1 --config.model.d_model=6 --config.model.d_ff=7 --config.model.n_heads=2
    --config.model.max_len=16 --config.train.batch_size=5 --config.checkpoint.every=1 --config.checkpoint.keep=3
    --config.log.every=1 --config.log.tensorboard=false --config.train.steps={STEPS}
    --config.train.evaluate_every={EVALUATE}
"""
COMMAND = [sys.executable, "experiments/train.py", *FLAGS.split()]
OPTIONS: Any = {"cwd": Path(__file__).parents[2], "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
LAST = STEPS - 6  # a fault after this many steps still comes before the end
SECONDS = 0.1  # maximum from a step's checkpoint to the fault; a step and its save take about as long
PATIENCE = 300  # seconds to wait for anything
DISK_KB = (120, 330)  # room for one to three checkpoints
MOMENTS = {
    "SIGTERM elsewhere": ("imports", "compiling", "a save", "an evaluation", "the final test"),
    "SIGHUP": ("training", "imports", "training", "a save", "training"),
}
DAMAGED = ("flipped byte", "truncated", "without digests", "small file")

Start = Callable[..., "subprocess.Popen[str]"]
_loading = threading.Lock()


@dataclass
class Outcome:
    """The state after a fault, and the step at which the same command resumed."""

    what: str
    expected: int  # step of the newest undamaged checkpoint; 0 if there is none
    ended_well: bool  # the run ended at this fault as it must: by the signal, or with its exit code and one line
    resumed_at: int | None = None
    same_bits: bool = False
    output: str = ""  # stderr, if the run did not end well


def newest(workdir: Path) -> int:
    return max(checkpoint.steps_in(workdir / run.CHECKPOINTS), default=0)


def resumption(errors: str) -> int | None:
    """Returns the step at which a process resumed, 0 if it started anew, or None if it did neither."""
    found = re.search(r"resuming at step (\d+)", errors)
    return int(found[1]) if found else 0 if re.search(r"^step 1/", errors, re.MULTILINE) else None


def last_words(errors: str) -> list[str]:
    """Returns the lines of stderr without those of training, the path of the page, and warnings."""
    usual = r"step \d+[/ ] ?.*|.*: resuming at step \d+|.*/report\.html|warning: .*"
    return [line for line in errors.splitlines() if not re.fullmatch(usual, line)]


def hears(process: "subprocess.Popen[str]") -> bool:
    """Returns whether the script is past its first import, after which a thread waits for blocked signals."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    blocked = re.search(r"^SigBlk:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(blocked and int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1)


def wait_until(true: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + PATIENCE
    while not true() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)


def reach(moment: str, process: "subprocess.Popen[str]", workdir: Path, step: int, rng: np.random.Generator) -> None:
    """Waits until the process is at the moment or has ended."""
    directory, before = workdir / run.CHECKPOINTS, newest(workdir)
    seconds = {"imports": 1.5, "compiling": 1.0, "a save": 0.0, "an evaluation": 0.1, "the final test": 0.1}
    reached = {
        "imports": lambda: hears(process),
        "compiling": lambda: f"pid {process.pid} " in (workdir / "lock").read_text() if workdir.exists() else False,
        "a save": lambda: newest(workdir) >= step - 1 and any(directory.glob(f"*{checkpoint.UNFINISHED}*")),
        "an evaluation": lambda: recorded(workdir) > before and recorded(workdir) % EVALUATE == 0,
        "the final test": lambda: newest(workdir) == STEPS,
        "training": lambda: newest(workdir) >= max(step, before + 1),
    }

    def there() -> bool:
        try:
            return bool(reached[moment]())
        except OSError:  # not there yet, or removed meanwhile
            return False

    wait_until(there, process)
    time.sleep(rng.uniform(0, seconds.get(moment, SECONDS)))


def recorded(workdir: Path) -> int:
    """Returns the step of the last line of metrics.jsonl, or 0."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def damage(workdir: Path, step: int, fault: str, rng: np.random.Generator) -> tuple[str, Callable[[], None]]:
    """Damages the run's folder; returns a description of the damage, and a function that mends it."""
    folder = workdir / run.CHECKPOINTS / str(step)
    if fault == "small file":
        return damage_small_file(workdir, folder, rng)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path: Path = rng.choice(np.array(files, object))
    how = fault
    if fault == "without digests":
        (folder / checkpoint.DIGESTS).unlink()
        how = str(rng.choice(["emptied", "truncated", "removed", "a plain file"]))
        path = path if path.exists() else folder / checkpoint.CONTENT
    data = bytearray(path.read_bytes())
    at = int(rng.integers(len(data)))
    if how == "flipped byte":
        data[at] ^= int(rng.integers(1, 256))
    if how == "removed":
        path.unlink()
    elif how == "a plain file":
        shutil.rmtree(folder)
        folder.write_bytes(data)
    else:
        path.write_bytes(data[: {"emptied": 0, "truncated": at}.get(how, len(data))])
    return f"{how}: {path.name}", lambda: None


def damage_small_file(workdir: Path, folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], None]]:
    places = (workdir / "config.json", workdir / "result.json", workdir / "metrics.jsonl", folder / checkpoint.DIGESTS)
    path = places[int(rng.integers(len(places)))]
    before = path.read_bytes() if path.exists() else None
    config = json.loads((workdir / "config.json").read_text())
    without = {**config, "config": {k: v for k, v in config["config"].items() if k != "model"}}
    listed = {**config, "config": {**config["config"], "task": {**config["config"]["task"], "name": ["reversal"]}}}
    contents = {
        "empty": b"",
        "a list": b"[1, 2]",
        "binary": rng.bytes(100),
        "deep": b"[" * 100_000,
        "half": (before or b"{}")[: len(before or b"{}") // 2],
        **({"no model": json.dumps(without).encode()} if path.name == "config.json" else {}),
        **({"name a list": json.dumps(listed).encode()} if path.name == "config.json" else {}),
    }
    how = str(rng.choice(list(contents)))
    path.write_bytes(contents[how])

    def mend() -> None:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)

    return f"{path.name}: {how}", mend


def meet(workdir: Path, fault: str, n: int, rng: np.random.Generator, start: Start) -> list[Outcome]:
    """Lets a run meet n faults of a kind, resumes after each, and trains to the end."""
    outcomes, mend = list[Outcome](), list[Callable[[], None]]()
    first = 4 if fault in DAMAGED else 1  # a damaged checkpoint needs an older one
    number = {"SIGKILL": signal.SIGKILL, "SIGHUP": signal.SIGHUP}.get(fault, signal.SIGTERM)
    moments = MOMENTS.get(fault, ("training",) * n)[:n]

    def ended(code: int, errors: str) -> bool:
        """Records the step at which a process resumed; mends the named damage and returns False if it did not."""
        for outcome in outcomes if (at := resumption(errors)) is not None else []:
            if outcome.resumed_at is None:
                outcome.resumed_at = at
        words = last_words(errors)
        if not mend or not (code == 2 and len(words) == 1 and words[0].startswith("error: ")):
            return True
        outcomes[-1].what += " (named)"
        mend.pop()()
        return False

    for moment, step in zip(moments, np.sort(rng.choice(np.arange(first, LAST), n, replace=False)), strict=False):
        while True:
            process = start(workdir, compiles=moment == "compiling")
            reach(moment, process, workdir, int(step), rng)
            process.send_signal(number)
            errors = process.communicate(timeout=PATIENCE)[1]
            if ended(process.returncode, errors):
                break
        mend.clear()
        words, kept = last_words(errors), newest(workdir)
        if number == signal.SIGKILL:
            unfinished = any((workdir / run.CHECKPOINTS).glob(f"*{checkpoint.UNFINISHED}*"))
            what = "within a save" if unfinished else "elsewhere"
            outcomes.append(Outcome(what, kept, process.returncode == -signal.SIGKILL and not words, output=errors))
            continue
        saved = re.match(r"stopped at step (\d+), which is saved", words[0] if words else "")
        ended_well = process.returncode == 75 and len(words) == 1 and words[0].startswith("stopped ")
        ended_well &= saved is None or int(saved[1]) == kept
        ended_well &= saved is not None or moment not in ("training", "a save", "an evaluation")
        outcomes.append(Outcome(moment, kept, ended_well, output=errors))
        if fault in DAMAGED and kept:
            what, restore = damage(workdir, kept, fault, rng)
            outcomes[-1].what = what
            if fault == "small file":
                mend.append(restore)
            if fault != "small file" or what.startswith(checkpoint.DIGESTS):
                outcomes[-1].expected = max(s for s in checkpoint.steps_in(workdir / run.CHECKPOINTS) if s < kept)
    finish(workdir, start, ended)
    return outcomes


def finish(workdir: Path, start: Start, ended: Callable[[int, str], bool]) -> None:
    for _ in range(2):  # the second time after `ended` has mended the named damage
        process = start(workdir)
        errors = process.communicate(timeout=PATIENCE)[1]
        if ended(process.returncode, errors):
            return


def start_twice(workdir: Path, rng: np.random.Generator, start: Start) -> Outcome:
    one = start(workdir)
    time.sleep(rng.uniform(0, 0.5))
    other = start(workdir)
    pair = [(process, process.communicate(timeout=PATIENCE)[1]) for process in (one, other)]
    pair.sort(key=lambda entry: entry[0].returncode)
    (winner, errors), (loser, words) = pair
    names = f"pid {winner.pid} on {socket.gethostname()}"
    ended_well = (winner.returncode, last_words(errors)) == (0, [])
    ended_well &= loser.returncode == 2 and words.count("\n") == 1 and words.startswith("error: ") and names in words
    what = "the first trains" if winner is one else "the second trains"
    return Outcome(what, 0, ended_well, resumption(errors), output=errors + words)


def fill(workdir: Path, start: Start) -> Outcome:
    """Runs in an existing small file system, makes it larger, and runs again."""
    process = start(workdir)
    errors = process.communicate(timeout=PATIENCE)[1]
    steps = checkpoint.steps_in(workdir / run.CHECKPOINTS)
    kept = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
    words = last_words(errors)
    ended_well = process.returncode == 2 and len(words) == 1 and "the disk is full" in words[0] and kept in words[0]
    subprocess.run(["mount", "-o", "remount,size=64m", str(workdir.parent)], check=True)
    again = start(workdir).communicate(timeout=PATIENCE)[1]
    return Outcome(
        f"with {len(steps)} checkpoints", max(steps, default=0), ended_well, resumption(again), output=errors
    )


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

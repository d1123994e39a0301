"""Lets runs meet faults, and records where the same command resumed them."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.faults.damage import damage
from experiments.faults.moments import LAST, MOMENTS, PATIENCE, newest, reach
from fxf.runs import run
from fxf.training import checkpoint, checkpoint_files

DAMAGED = ("flipped byte", "truncated", "without digests", "small file")
Start = Callable[..., "subprocess.Popen[str]"]


@dataclass
class Outcome:
    """The state after a fault, and the step at which the same command resumed."""

    what: str
    expected: int  # step of the newest undamaged checkpoint; 0 if there is none
    ended_well: bool  # the run ended at this fault as it must: by the signal, or with its exit code and one line
    resumed_at: int | None = None
    same_bits: bool = False
    output: str = ""  # stderr, if the run did not end well


def resumption(errors: str) -> int | None:
    """Returns the step at which a process resumed, 0 if it started anew, or None if it did neither."""
    found = re.search(r"resuming at step (\d+)", errors)
    return int(found[1]) if found else 0 if re.search(r"^step 1/", errors, re.MULTILINE) else None


def last_words(errors: str) -> list[str]:
    """Returns the lines of stderr without those of training, the path of the page, and warnings."""
    usual = r"step \d+[/ ] ?.*|.*: resuming at step \d+|.*/report\.html|warning: .*"
    return [line for line in errors.splitlines() if not re.fullmatch(usual, line)]


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
            if fault != "small file" or what.startswith(checkpoint_files.DIGESTS):
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

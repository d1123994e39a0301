"""The moments of a run at which a fault comes."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fxf.runs import run
from fxf.training import checkpoint

STEPS, EVALUATE = 40, 10
LAST = STEPS - 6  # a fault after this many steps still comes before the end
SECONDS = 0.1  # maximum from a step's checkpoint to the fault; a step and its save take about as long
PATIENCE = 300  # seconds to wait for anything
MOMENTS = {
    "SIGTERM elsewhere": ("imports", "compiling", "a save", "an evaluation", "the final test"),
    "SIGHUP": ("training", "imports", "training", "a save", "training"),
}


def newest(workdir: Path) -> int:
    return max(checkpoint.steps_in(workdir / run.CHECKPOINTS), default=0)


def recorded(workdir: Path) -> int:
    """Returns the step of the last line of metrics.jsonl, or 0."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


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

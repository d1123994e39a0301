"""A process of a crew: it trains the runs that stdin names, and writes to stdout why each failed, or nothing.

A run is a line of JSON: its config, its folder, its origin, and the files that the config names.
"""

import fxf.base.listen  # noqa: F401  A signal ends the process after a save; other imports start threads.

# isort: split
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fxf.base.devices import start_jax
from fxf.base.errors import Interrupted

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Trains until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed between runs is lost, as stderr is
    if sys.platform == "linux":  # the kernel's signal when the parent ends, which may have been killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    start_jax()
    from fxf.sweeps.crew import Job, train

    kept: dict[str, Any] = {}
    for line in sys.stdin:
        config, folder, origin, brought = json.loads(line)
        try:
            answer = train(Job(config, Path(folder), origin), brought, kept)
        except Interrupted:
            return
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

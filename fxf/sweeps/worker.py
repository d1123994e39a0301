"""A process of a crew: trains the runs that it reads from stdin, and writes the error of each to stdout, "" for none.

Each line of stdin is a run in JSON: config, folder, origin, and the files that the config names.
"""

import fxf.base.listen  # noqa: F401  A signal ends the process after a save; must come before imports that start threads.

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
    os.dup2(2, 1)  # other output between runs goes to stderr, which is discarded
    if sys.platform == "linux":  # the kernel signals this process when its parent ends, even if killed
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

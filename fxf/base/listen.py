"""The first import of every script: from here on a signal ends the script in one line, even during other imports."""

import time

STARTED = time.perf_counter()  # wall_seconds counts the imports

from fxf.base import signals  # noqa: E402

signals.listen()

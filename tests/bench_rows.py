"""Rows of the benchmark whose ways take no time, for processes that import this file."""

import os

from experiments.benchmarks.rows import Measured, Row, Way


def processes(settings):
    """Yields a row whose ways count their turns and tell their process."""
    del settings

    def way():
        turns = []

        def run():
            turns.append(None)
            return Measured(len(turns))

        return Way(run, os.getpid)

    yield Row("work", "tokens/s", 12, {"fxf": way, "peer": way}, lambda facts: " ".join(map(str, facts.values())))


def failing(settings):
    """Yields a row with a way that cannot be made."""
    del settings

    def peer():
        raise ValueError("no such weights")

    yield Row("work", "s", 0, {"fxf": lambda: Way(list), "peer": peer})


def dying(settings):
    """Yields a row with a way whose process ends."""
    del settings
    yield Row("work", "s", 0, {"fxf": lambda: Way(list), "peer": lambda: Way(lambda: os._exit(1))})

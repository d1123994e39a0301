"""Trains the experiment that a config names, or resumes it from its run folder.

fxf train --config=reversal --workdir=runs/reversal
"""

import sys
from pathlib import Path

from absl import flags

from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config(), cli.define_workdir()
PROFILE = flags.DEFINE_boolean("profile", False, "write a trace of a few steps after the first record")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    import jax

    from fxf.runs import run
    from fxf.training import processes
    from fxf.training.metrics import Clock

    config, origin = cli.config_and_origin(CONFIG)
    result = run.train(config, cli.require_workdir(WORKDIR), Clock(cli.STARTED), origin, PROFILE.value)
    if config["log"]["report"] and jax.process_count() == 1:
        _add_the_inside(cli.require_workdir(WORKDIR))
    if processes.is_first():
        cli.print_figures(result)


def _add_the_inside(workdir: Path) -> None:
    """Adds attention, positions and logit lens to the page of a run that has just ended."""
    from fxf.reports import inside

    if not inside.is_of_the_result(workdir):
        print(inside.write(workdir), file=sys.stderr)

"""Trains the experiment that a config names, or resumes it from its run folder.

fxf train --config=reversal --workdir=runs/reversal
"""

from absl import flags

from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config(), cli.define_workdir()
PROFILE = flags.DEFINE_boolean("profile", False, "write a trace of a few steps after the first record")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.runs import run
    from fxf.training import processes
    from fxf.training.metrics import Clock

    config, origin = cli.config_and_origin(CONFIG)
    result = run.train(config, cli.require_workdir(WORKDIR), Clock(cli.STARTED), origin, PROFILE.value)
    if processes.is_first():
        cli.print_figures(result)

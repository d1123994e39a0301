"""Trains the experiment that a config names, or resumes it from its run folder.

fxf train --config=reversal --workdir=runs/reversal
"""

from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config(), cli.define_workdir()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.runs import run
    from fxf.training import processes
    from fxf.training.metrics import Clock

    config, origin = cli.config_and_origin(CONFIG)
    result = run.train(config, cli.require_workdir(WORKDIR), Clock(cli.STARTED), origin)
    if processes.is_first():
        cli.print_figures(result)

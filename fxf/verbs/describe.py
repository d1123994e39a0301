"""Prints a config's weights and operations, and the memory and time of a step. It trains nothing.

fxf describe --config=reversal
"""

from fxf.runs import cli

CONFIG = cli.define_config()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.reports.describe import describe
    from fxf.runs.experiment import build

    config, _origin = cli.config_and_origin(CONFIG)
    print(describe(build(config)))

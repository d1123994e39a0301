"""Prints a config's parameter table, operations a token, and memory; nothing is allocated or trained.

python experiments/describe.py --config=configs/reversal.py
"""

import fxf.machine.listen  # noqa: F401  First of all.

from fxf.runs import cli

CONFIG = cli.define_config()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.reports.describe import describe
    from fxf.runs.experiment import build

    config, _origin = cli.config_and_origin(CONFIG)
    print(describe(build(config)))


if __name__ == "__main__":
    cli.run(main)

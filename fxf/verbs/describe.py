"""Prints a config's weights and operations, and the memory of a step. It trains nothing.

fxf describe --config=reversal
"""

from argparse import Namespace

from fxf.verbs.flags import Parser, add_config, config_and_origin


def flags(parser: Parser) -> None:
    add_config(parser)


def main(args: Namespace) -> None:
    from fxf.compile.describe import describe
    from fxf.runs.experiment import build

    print(describe(build(config_and_origin(args)[0])))

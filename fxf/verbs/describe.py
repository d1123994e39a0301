"""Prints a config's weights, its operations per token and the memory of a step, without training.

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

"""Writes the figures of all pages from the kept results.

make figures

A line names each page that changed. What a program cannot mend, such as a number without a source, has a line too, and
the exit code is 1.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import sys
from pathlib import Path

from fxf.runs import cli

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from experiments.figures.pages import differences, rewrite

    for name in rewrite(ROOT):
        print(name)
    if found := differences(ROOT):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    cli.run(main)

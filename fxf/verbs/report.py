"""Writes the page of a run, report.html in its folder: curves, samples, attention, config.

fxf report runs/reversal
fxf report --step=500 runs/reversal runs/other

Training writes the page too, now and then and at its end (unless log.report is off). This command writes it again for
runs that are there, and adds what is seen inside the model at the checkpoint of --step.
"""

from argparse import Namespace

from fxf.base.errors import UserError
from fxf.base.files import folder_at
from fxf.verbs.flags import Parser

ARGUMENTS = "run folders"


def flags(parser: Parser) -> None:
    parser.flag("step", int, doc="checkpoint to look into; by default the one that the run's result used")


def main(args: Namespace) -> None:
    if not args.arguments:
        raise UserError("no run: give run folders; for example fxf report runs/reversal")
    from fxf.runs import inside

    for folder in args.arguments:
        print(inside.write(folder_at(folder, "fxf report"), args.step))

"""Writes the page of a run, report.html in its folder, or serves live pages of runs.

fxf report runs/reversal
fxf report --step=500 runs/reversal runs/other
fxf report --live runs/reversal
fxf report --live runs

The page has curves, samples, attention and config. Training writes it at its end (unless log.report is off). This
command writes it for existing runs, with attention and logit lens at the checkpoint of --step.

With --live it writes nothing. It serves the page of one run, or a page of all runs in a folder with a link to each, to
browsers on this machine. The pages update while the runs go on.
"""

from argparse import Namespace

from fxf.base.errors import UserError
from fxf.base.files import folder_at, is_remote
from fxf.verbs.flags import Parser, whole

NEEDS_JAX = False  # --live works without
ARGUMENTS = "run folders"


def flags(parser: Parser) -> None:
    parser.flag("step", int, doc="checkpoint to look into; by default the one that the run's result used")
    parser.switch("live", "serve the pages of a run, or of all runs in a folder")
    parser.flag("port", whole(0, 65535), 7007, "port of --live; by default 7007; 0: any free port")


def main(args: Namespace) -> None:
    folders = [folder_at(folder, "fxf report") for folder in args.arguments]
    if not folders:
        raise UserError("no run: give run folders; for example fxf report runs/reversal")
    if args.live:
        from fxf.base import status
        from fxf.reports import live

        if len(folders) > 1 or is_remote(folders[0]) or args.step is not None:
            raise UserError("--live: expected one folder on a disk, of a run or of runs, and no --step")
        status.end()
        return live.serve(folders[0], args.port)
    from fxf.base.devices import start_jax

    start_jax()
    from fxf.runs import inside

    for folder in folders:
        print(inside.write(folder, args.step))

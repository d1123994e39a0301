"""Trains the experiment of a config, or resumes it from its run folder.

fxf train --config=reversal --workdir=runs/reversal

--from takes weights, model and tokenizer from another run (RUN, or RUN:STEP) or a folder of transformers, or only
weights from a safetensors file. Keys of `model` on the command line take precedence. Weights that do not fit are an
error, or are initialized with --config.start.on_mismatch=draw.

fxf train --config=reversal --workdir=runs/longer --from=runs/reversal --config.train.steps=300
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fxf.base import status
from fxf.base.config import with_values
from fxf.base.errors import one_line
from fxf.verbs.flags import Parser, add_config, config_and_origin, print_figures, require_workdir


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="the run folder")
    parser.flag("from", doc="the source of the weights: RUN, RUN:STEP, FILE.safetensors or a folder", dest="source")
    parser.switch("profile", "write a trace of the second step, and the third if steps are short")
    parser.switch("smoke", "try every stage in seconds, in the folder WORKDIR-smoke")


def main(args: Namespace) -> None:
    from fxf.base.listen import STARTED

    import jax

    from fxf.runs import run

    config, origin = config_and_origin(args)
    workdir = require_workdir(args)
    if args.source:
        from fxf.reports.run_files import FROM
        from fxf.runs.warm_start import config_from

        config, origin[FROM] = config_from(config, args.source, workdir, origin["overrides"]), args.source
    if args.smoke:
        config, workdir = _smoke(config, workdir, origin)
    result = run.train(config, workdir, origin, STARTED, args.profile)
    from fxf.runs import inside  # imported late so that the first step need not wait

    inside.complete(config, workdir)
    if jax.process_index() == 0:
        print_figures(result)


def _smoke(config: dict[str, Any], workdir: Path, origin: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """Returns the config and folder of a smoke run, and prints its changes."""
    from fxf.runs import smoke

    changes = smoke.smoke_changes(config)
    folder = smoke.new_folder(workdir)
    origin["overrides"] |= changes
    origin[smoke.MARK] = True
    status.say(one_line("smoke run with " + "  ".join(f"{key} {value}" for key, value in changes.items())))
    return with_values(config, changes), folder

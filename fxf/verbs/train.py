"""Trains the experiment that a config names, or resumes it from its run folder.

fxf train --config=reversal --workdir=runs/reversal

With --from the weights, the model and the tokenizer are those of another run (RUN, or RUN:STEP), of a folder of
transformers, or, without model and tokenizer, of a safetensors file. Keys of `model` on the command line stay. The keys
of the `start` section choose among the weights.

fxf train --config=reversal --workdir=runs/longer --from=runs/reversal --config.train.steps=300
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from absl import flags

from fxf.errors import one_line
from fxf.machine import status
from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config(), cli.define_workdir()
FROM = flags.DEFINE_string("from", None, "the source of the weights: RUN, RUN:STEP, FILE.safetensors or a folder")
PROFILE = flags.DEFINE_boolean("profile", False, "write a trace of a few steps after the first record")
SMOKE = flags.DEFINE_boolean("smoke", False, "try every stage in seconds, in the folder WORKDIR-smoke")
JSON = cli.define_json()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.reports import whole_run
    from fxf.training import processes
    from fxf.training.log import Clock

    config, origin = cli.config_and_origin(CONFIG)
    workdir = cli.require_workdir(WORKDIR)
    if FROM.value:
        from fxf.runs.warm_start import config_from

        config = config_from(config, FROM.value, workdir, origin["overrides"])
    if SMOKE.value:
        config, workdir = _smoke(config, workdir, origin)
    with contextlib.redirect_stdout(sys.stderr) if JSON.value else contextlib.nullcontext():  # the samples
        result = whole_run.train(config, workdir, Clock(cli.STARTED), origin, PROFILE.value)
    if processes.is_first():
        cli.print_figures(result, JSON.value)


def _smoke(config: dict[str, Any], workdir: Path, origin: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """Returns the config and the folder of a smoke run, and prints what it changes."""
    from fxf.runs import smoke

    changes = smoke.smoke_changes(config)
    folder = smoke.new_folder(workdir)
    origin["overrides"] |= changes
    origin[smoke.MARK] = True
    status.say(one_line("smoke run with " + "  ".join(f"{key} {value}" for key, value in changes.items())))
    return smoke.changed(config, changes), folder

"""Writes the page of a run, report.html in its folder: curves, samples, attention, config.

fxf report runs/reversal
fxf report --step=500 runs/reversal runs/other

Training writes the page too, now and then and at its end (unless log.report is off). This command writes it again for
runs that are there, and adds what is seen inside the model at the checkpoint of --step.
"""

from absl import flags

from fxf.errors import UserError
from fxf.files import folder_at
from fxf.runs import cli

CONFIG = cli.define_config_file()
STEP = flags.DEFINE_integer("step", None, "checkpoint to look into; by default the one that the run's result used")


def main(folders: list[str]) -> None:
    if not folders:
        raise UserError("no run: give run folders; for example fxf report runs/reversal")
    from fxf.reports import inside

    for folder in folders:
        print(inside.write(folder_at(folder, "fxf report"), STEP.value, CONFIG.value))

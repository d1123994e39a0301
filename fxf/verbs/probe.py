"""Shows arrays inside a trained model while it reads a text: attention, vectors, logit lens.

fxf probe --workdir=runs/reversal "3 1 5"
fxf probe --workdir=runs/reversal --name=block_1/attention/weights --head=0 "3 1 5"
fxf probe --workdir=runs/reversal --name=block_1/attention/weights --output=heads.png "3 1 5"
fxf probe --workdir=runs/reversal --name=embedding/positions --output=positions.svg "3 1 5"
fxf probe --workdir=runs/reversal --lens "3 1 5"

The model reads a prompt and its own answer, or a second argument in place of the answer. Without --name, the names of
the arrays are listed.
"""

from pathlib import Path

from absl import flags

from fxf.errors import UserError
from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config_file(), cli.define_workdir()
NAME = flags.DEFINE_string("name", None, "array to show; by default all are listed")
HEAD = flags.DEFINE_integer("head", None, "head of attention weights to show; by default all", lower_bound=0)
LENS = flags.DEFINE_boolean("lens", False, "show the most probable next token after each block")
OUTPUT = flags.DEFINE_string("output", None, "file for a heat map, .png or .svg, instead of text")
STEP = flags.DEFINE_integer("step", None, "checkpoint to load; by default the one that the run's result used")


def main(texts: list[str]) -> None:
    from fxf.reports import probe
    from fxf.reports.text_table import aligned
    from fxf.runs import run

    if not 1 <= len(texts) <= 2:
        raise UserError(f"expected a prompt and at most one answer, got {len(texts)} arguments")
    if LENS.value and (NAME.value or OUTPUT.value):
        raise UserError("--lens: cannot go with --name or --output")
    for flag in (HEAD, OUTPUT):
        if flag.value is not None and not NAME.value:
            raise UserError(f"--{flag.name}: only --name reads it")
    workdir = cli.require_workdir(WORKDIR)
    experiment, step, params = run.load(workdir, STEP.value, config_file=CONFIG.value)
    reading = probe.read(experiment, params, *texts)
    if LENS.value:
        for line in aligned(reading.lens()):
            print(line)
        return
    if not NAME.value:
        for line in aligned([(name, probe.shape_text(value)) for name, value in reading.arrays.items()]):
            print(line)
        return
    shown = reading.matrices(NAME.value, HEAD.value)
    if OUTPUT.value:
        text = " → ".join(map(probe.visible, texts))
        probe.draw(shown, f"{NAME.value}, reading “{text}”, run {workdir.name}, step {step}", Path(OUTPUT.value))
        print(OUTPUT.value)
    else:
        print(probe.as_text(shown, NAME.value))

"""Scores a trained run with the checkpoint that its result used, or that of --step.

fxf evaluate --workdir=runs/reversal
fxf evaluate --workdir=runs/translation --beam_width=5
fxf evaluate --workdir=runs/translation --pairs=pairs.tsv --output=runs/translation/answers
"""

from absl import flags

from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config_file(), cli.define_workdir()
DECODE = cli.define_decode()
STEP = flags.DEFINE_integer("step", None, "checkpoint to score; by default the one that the run's result used")
PAIRS = flags.DEFINE_string("pairs", None, "file to score instead: on each line a prompt, a tab and a right answer")
OUTPUT = flags.DEFINE_string("output", None, "folder for sources.txt, hypotheses.txt and references.txt")
BASELINE = flags.DEFINE_string(
    "baseline", None, "folder that --output of another system wrote; adds its figures, and p-values of the differences"
)
JSON = cli.define_json()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.runs import run
    from fxf.training.log import Clock

    workdir, clock = cli.require_workdir(WORKDIR), Clock(cli.STARTED)
    places = (CONFIG.value, PAIRS.value, OUTPUT.value, BASELINE.value)
    figures = run.evaluate(workdir, clock, STEP.value, DECODE(), *places)
    cli.print_figures(figures, JSON.value)

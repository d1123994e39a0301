"""Scores a trained run: its best checkpoint if it keeps a best, else its newest, or the one of --step.

python experiments/evaluate.py --workdir=runs/reversal
"""

from absl import flags

from fxf import cli

WORKDIR = cli.define_workdir()
STEP = flags.DEFINE_integer("step", None, "checkpoint to score")


def main(_: list[str]) -> None:
    from fxf import experiment
    from fxf.training.metrics import Clock

    cli.print_figures(experiment.evaluate(cli.require_workdir(WORKDIR), Clock(cli.STARTED), STEP.value))


if __name__ == "__main__":
    cli.run(main)

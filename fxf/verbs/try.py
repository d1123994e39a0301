"""Tries one config against another over pairs of seeds, and says whether it is better.

fxf try --config=reversal:example0 --change=model.activation=silu --workdir=runs/silu
fxf try --config=characters --other=mine.py --metric=test_loss --minutes=30 --workdir=runs/mine
fxf try --config=reversal:example0 --change=model.attention=mine:sigmoid --workdir=runs/mine
fxf try --config=reversal:example0 --null --workdir=runs/null

The other config is --other, or that of --config. Each --change=KEY=VALUE changes it alone. --config.KEY=VALUE changes
both. The two runs of a pair have the same seed: the same batches, and the same initial weights where the shapes agree.
--null tries a config against itself, with two seeds in a pair.

Pairs run in this process until the answer is clear, --seeds pairs have run, or --minutes leave no time for another.
The test is sequential, so that looking after each pair costs nothing: of trials without a difference, at most the share
--level ends with better or worse. The plan is written to plan.json before the runs begin. The same command goes on with
a trial that was stopped; it may have more seeds or minutes, and nothing else may change.
"""

import sys

from absl import flags

from fxf.config import differing_keys, flatten
from fxf.errors import UserError, one_line
from fxf.files import to_json
from fxf.machine import status
from fxf.runs import cli

CONFIG, WORKDIR = cli.define_config(), flags.DEFINE_string("workdir", None, "folder of the trial, and of its runs")
OTHER = flags.DEFINE_string("other", None, "the other config; by default that of --config")
CHANGE = flags.DEFINE_multi_string("change", [], "KEY=VALUE, a key of the other config; may be repeated")
NULL = flags.DEFINE_boolean("null", False, "try the config against itself")
METRIC = flags.DEFINE_string("metric", "", "the figure of result.json that decides; by default the task's first")
SEEDS = flags.DEFINE_integer("seeds", 32, "the most pairs of seeds", 2)
MINUTES = flags.DEFINE_float("minutes", 10.0, "the minutes after which no pair begins", 0.0)
LEVEL = flags.DEFINE_float("level", 0.05, "the probability of an error")
JSON = cli.define_json()


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from fxf.trials import arms
    from fxf.trials.evidence import Evidence, fewest
    from fxf.trials.plan import Budget, keep_plan, make_plan
    from fxf.trials.trial import carry_out
    from fxf.trials.verdict import VERDICT, Pair

    config, origin = cli.config_and_origin(CONFIG)
    workdir = cli.require_workdir(WORKDIR)
    first, other = arms.Arm(config, origin), None
    if NULL.value:
        for flag in (OTHER, CHANGE):
            if flag.value:
                raise UserError(f"--{flag.name}: --null tries the config of --config against itself")
    elif not (OTHER.value or CHANGE.value):
        raise UserError("nothing to try: give --other or --change, or --null")
    else:
        other = arms.other_config(OTHER.value, origin["overrides"]) if OTHER.value else first
        other = arms.with_changes(other, CHANGE.value)
    plan, budget = make_plan(first, other, workdir, METRIC.value, LEVEL.value), Budget(SEEDS.value, MINUTES.value)
    keep_plan(plan, budget, workdir)
    if other is not None and not OTHER.value:
        values = dict(flatten(other.config))
        changed = (f"{key} {values[key]}" for key in differing_keys(config, other.config) if key in values)
        status.say(one_line(f"the other config has {'  '.join(changed)}"))
    if SEEDS.value < (n := fewest(plan.level)):
        status.say(f"--seeds={SEEDS.value}: at level {plan.level:g} a difference takes {n} pairs at least to show")

    def told(pair: Pair, found: Evidence) -> None:
        values = ["diverged" if value is None else f"{value:.5g}" for value in (pair.first, pair.other)]
        status.say(f"pair {found.n}  {plan.metric} {values[0]} and {values[1]}  {pair.seconds:.1f} s  p {found.p:.2g}")

    verdict = carry_out(plan, workdir, budget, told)
    if JSON.value:
        print(to_json(verdict.figures()))
    else:
        print("\n".join(verdict.lines()))
        print(workdir / VERDICT, file=sys.stderr)

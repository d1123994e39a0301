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
from argparse import Namespace

from fxf.config import differing_keys, flatten
from fxf.errors import UserError, one_line
from fxf.files import to_json
from fxf.machine import status
from fxf.verbs.flags import Parser, add_config, config_and_origin, require_workdir, whole


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="folder of the trial, and of its runs")
    parser.flag("other", doc="the other config; by default that of --config")
    parser.flag("change", default=[], doc="KEY=VALUE, a key of the other config; may be repeated", action="append")
    parser.switch("null", "try the config against itself")
    parser.flag("metric", default="", doc="the figure of result.json that decides; by default the task's first")
    parser.flag("seeds", whole(2), 32, "the most pairs of seeds")
    parser.flag("minutes", float, 10.0, "the minutes after which no pair begins")
    parser.flag("level", float, 0.05, "the probability of an error")
    parser.switch("json", "print the figures as one JSON object, and nothing else")


def main(args: Namespace) -> None:
    from fxf.trials import arms
    from fxf.trials.evidence import Evidence, fewest
    from fxf.trials.plan import Budget, keep_plan, make_plan
    from fxf.trials.trial import carry_out
    from fxf.trials.verdict import VERDICT, Pair

    config, origin = config_and_origin(args)
    workdir, first, other = require_workdir(args), arms.Arm(config, origin), None
    if args.null:
        for flag in ("other", "change"):
            if getattr(args, flag):
                raise UserError(f"--{flag}: --null tries the config of --config against itself")
    elif not (args.other or args.change):
        raise UserError("nothing to try: give --other or --change, or --null")
    else:
        other = arms.other_config(args.other, origin["overrides"]) if args.other else first
        other = arms.with_changes(other, args.change)
    plan, budget = make_plan(first, other, workdir, args.metric, args.level), Budget(args.seeds, args.minutes)
    keep_plan(plan, budget, workdir)
    if other is not None and not args.other:
        values = dict(flatten(other.config))
        changed = (f"{key} {values[key]}" for key in differing_keys(config, other.config) if key in values)
        status.say(one_line(f"the other config has {'  '.join(changed)}"))
    if args.seeds < (n := fewest(plan.level)):
        status.say(f"--seeds={args.seeds}: at level {plan.level:g} a difference takes {n} pairs at least to show")

    def told(pair: Pair, found: Evidence) -> None:
        values = ["diverged" if value is None else f"{value:.5g}" for value in (pair.first, pair.other)]
        status.say(f"pair {found.n}  {plan.metric} {values[0]} and {values[1]}  {pair.seconds:.1f} s  p {found.p:.2g}")

    verdict = carry_out(plan, workdir, budget, told)
    if args.json:
        print(to_json(verdict.figures()))
    else:
        print("\n".join(verdict.lines()))
        print(workdir / VERDICT, file=sys.stderr)

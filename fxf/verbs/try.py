"""Tests whether one config is better than another, over pairs of seeds.

fxf try --config=reversal:example0 --change=model.activation=silu --workdir=runs/silu
fxf try --config=characters --other=mine.py --metric=test_loss --minutes=90 --workdir=runs/mine
fxf try --config=reversal:example0 --change=model.attention=mine:Sigmoid --failed=0.9 --workdir=runs/mine
fxf try --config=reversal:example0 --null --workdir=runs/null

The other config is --other, or that of --config. --change=KEY=VALUE changes the other config alone, --config.KEY=VALUE
both. The two runs of a pair have the same seed: the same batches, and the same initial weights where the shapes agree.
--null tests a config against itself, with two seeds in a pair.

First, each config gets the best of three learning rates (its own, half and twice), searched with separate seeds. If the
lowest or highest rate is the best, up to two more are tried beyond it. If the best one is still at the edge, the trial
ends undecided. --rates=1 keeps the rates. --match=flops and --match=seconds change the steps of the other config, so
that both configs use the same number of operations, or the same time.

Then pairs run. A claim about the mean is made after 32 pairs, and with --seeds=64 again after 64. Looks after 8 and 16
may end the trial if most seeds agree, if failures differ, or if little differs. An early end overestimates the effect;
--whole prevents it. Two seeds may miss the best rate, so a claim must hold when the worse config runs the same seeds
with each of the rates beside its own. A run has failed if its loss is not finite, or its metric is worse than --failed.

The plan is written to plan.json before the runs begin. The same command resumes a trial that was stopped; it may have
more seeds or minutes, or --whole, but no other change. trial.html shows every pair.
"""

import sys
from argparse import Namespace

from fxf.base import status
from fxf.base.errors import UserError
from fxf.base.work import n_cores
from fxf.verbs.flags import Parser, add_config, config_and_origin, place, require_workdir, whole


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="folder of the trial, and of its runs")
    parser.flag("other", place, doc="the other config; by default that of --config")
    parser.flag("change", default=[], doc="KEY=VALUE, a key of the other config; may be repeated", action="append")
    parser.switch("null", "test the config against itself")
    parser.flag("metric", doc="the metric of result.json that decides; by default the task's first")
    parser.flag("failed", float, doc="a run whose metric is worse than this has failed")
    parser.flag("rates", whole(1), doc="learning rates to try per config; by default 3, or 1 if only the rate differs")
    parser.flag("match", default="steps", doc="what both configs spend equally: steps (unchanged), flops or seconds")
    parser.switch("scales", "repeat the trial at half, the given and twice the depth and width, --minutes each")
    parser.flag("seeds", whole(2), 32, "maximum number of pairs of seeds")
    parser.flag("minutes", float, 30.0, "no run begins after these minutes")
    parser.switch("whole", "let no look before 32 pairs end the trial")
    parser.flag("workers", whole(1), doc="processes that train in parallel on a CPU; by default one for each core")


def main(args: Namespace) -> None:
    import jax

    from fxf.sweeps.plan import Arm, Budget, make_plan, other_config, with_changes
    from fxf.sweeps.trial import run_trial, try_sizes
    from fxf.sweeps.verdict import PAGE

    workers = args.workers or (n_cores() if jax.default_backend() == "cpu" else 1)
    if workers > 1 and jax.default_backend() != "cpu":
        raise UserError(f"--workers: {workers} processes would share an accelerator; leave it at 1")
    config, origin = config_and_origin(args)
    workdir, first, other = require_workdir(args), Arm(config, origin), None
    if args.null and (args.other or args.change):
        raise UserError("--null: tries the config of --config against itself; leave out --other and --change")
    if not (args.null or args.other or args.change):
        raise UserError("nothing to try: give --other or --change, or --null")
    if not args.null:
        other = other_config(args.other, origin["overrides"]) if args.other else first
        other = with_changes(other, args.change)
    rules = {"metric": args.metric or "", "failed": args.failed, "rates": args.rates, "match": args.match}
    budget = Budget(args.seeds, args.minutes, args.whole, workers)
    if args.scales:
        verdicts = try_sizes(first, other, workdir, budget, status.say, **rules)
    else:
        verdicts = {"": run_trial(make_plan(first, other, workdir, **rules), workdir, budget, status.say)}
    for name, verdict in verdicts.items():
        print("\n".join([*([f"{name}:"] if name else []), *verdict.lines()]))
    print(workdir / PAGE, file=sys.stderr)

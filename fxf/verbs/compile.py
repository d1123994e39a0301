"""Compiles a config's programs for a GPU or TPU, which need not be present, and prints their cost.

fxf compile --config=characters:gpt2 --topology=h100:1 --vocab_size=50257
fxf compile --config=reversal --topology=v5e:2x4 --program=training --json
fxf compile --config=characters:gpt2 --topology=h100:8 --search

It compiles the training step and the program that generates, without allocating or training. For each it prints the
memory of a device, operations, memory traffic, collectives, and the time that its kernels take.
--config.train.batch_size is the batch of all devices together. --search compiles the training step for many meshes,
with the config's batch and larger ones, and with rematerialization if they do not fit otherwise. It prints the command
of the fastest. The packages jax-cuda13-plugin and jax-cuda13-pjrt, or libtpu, are needed. A program may take minutes.
"""

import json
from argparse import Namespace
from typing import Any

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.verbs.flags import Parser, add_config, config_and_origin, whole

PROGRAMS = ("training", "decoding")


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("topology", doc="kind and number of devices: h100:8, h200:64, v5e:2x4, v5p:4x4x4")
    parser.flag("program", doc=f"one of {', '.join(PROGRAMS)}; by default both")
    parser.flag("vocab_size", whole(1), doc="size of the model's vocabulary, in place of the data's")
    parser.flag("rows", whole(1), doc="prompts decoded at a time; by default a device's sequences in a training step")
    parser.switch("json", "print a line of JSON for each program")
    parser.switch("search", "search the fastest mesh, rematerialization and batch size of training")


def main(args: Namespace) -> None:
    if not args.topology:
        raise UserError("--topology: missing; for example --topology=h100:8 or --topology=v5e:2x4")
    names = [one_of(args.program, PROGRAMS, "--program")] if args.program else PROGRAMS
    if args.rows and args.program == "training":
        raise UserError("--rows: only the decoding program reads it")
    if args.search and (args.program or args.rows or args.json):
        raise UserError("--search: compiles the training step alone; leave out --program, --rows and --json")
    import jax

    jax.config.update("jax_platforms", "cpu")  # else the packages for a GPU or TPU would look for one
    from fxf.compile import roofline, search, topologies
    from fxf.reports.report import command
    from fxf.runs.experiment import Experiment, build
    from fxf.runs.flops import wasted

    config, origin = config_and_origin(args)
    topology = topologies.topology(args.topology)

    def built(config: dict[str, Any]) -> Experiment:
        experiment = build(config)
        return experiment.with_vocabulary(args.vocab_size) if args.vocab_size else experiment

    def measure(config: dict[str, Any]) -> dict[str, Any]:
        experiment = built(config)
        n_rows = len(experiment.task.largest_batch()["weights"])  # may be less than train.batch_size
        return {"sequences": n_rows, **next(roofline.reports(experiment, topology, ["training"]))}

    with topologies.target(topology):
        if not args.search:
            experiment = built(config)
            lines = wasted(experiment, experiment.layout())
            if lines and not args.json:
                print(*lines, sep="\n", flush=True)
            for figures in roofline.reports(experiment, topology, names, args.rows or 0):
                print(json.dumps(figures | {"wasted": lines}) if args.json else roofline.text(figures), flush=True)
            return
        trials = []
        for trial in search.search(config, len(topology.devices), measure):
            print(search.line(trial), flush=True)
            trials.append(trial)
    best = max(trials, key=lambda trial: trial.rate)
    if not best.rate:
        refused = all("refused" in trial.figures for trial in trials)
        too_large = f"nothing fits {topology.name}; try a smaller train.batch_size or more devices"
        raise UserError(f"--search: {'every mesh is refused; the lines above say why' if refused else too_large}")
    print(command({**origin, "overrides": origin["overrides"] | best.changes}))

"""Compiles a config's programs for a GPU or TPU that need not be here, and prints what they cost.

fxf compile --config=characters:gpt2 --topology=h100:1 --vocab_size=50257
fxf compile --config=reversal --topology=v5e:2x4 --program=training --json
fxf compile --config=characters:gpt2 --topology=h100:8 --search

It compiles the training step and the program that generates, and allocates and trains nothing. For each it prints the
bytes that a device holds, operations, traffic to memory, loops, collectives, the time that the hardware needs at best,
and what bounds it. --config.train.batch_size is the batch of all devices together. --search compiles the training step
for many meshes, with and without recomputation, for the config's batch and larger ones, and prints the command of the
fastest. `pip install 'fxf[compile]'` has what it needs. A program may take minutes to compile.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags

from fxf.errors import UserError
from fxf.runs import cli

PROGRAMS = ("training", "decoding")

CONFIG = cli.define_config()
TOPOLOGY = flags.DEFINE_string("topology", None, "hardware and its number: h100:8, h200:64, v5e:2x4, v5p:4x4x4")
PROGRAM = flags.DEFINE_string("program", "", f"one of {', '.join(PROGRAMS)}; by default both")
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", None, "tokens of the model, instead of those of the data", 1)
ROWS = flags.DEFINE_integer("rows", 0, "prompts decoded at a time; by default the sequences of a device's step", 0)
JSON = flags.DEFINE_boolean("json", False, "print a line of JSON for each program")
SEARCH = flags.DEFINE_boolean("search", False, "search for the fastest mesh, recomputation and batch size of training")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    if not TOPOLOGY.value:
        raise UserError("--topology: missing; for example --topology=h100:8 or --topology=v5e:2x4")
    for flag in (PROGRAM, ROWS, JSON) if SEARCH.value else ():
        if flag.value:
            raise UserError(f"--{flag.name}: --search prints lines about the training step; leave it at its default")
    if ROWS.value and PROGRAM.value == "training":
        raise UserError("--rows: only the program decoding reads it")
    import json

    import jax

    jax.config.update("jax_platforms", "cpu")  # the packages that compile for a GPU or TPU would look for one
    from fxf.config import one_of
    from fxf.machine import topologies
    from fxf.reports import roofline

    names = [one_of(PROGRAM.value, PROGRAMS, "--program")] if PROGRAM.value else list(PROGRAMS)
    config, origin = cli.config_and_origin(CONFIG)
    topology = topologies.topology(TOPOLOGY.value)
    with topologies.target(topology):
        if SEARCH.value:
            _search(config, origin, topology)
            return
        for figures in roofline.reports(_experiment(config), topology, names, ROWS.value):
            print(json.dumps(figures) if JSON.value else roofline.text(figures), flush=True)


def _experiment(config: dict[str, Any]) -> Any:
    from fxf.runs.experiment import build

    experiment = build(config)
    return experiment.with_vocabulary(VOCAB_SIZE.value) if VOCAB_SIZE.value else experiment


def _search(config: dict[str, Any], origin: dict[str, Any], topology: Any) -> None:
    """Prints a line for each trial as it is done, and the command of the fastest."""
    from fxf.reports import roofline, search

    def measure(changed: dict[str, Any]) -> roofline.Figures:
        (figures,) = roofline.reports(_experiment(changed), topology, ["training"])
        return figures

    trials: Sequence[search.Trial] = []
    for trial in search.search(config, len(topology.devices), measure):
        print(search.line(trial), flush=True)
        trials = [*trials, trial]
    best = max(trials, key=lambda trial: trial.rate)
    if not best.rate:
        raise UserError(f"--search: nothing fits {topology.name}; try a smaller train.batch_size or more devices")
    print(search.command(origin["config_file"], origin["overrides"], best))

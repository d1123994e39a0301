"""Compares the programs of the shipped configs before and after a code change.

    python -m experiments.benchmarks.programs --write=before.json   # before the change
    python -m experiments.benchmarks.programs --compare=before.json   # after it: exit code 1 if any differs

It lowers the training step, prefill and a decoding step of every config and argument under configs/ whose data are
present, and stores digests of their text. Names do not count: functions are numbered, and outputs have no names.
"""

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks import smoke
from fxf.base.errors import UserError
from fxf.base.files import digest
from fxf.runs.configs import read_config
from fxf.runs.experiment import Experiment, build
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.step import train_step

CAPACITY = 8


def lowered(function: Callable[..., Any], *shapes: Any) -> str:
    """Returns the digest of a program, without names."""
    numbers: dict[str, str] = {}
    text = re.sub(r'jax.result_info = "[^"]*"', "", jax.jit(function).lower(*shapes).as_text())
    text = re.sub(r"@[\w.$-]+", lambda name: numbers.setdefault(name[0], f"@{len(numbers)}"), text)
    return digest(text.encode())


def programs(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yields the name and the digest of each program."""
    layout = make_layout(ParallelConfig(data=1), jax.devices())
    model, state, batch = experiment.model, experiment.state_shapes(layout), experiment.task.largest_batch()
    step = functools.partial(train_step, experiment.trainer(layout))
    yield "step", lowered(step, state, batch, experiment.hyperparameters())
    if model.prefill is None or model.step is None:
        return
    capacity, tokens = min(CAPACITY, experiment.max_len), jax.ShapeDtypeStruct((len(batch["inputs"]),), jnp.int32)
    prompts = {name: x for name, x in batch.items() if name not in ("targets", "weights")} | {"lengths": tokens}
    prompts["inputs"] = jax.ShapeDtypeStruct((len(batch["inputs"]), capacity), jnp.int32)
    read = model.prefill

    def prefill(params: Any, prompts: Any) -> Any:
        return read(params, prompts, capacity)

    yield "prefill", lowered(prefill, state.params, prompts)
    yield "decoding step", lowered(model.step, state.params, jax.eval_shape(prefill, state.params, prompts), tokens)


def every_program() -> dict[str, str]:
    """Returns the digest of each config's programs by name; prints the configs whose data are missing."""
    found: dict[str, str] = {}
    for name in smoke.names():
        try:
            experiment = build(read_config(name).to_dict()).with_model(attention_implementation="xla")
            found |= {f"{name} {what}": value for what, value in programs(experiment)}
        except UserError as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--write", type=Path, help="the file to write digests to")
    given.add_argument("--compare", type=Path, help="a file of digests to compare with")
    paths, found = parser.parse_args(), every_program()
    if paths.write:
        paths.write.write_text(json.dumps(found, indent=1) + "\n")
    before = json.loads((paths.write or paths.compare).read_text())
    for name in sorted(before.keys() | found.keys()):
        if before.get(name) != found.get(name):
            print(f"{name}: {'new' if name not in before else 'gone' if name not in found else 'DIFFERS'}")
    print(f"{len(found)} programs")
    return int(found != before)


if __name__ == "__main__":
    sys.exit(main())

"""Comparison of the shipped configs' programs before and after a change of the code.

    python experiments/benchmarks/programs.py --write=before.json   # before the change
    python experiments/benchmarks/programs.py --compare=before.json   # after it: exit code 1 if any differs

It lowers the training step, prefill and a decoding step of every config and argument under configs/ whose data are
here, and keeps digests of their text. Names do not count: functions get numbers, and outputs have no names.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import functools
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from fxf.errors import UserError
from fxf.files import digest
from fxf.runs import cli
from fxf.runs.experiment import Experiment, build
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.step import train_step

CONFIGS = Path(__file__).parents[2] / "configs"
WRITE = flags.DEFINE_string("write", None, "the file to write digests to")
COMPARE = flags.DEFINE_string("compare", None, "a file of digests to compare with")
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
    model, state, batch = experiment.model, experiment.state_shapes(layout), experiment.batch_shapes()
    key = jax.eval_shape(lambda: jax.random.key(0))
    step = functools.partial(train_step, experiment.trainer(layout))
    yield "step", lowered(step, state, batch, experiment.hyperparameters(), key)
    if model.prefill is None or model.step is None:
        return
    n_rows = len(batch["inputs"])
    tokens = jax.ShapeDtypeStruct((n_rows,), jnp.int32)
    prompts = {name: x for name, x in batch.items() if name not in ("targets", "weights")} | {"lengths": tokens}
    capacity = min(CAPACITY, experiment.max_len)
    prompts["inputs"] = jax.ShapeDtypeStruct((n_rows, capacity), jnp.int32)
    read = model.prefill

    def prefill(params: Any, prompts: Any) -> Any:
        return read(params, prompts, capacity)

    yield "prefill", lowered(prefill, state.params, prompts)
    cache = jax.eval_shape(prefill, state.params, prompts)
    yield "decoding step", lowered(model.step, state.params, cache, tokens)


def every_program() -> Iterator[tuple[str, str]]:
    """Yields the name and the digest of each program of each config; prints the configs whose data are missing."""
    for path in sorted(CONFIGS.rglob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for argument in getattr(module, "ARGUMENTS", ("",)):
            name = ":".join([str(path.relative_to(CONFIGS)), *argument.split()])
            try:
                experiment = build(module.get_config(*argument.split()).to_dict())
                experiment = experiment.with_model(attention_implementation="xla")
                found = list(programs(experiment))
            except UserError as error:
                print(f"{name}: left out: {error}", file=sys.stderr)
                continue
            yield from ((f"{name} {what}", value) for what, value in found)


def main(_: list[str]) -> None:
    if (WRITE.value is None) == (COMPARE.value is None):
        raise UserError("expected --write=FILE or --compare=FILE")
    before = json.loads(Path(COMPARE.value).read_text()) if COMPARE.value else {}
    found = {}
    for name, value in every_program():
        found[name] = value
        if COMPARE.value:
            print(f"{name}: {'the same' if before.get(name) == value else 'DIFFERS' if name in before else 'new'}")
    if WRITE.value:
        Path(WRITE.value).write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} programs")
    elif gone := sorted(before.keys() - found.keys()):
        print("gone:", ", ".join(gone))
    if COMPARE.value and found != before:
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main)

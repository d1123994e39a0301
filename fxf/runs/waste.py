"""What a layout of devices multiplies, seen before anything is compiled."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from fxf.base import weights
from fxf.base.devices import TENSOR
from fxf.base.memory import gib
from fxf.models.model import Batch, Model
from fxf.runs.experiment import Experiment
from fxf.training.sharding import RULES, Layout, partition

LONG = 4096  # tokens of a row from which an array of all their pairs is worth a line


def wasted(experiment: Experiment, layout: Layout) -> list[str]:
    """Returns a line for each thing that the devices of a layout hold or compute several times, with the factor."""
    lines, task = list(whole_weights(experiment.model.spec, layout)), experiment.task
    if task.has("batch") or task.has("largest_batch"):  # a user's own iterator need not say its shapes
        batch = task.largest_batch()
        lines += [*_filled(experiment, layout, batch), *_pairs(experiment, batch)]
    return lines


def whole_weights(spec: weights.Spec, layout: Layout) -> Iterator[str]:
    """Yields a line for each mesh axis of several devices that cannot shard some weights that it may shard.

    Devices of `tensor` that hold a weight whole also compute its products, each of them all.
    """
    for mesh_axis, logical_axes in RULES.items():
        size = layout.mesh.shape[mesh_axis]
        held = [
            (f"{path} {' x '.join(map(str, weight.shape))}", 4 * copies * math.prod(weight.shape))
            for path, weight, copies in weights.without_repeats(spec)
            if set(weight.axes) & set(logical_axes) and mesh_axis not in partition(weight, layout.mesh)
        ]
        if held and size > 1:
            names, n_bytes = zip(*held, strict=True)
            work = f" and computes {size} times the work" if mesh_axis == TENSOR else ""
            whole = f"each of its devices holds all of that, {size} times {sum(n_bytes) / size / 2**20:,.1f} MiB{work}"
            yield f"parallel.{mesh_axis} {size} divides no axis of {', '.join(names)}: {whole}"


def _filled(experiment: Experiment, layout: Layout, batch: Batch) -> Iterator[str]:
    """Yields a line if the rows of batches that are fed are filled up much."""
    n_rows, parts = len(batch["weights"]), experiment.train.microbatches * layout.parts
    if experiment.task.has("batches") and (factor := -(-n_rows // parts) * parts / n_rows) > 1.1:
        yield f"batches of {n_rows} rows are filled up for {parts} parts: {factor:.2g} times the work"


def _pairs(experiment: Experiment, batch: Batch) -> Iterator[str]:
    """Yields a line if attention holds an array of all pairs of the tokens of long rows."""
    length = batch["weights"].shape[1]
    if length < LONG:
        return
    params = weights.shapes(experiment.model.spec, experiment.model.weights_dtype)
    program = jax.make_jaxpr(functools.partial(Model.apply, experiment.model))(params, batch).jaxpr
    used, _ = dce_jaxpr(program, [True] * len(program.outvars))
    found = max(_arrays(used, length), key=lambda aval: aval.size * aval.dtype.itemsize, default=None)
    if found is not None:
        shape, held = " x ".join(map(str, found.shape)), gib(found.size * found.dtype.itemsize)
        yield f"attention holds {shape} pairs of tokens, {held} over all devices: {length} times a row's tokens"


def _arrays(jaxpr: Any, length: int) -> Iterator[Any]:
    """Yields the abstract arrays [B, H, length, length] of a program."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            shape = getattr(variable.aval, "shape", ())
            if len(shape) >= 4 and shape[-2:] == (length, length):
                yield variable.aval
        for inner in jaxprs_in_params(equation.params):
            yield from _arrays(inner, length)

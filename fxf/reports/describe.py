"""The parameters, operations per token and memory of a step of an experiment, without training it."""

import math
from typing import Any

import jax
from jax.sharding import NamedSharding

from fxf import weights
from fxf.machine.on_gpu import in_order
from fxf.machine.status import stage
from fxf.reports.text_table import aligned
from fxf.runs.experiment import Experiment
from fxf.runs.flops import device_bytes, flops_per_token
from fxf.training.sharding import Layout, partition
from fxf.training.step import jit_step, make_step


def describe(experiment: Experiment) -> str:
    """Returns the parameter table and the estimates as text; allocates no array of the model.

    The training step is compiled to know its memory. On several devices the table also shows the mesh axis that shards
    each axis of a weight (- for none) and the bytes that a device holds of the weight. Memory is that of one device.
    """
    layout, spec = experiment.layout(), experiment.model.spec
    several = layout.mesh.size > 1
    unsharded = layout.unsharded(spec)
    table = [*aligned(_table(spec, layout)), *(["", *unsharded] if unsharded else [])]

    flops, names = flops_per_token(experiment), ("FLOPs a token, forward", "FLOPs a token, training")
    estimates = [(name, f"{n:,.0f}") for name, n in zip(names, flops[:2], strict=True)]
    estimates += [("not counted in them", name) for name in sorted(flops.uncounted)]
    per_device = f", on each of {layout.mesh.size} devices" if several else ""
    held = memory(experiment, compiled_step(experiment))
    estimates += [(name + per_device, f"{n_bytes / 2**20:,.1f} MiB") for name, n_bytes in held.items()]
    return "\n".join([*table, "", *aligned(estimates)])


def _table(spec: weights.Spec, layout: Layout) -> list[tuple[str, ...]]:
    """Returns the rows of the parameter table; the rates stand in it if they differ."""
    several = layout.mesh.size > 1
    rated = any(weight.rate != 1 for _, weight, _ in weights.without_repeats(spec))
    more = (*(("rate",) if rated else ()), *(("sharding", "bytes a device") if several else ()))
    rows: list[tuple[str, ...]] = [("weight", "shape", "axes", "count", *more)]
    for path, weight, copies in weights.without_repeats(spec):
        times = f"{copies} x " if copies > 1 else ""
        row = (path, times + _by(weight.shape), " ".join(weight.axes), f"{copies * math.prod(weight.shape):,}")
        rate = (f"{weight.rate:.4g}",) if rated else ()
        rows.append((*row, *rate, *(_on_a_device(weight, copies, layout) if several else ())))
    return [*rows, ("total", "", "", f"{weights.count(spec):,}", *("" for _ in more))]


def _on_a_device(weight: weights.Weight, copies: int, layout: Layout) -> tuple[str, str]:
    axes = partition(weight, layout.mesh)
    shape = NamedSharding(layout.mesh, axes).shard_shape(weight.shape)
    return " ".join(axis or "-" for axis in axes), f"{4 * copies * math.prod(shape):,}"


@stage("compiling a step")
def compiled_step(experiment: Experiment) -> Any:
    """Returns the compiled step of training on the largest batch."""
    layout, batch = experiment.layout(), experiment.batch_shapes()
    state = experiment.state_shapes(layout)
    rows = -(-len(batch["weights"]) // layout.parts) * layout.parts
    shapes = {name: (rows, *x.shape[1:]) for name, x in batch.items()}
    batch = {name: jax.ShapeDtypeStruct(shapes[name], x.dtype, sharding=layout.tokens) for name, x in batch.items()}
    trainer, hyperparameters = experiment.trainer(layout), experiment.hyperparameters()
    lowered = jit_step(make_step(trainer), trainer).lower(state, batch, hyperparameters)
    return lowered.compile(in_order(lowered))


def memory(experiment: Experiment, step: Any) -> dict[str, int]:
    """Returns a device's bytes by use; the compiler's plan of a step gives those of gradient, activations, batch."""
    state = experiment.state_shapes(experiment.layout())
    return {
        "params": device_bytes(state.params),
        "optimizer state": device_bytes(state.opt_state),
        "gradient, activations and batch": step.memory_analysis().temp_size_in_bytes,
    }


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

"""The parameters, operations per token, memory and time of a step of an experiment, without training it."""

import math
from typing import Any

import jax
from jax.sharding import NamedSharding

from fxf import weights
from fxf.machine import costs, hlo
from fxf.machine.memory import total
from fxf.machine.on_gpu import in_order
from fxf.machine.speed import predicted
from fxf.machine.status import stage
from fxf.reports.text_table import aligned
from fxf.runs import needs
from fxf.runs.experiment import Experiment
from fxf.runs.flops import flops_per_token
from fxf.runs.needs import device_bytes
from fxf.training.sharding import Layout, partition
from fxf.training.step import jit_step, make_step

MAX_AXIS = 2**24  # the longest axis of a weight to trace; a traced program has constants as long


def describe(experiment: Experiment) -> str:
    """Returns the parameter table and the estimates as text; allocates no array of the model, whatever its sizes.

    The training step is compiled to know its memory and its products, if the lower bound of its memory fits. If one
    device trains, products of the same shapes are then timed on this machine, and copying. On several devices the table
    also shows the mesh axis that shards each axis of a weight (- for none) and the bytes that a device holds of the
    weight. Memory is that of one device.
    """
    layout, spec = experiment.layout(), experiment.model.spec
    several = layout.mesh.size > 1
    unsharded = layout.unsharded(spec)
    table = [*aligned(_table(spec, layout)), *(["", *unsharded] if unsharded else [])]

    estimates: list[tuple[str, str]] = []
    too_long = [path for path, weight, _ in weights.without_repeats(spec) if max(weight.shape, default=1) > MAX_AXIS]
    if too_long:
        estimates.append(("FLOPs a token", f"not counted: {too_long[0]} has an axis longer than {MAX_AXIS:,}"))
    else:
        flops = flops_per_token(experiment)
        names = ("FLOPs a token, forward", "FLOPs a token, training")
        estimates += [(name, f"{n:,.0f}") for name, n in zip(names, flops[:2], strict=True)]
        estimates += [("not counted in them", name) for name in sorted(flops.uncounted)]
    per_device = f", on each of {layout.mesh.size} devices" if several else ""
    free = needs.free_for(layout)
    parts = needs.training(experiment, layout, free)
    if total(parts) <= free:
        plan = compiled_step(experiment)
        estimates += [(name + per_device, _mib(size)) for name, size in memory(experiment, plan).items()]
        if not several:
            estimates += [(name, f"{1e3 * seconds:,.3g} ms") for name, seconds in times(plan).items()]
        return "\n".join([*table, "", *aligned(estimates)])
    estimates += [(part.name + per_device, f"at least {_mib(part.n_bytes)}") for part in parts]
    note = f"The training step is not compiled: it needs at least {_mib(total(parts))} and {_mib(free)} are free here."
    return "\n".join([*table, "", *aligned(estimates), "", note])


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


@stage("measuring this machine")
def times(step: Any) -> dict[str, float]:
    """Returns the seconds that a compiled step of one device should take here, and those of its parts."""
    plan = step.memory_analysis()
    found = predicted(
        costs.cost(hlo.read(step.as_text()), n_devices=1), plan.argument_size_in_bytes + plan.temp_size_in_bytes
    )
    return {
        "time of a step here, predicted": found.seconds,
        "of that, products of matrices": found.products,
        "of that, other traffic to memory": found.traffic,
    }


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB"


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

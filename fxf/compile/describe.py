"""An experiment's parameters, operations per token and memory of a step, without training."""

import math

from fxf.base import weights
from fxf.base.status import stage
from fxf.compile.roofline import Program, training
from fxf.reports.tables import aligned
from fxf.runs.experiment import Experiment
from fxf.runs.flops import flops_per_token, shard_bytes, wasted
from fxf.training.sharding import Layout, partition


def describe(experiment: Experiment) -> str:
    """Returns the parameter table and the estimates as text. Allocates no array of the model.

    The training step is compiled to measure its memory, which is that of one device. With several devices the table
    also shows the mesh axis that shards each axis of a weight (- for none), and the bytes of the weight on a device.
    """
    layout, spec = experiment.layout(), experiment.model.spec
    table = aligned(_table(spec, layout))
    if lines := wasted(experiment, layout):
        table += ["", *lines]
    flops = flops_per_token(experiment)
    estimates = [("FLOPs a token, forward", f"{flops[0]:,.0f}"), ("FLOPs a token, training", f"{flops[1]:,.0f}")]
    estimates += [("not counted in them", name) for name in sorted(flops.uncounted)]
    where = f", on each of {layout.mesh.size} devices" if layout.mesh.size > 1 else ""
    held = memory(training(experiment))
    estimates += [(name + where, f"{n_bytes / 2**20:,.1f} MiB") for name, n_bytes in held.items()]
    return "\n".join([*table, "", *aligned(estimates)])


def _table(spec: weights.Spec, layout: Layout) -> list[list[str]]:
    """Returns the rows of the parameter table. It has learning rates only if they differ from 1."""
    rows = [["weight", "shape", "axes", "count", "rate", "sharding", "bytes a device"]]
    distinct = list(weights.without_repeats(spec))
    for path, weight, copies in distinct:
        axes = partition(weight, layout.mesh)
        shape = (f"{copies} of " if copies > 1 else "") + " x ".join(map(str, weight.shape))
        row = [path, shape, " ".join(weight.axes), f"{copies * math.prod(weight.shape):,}", f"{weight.rate:.4g}"]
        rows.append([*row, " ".join(axis or "-" for axis in axes), f"{copies * shard_bytes(weight, layout.mesh):,}"])
    rows.append(["total", "", "", f"{weights.count(spec):,}", "", "", ""])
    rated, several = any(weight.rate != 1 for _, weight, _ in distinct), layout.mesh.size > 1
    shown = [0, 1, 2, 3, *([4] if rated else []), *([5, 6] if several else [])]
    return [[row[i] for i in shown] for row in rows]


@stage("compiling a step")
def memory(program: Program) -> dict[str, int]:
    """Returns a device's bytes by use. The compiler's memory analysis gives those of temporaries."""
    plan = program.lowered.compile(program.options).memory_analysis()
    return {**program.held, program.temporary: plan.temp_size_in_bytes}

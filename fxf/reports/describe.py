"""What an experiment is made of, computed from shapes alone: parameters, operations a token, memory."""

import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import NamedSharding

from fxf import weights
from fxf.experiment import Experiment
from fxf.reports.text_table import aligned
from fxf.training.sharding import Layout, partition
from fxf.training.step import jit_step, loss_and_gradient, make_step


def describe(experiment: Experiment) -> str:
    """Returns the parameter table and the estimates as text. Compiles the training step, but allocates no array.

    On several devices the table also has the axis of the mesh that cuts each axis of a weight, - where none does, and
    the bytes of it that a device holds; memory is that of one device.
    """
    layout = experiment.layout()
    rows = [("weight", "shape", "axes", "count", *(("sharding", "bytes a device") if layout else ()))]
    for path, (weight, copies) in _without_repeats(experiment.model.spec).items():
        times = f"{copies} x " if copies > 1 else ""
        row = (path, times + _by(weight.shape), " ".join(weight.axes), f"{copies * math.prod(weight.shape):,}")
        rows.append((*row, *(_on_a_device(weight, copies, layout) if layout else ())))
    rows.append(("total", "", "", f"{weights.count(experiment.model.spec):,}", *(("", "") if layout else ())))
    forward, training = flops_per_token(experiment)
    estimates = [("FLOPs a token, forward", f"{forward:,.0f}"), ("FLOPs a token, training", f"{training:,.0f}")]
    per_device = f", on each of {layout.mesh.size} devices" if layout else ""
    estimates += [(name + per_device, f"{size / 2**20:,.1f} MiB") for name, size in memory(experiment).items()]
    return "\n".join([*aligned(rows), "", *aligned(estimates)])


def _without_repeats(spec: weights.Spec) -> dict[str, tuple[weights.Weight, int]]:
    """Returns each weight once, with the number of blocks that have it; their numbers are left out of its path."""
    found: dict[str, tuple[weights.Weight, int]] = {}
    for path, weight in weights.leaves(spec):
        shared = weights.without_numbers(path)
        found[shared] = (weight, found.get(shared, (weight, 0))[1] + 1)
    return found


def _on_a_device(weight: weights.Weight, copies: int, layout: Layout) -> tuple[str, str]:
    cuts = partition(weight, layout.mesh)
    shape = NamedSharding(layout.mesh, cuts).shard_shape(weight.shape)
    return " ".join(cut or "-" for cut in cuts), f"{4 * copies * math.prod(shape):,}"


def flops_per_token(experiment: Experiment) -> tuple[float, float]:
    """Returns the floating-point operations of matrix products a token: of a forward pass, and of a training step.

    A product of [m, k] and [k, n] counts 2mkn. Positions of padding count as tokens, since they are computed.
    """
    # Inside cuDNN's attention nothing can be counted.
    model, batch = experiment.with_model(attention_implementation="xla").model, experiment.batch_shapes()
    params, tokens = weights.shapes(model.spec), math.prod(batch["weights"].shape)
    forward = jax.make_jaxpr(lambda p, b: model.apply(p, b))(params, batch)
    training = jax.make_jaxpr(lambda p, b: loss_and_gradient(model, p, b))(params, batch)
    return matrix_flops(forward.jaxpr) / tokens, matrix_flops(training.jaxpr) / tokens


def matrix_flops(jaxpr: Any) -> int:
    """Returns the floating-point operations of the matrix products in a jaxpr, loops of known length unrolled."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += repeats * sum(matrix_flops(inner) for inner in _inner_jaxprs(equation.params))
    return total


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def memory(experiment: Experiment) -> dict[str, int]:
    """Returns a device's bytes by use, the last as the compiler plans it for one step on this kind of device."""
    layout, batch = experiment.layout(), experiment.batch_shapes()
    state = experiment.state_shapes(layout)
    if layout:
        rows = -(-len(batch["weights"]) // layout.parts) * layout.parts
        shapes = {name: (rows, *x.shape[1:]) for name, x in batch.items()}
        batch = {name: jax.ShapeDtypeStruct(shapes[name], x.dtype, sharding=layout.rows) for name, x in batch.items()}
    step = make_step(experiment.model, experiment.optimizer, experiment.train, experiment.seed, layout)
    plan: Any = jit_step(step, experiment.model, experiment.optimizer, layout).lower(state, batch).compile()
    return {
        "params": _bytes(state.params),
        "optimizer state": _bytes(state.opt_state),
        "gradient, activations and batch": plan.memory_analysis().temp_size_in_bytes,
    }


def _bytes(tree: Any) -> int:
    """Returns the bytes of a tree of shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    shapes = (leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves)
    return sum(math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves, strict=True))


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

"""What an experiment is made of, computed from shapes alone: parameters, operations a token, memory."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax

from fxf import weights
from fxf.experiment import Experiment
from fxf.text_table import aligned
from fxf.training.step import loss_and_gradient, train_step


def describe(experiment: Experiment) -> str:
    """Returns the parameter table and the estimates as text. Compiles the training step, but allocates no array."""
    rows = [("weight", "shape", "axes", "count")]
    for path, weight in weights.leaves(experiment.model.spec):
        rows.append((path, _by(weight.shape), " ".join(weight.axes), f"{math.prod(weight.shape):,}"))
    rows.append(("total", "", "", f"{weights.count(experiment.model.spec):,}"))
    forward, training = flops_per_token(experiment)
    estimates = [("FLOPs a token, forward", f"{forward:,.0f}"), ("FLOPs a token, training", f"{training:,.0f}")]
    estimates += [(name, f"{n_bytes / 2**20:,.1f} MiB") for name, n_bytes in memory(experiment).items()]
    return "\n".join([*aligned(rows), "", *aligned(estimates)])


def flops_per_token(experiment: Experiment) -> tuple[float, float]:
    """Returns the floating-point operations of matrix products a token: of a forward pass, and of a training step.

    A product of [m, k] and [k, n] counts 2mkn. Positions of padding count as tokens, since they are computed.
    """
    model, batch = experiment.model, experiment.batch_shapes()
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
    """Returns bytes by use, the last as the compiler plans it for one training step on this kind of device."""
    state, batch, rng = experiment.state_shapes(), experiment.batch_shapes(), jax.random.key(0)
    step = functools.partial(train_step, experiment.model, experiment.optimizer, experiment.train)
    plan: Any = jax.jit(step, donate_argnums=0).lower(state, batch, rng).compile().memory_analysis()
    return {
        "params": _bytes(state.params),
        "optimizer state": _bytes(state.opt_state),
        "gradient, activations and batch": plan.temp_size_in_bytes,
    }


def _bytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))

"""The floating-point operations of a model's matrix products, counted in its traced program, and the time they take."""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

from fxf import weights
from fxf.machine.hardware import hardware_of
from fxf.machine.memory import inner_jaxprs
from fxf.models.model import Batch
from fxf.runs import needs
from fxf.runs.experiment import Experiment
from fxf.training.gradient import loss_and_gradient
from fxf.training.sharding import Layout


def flops_per_token(experiment: Experiment) -> tuple[float, float]:
    """Returns the floating-point operations of matrix products per token: of a forward pass and of a training step.

    Padding counts as tokens, because it is computed too.
    """
    batch = experiment.batch_shapes()
    tokens = math.prod(batch["weights"].shape)
    return _forward(experiment, batch) / tokens, _flops(experiment, batch, loss_and_gradient) / tokens


def model_flops(experiment: Experiment, batch: Batch) -> float:
    """Returns the operations of a training step that the model needs on a batch of these shapes.

    A gradient takes twice the operations of the forward pass. What a program repeats to save memory counts once.
    """
    return 3 * _forward(experiment, batch)


def seconds_at_peak(
    experiment: Experiment, layout: Layout, compiling: Callable[[], AbstractContextManager]
) -> Callable[[Batch], float] | None:
    """Returns `seconds(batch)`, the time of a training step in which every device reaches its peak.

    Its share of the time that the step took is the model FLOPs utilization (Chowdhery et al. 2022, appendix B).

    Args:
      compiling: returns a context that is entered while the model is traced, once for each shape of batch.

    Returns:
      None if the peak of the devices is not known.
    """
    hardware = hardware_of(layout.mesh.devices.flat[0])
    if hardware is None:
        return None
    peak = layout.mesh.size * hardware.flops

    @functools.cache
    def of_shapes(*shapes: tuple[str, tuple[int, ...], Any]) -> float:
        with compiling():
            batch: Any = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
            return model_flops(experiment, batch) / peak

    return lambda batch: of_shapes(*((name, x.shape, x.dtype) for name, x in batch.items()))


def _forward(experiment: Experiment, batch: Batch) -> float:
    return _flops(experiment, batch, lambda model, params, batch: model.apply(params, batch))


def _flops(experiment: Experiment, batch: Batch, function: Callable[..., Any]) -> float:
    """Returns the operations of the products in `function(model, params, batch)`."""

    def count(some: Experiment) -> dict[str, int]:
        # Other implementations of attention hide its operations.
        model = some.with_model(attention_implementation="xla").model
        params = weights.shapes(model.spec, model.weights_dtype)
        jaxpr = jax.make_jaxpr(functools.partial(function, model))(params, batch)
        return {"flops": matrix_flops(jaxpr.jaxpr)}

    return needs.by_layers(experiment, count)["flops"]


def matrix_flops(jaxpr: Any) -> int:
    """Returns the floating-point operations of the matrix products in a jaxpr, with scans counted once per step.

    A product of [m, k] and [k, n] counts 2mkn.
    """
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += repeats * sum(matrix_flops(inner) for inner in inner_jaxprs(equation.params))
    return total

"""The operations of a model, counted in its traced program, their time, and the work that a layout repeats."""

import functools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from fxf.base import weights
from fxf.base.devices import EXPERT, TENSOR, target_devices
from fxf.base.hardware import hardware_of
from fxf.base.on_gpu import on_gpu
from fxf.base.operations import Operations, operations
from fxf.base.random_keys import random_key
from fxf.base.weights import VOCABULARY, Params, Weight
from fxf.models.model import Batch, Model
from fxf.runs.experiment import Experiment
from fxf.training.fine_tuning import has_frozen, without_frozen_gradient
from fxf.training.gradient import objective_and_gradient
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import RULES, Layout, make_layout, partition
from fxf.training.state import TrainState
from fxf.training.step import TrainConfig, Trainer, train_step

log = logging.getLogger(__name__)

LEAST = 2**20  # bytes of weights that are worth a line


class PerToken(NamedTuple):
    """Operations per token of a forward pass and of a training step, and names of what is not counted."""

    forward: float
    training: float
    uncounted: frozenset[str]


def flops_per_token(experiment: Experiment) -> PerToken:
    """Returns the floating-point operations per token.

    Padding counts as tokens, because it is computed too. Training includes what a model computes only there, such as
    further heads, and the optimizer's operations, such as gradients at other params.
    """
    batch = experiment.task.largest_batch()
    tokens = math.prod(batch["weights"].shape)
    functions = Model.apply, functools.partial(_step, experiment)
    forward, training = (_operations(experiment, batch, function) for function in functions)
    return PerToken(forward.flops / tokens, training.flops / tokens, forward.uncounted | training.uncounted)


def model_flops(experiment: Experiment, batch: Batch) -> Operations:
    """Returns the operations of a training step that the model needs on a batch of these shapes.

    A gradient takes twice the operations of the forward pass in training, or fewer where weights are frozen. What a
    program recomputes to save memory counts once.
    """
    forward, gradient = (functools.partial(f, rng=random_key(0)) for f in (Model.apply, objective_and_gradient))
    if has_frozen(experiment.model.spec, experiment.optimizer_config.frozen):
        return _operations(experiment.with_model(remat="none", scan_blocks=False), batch, gradient)
    return _operations(experiment, batch, forward).times(3)


def seconds_at_peak(
    experiment: Experiment, layout: Layout, compiling: Callable[[], AbstractContextManager]
) -> Callable[[Batch], float] | None:
    """Returns `seconds(batch)`, the time of a training step in which every device reaches its peak.

    Its share of the time that the step took is the model FLOPs utilization (Chowdhery et al. 2022, appendix B).

    Args:
      compiling: returns a context for tracing the model, once for each shape of batch.

    Returns:
      None if the peak of the devices is not known.
    """
    if (hardware := hardware_of(layout.mesh.devices.flat[0])) is None:
        return None
    uncounted: set[str] = set()

    @functools.cache
    def of_shapes(*shapes: tuple[str, tuple[int, ...], Any]) -> float:
        with compiling():
            batch: Any = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
            found = model_flops(experiment, batch)
        if not found.uncounted <= uncounted:
            log.warning("warning: mfu is too low: it does not count %s", ", ".join(sorted(found.uncounted)))
            uncounted.update(found.uncounted)
        return found.flops / (layout.mesh.size * hardware.flops)

    return lambda batch: of_shapes(*((name, x.shape, x.dtype) for name, x in batch.items()))


def device_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    shapes = (leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves)
    return sum(math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves, strict=True))


def shard_bytes(weight: Weight, mesh: Any) -> int:
    """Returns the bytes of a weight in float32 that one device of a mesh holds."""
    return 4 * math.prod(weight.shape) // math.prod(mesh.shape[axis] for axis in partition(weight, mesh) if axis)


def _step(experiment: Experiment, model: Model, params: Params, batch: Batch) -> Any:
    """Takes a step on one device, with products in the model's type."""
    layout, optimizer = make_layout(ParallelConfig(data=1), target_devices()[:1]), experiment.optimizer
    state = TrainState(jnp.int32(0), params, optimizer.init(params))
    return train_step(Trainer(model, optimizer, TrainConfig(), layout), state, batch, experiment.hyperparameters())


def _operations(experiment: Experiment, batch: Batch, function: Callable[..., Any]) -> Operations:
    """Returns the operations of `function(model, params, batch)`, without those that its results do not need."""
    model = experiment.with_model(attention_implementation="xla").model  # kernels hide the operations of attention
    model = without_frozen_gradient(model, experiment.optimizer_config.frozen)
    params = weights.shapes(model.spec, model.weights_dtype)
    traced = jax.make_jaxpr(functools.partial(function, model))(params, batch).jaxpr
    # Where a product has a custom derivative, gradients of frozen weights are traced too.
    return operations(dce_jaxpr(traced, [True] * len(traced.outvars))[0])


def wasted(experiment: Experiment, layout: Layout) -> list[str]:
    """Returns a line, with the factor, for whatever the devices of a layout hold or compute several times."""
    lines, task = list(whole_weights(experiment.model.spec, layout)), experiment.task
    n_rows, parts = len(task.largest_batch()["weights"]), experiment.train.microbatches * layout.parts
    if task.has("batches") and (factor := -(-n_rows // parts) * parts / n_rows) > 1.1:
        lines.append(f"batches of {n_rows} rows are padded for {parts} parts: {factor:.2g} times the work")
    mixed = any(EXPERT in weight.axes for _, weight in weights.leaves(experiment.model.spec))
    if mixed and on_gpu() and (n := layout.mesh.shape[EXPERT]) > 1:
        capacity = f"gives the experts of each device a capacity for the rows of {n}"
        lines.append(f"parallel.expert {n} {capacity}: {n} times their work")
    return lines


def whole_weights(spec: weights.Spec, layout: Layout) -> Iterator[str]:
    """Yields a line for each mesh axis whose size divides no axis of some weights that it may shard.

    If the devices of `tensor` hold a weight whole, each computes all of its products, except with a vocabulary, which a
    step pads so that each computes a part. Small weights that repeat no work have no line.
    """
    for mesh_axis, logical_axes in RULES.items():
        size = layout.mesh.shape[mesh_axis]
        found = [
            (path, weight, copies)
            for path, weight, copies in weights.without_repeats(spec)
            if size > 1 and set(weight.axes) & set(logical_axes) and mesh_axis not in partition(weight, layout.mesh)
        ]
        computed = [each for each in found if mesh_axis == TENSOR and VOCABULARY not in each[1].axes]
        held = [each for each in found if each not in computed]
        for group, work in ((computed, f" and computes {size} times the work"), (held, "")):
            n_bytes = sum(copies * shard_bytes(weight, layout.mesh) for _, weight, copies in group)
            if n_bytes >= LEAST or (group and work):
                names = ", ".join(f"{path} {' x '.join(map(str, weight.shape))}" for path, weight, _ in group)
                whole = f"each of its devices holds {size} times {n_bytes / size / 2**20:,.1f} MiB{work}"
                yield f"parallel.{mesh_axis} {size} shards no axis of {names}: {whole}"

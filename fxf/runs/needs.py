"""What a run must hold in memory at once, as a lower bound; only what no compiler can do without counts."""

import math
from collections.abc import Callable
from typing import Any

import jax

from fxf import weights
from fxf.machine import memory
from fxf.machine.memory import Part
from fxf.runs.experiment import Experiment
from fxf.training.sharding import TENSOR, Layout
from fxf.training.step import batch_loss

# The keys that set the size of an axis of a weight; those that the config has count.
AXIS_KEYS = {
    "embed": ("model.d_model", "task.dim"),
    "heads": ("model.d_model",),
    "head_dim": ("model.d_model",),
    "mlp": ("model.d_ff", "model.expand"),
    "vocabulary": ("data.vocab_size", "task.n_tokens", "task.base"),
    "position": ("model.max_len", "model.position_range"),
    "segment": ("model.segments",),
    weights.LAYERS: ("model.n_layers",),
    weights.COPIES: ("model.copies",),
}
BATCH_KEYS = ("train.batch_size", "train.microbatches", "data.batch_tokens")
LENGTH_KEYS = ("task.max_length", "task.length", "task.positions", "data.max_length")
PROGRAM_BYTES = 2**20  # of the host, to compile a block; a small one has been seen to take ten times as many


def require_training(experiment: Experiment, layout: Layout) -> None:
    """Raises a UserError if a run cannot fit in the memory there is; it names the largest parts and their keys."""
    free = free_for(layout)
    parts = training(experiment, layout, free)
    memory.require("training", parts, free)
    memory.require("scoring", [parts[0], *scoring(experiment)], min(free, memory.free_on_the_host()))


def require_state(experiment: Experiment, layout: Layout) -> None:
    """Raises a UserError if a checkpoint of a run cannot fit in the memory there is."""
    memory.require("a checkpoint", state(experiment, layout), free_for(layout))


def free_for(layout: Layout) -> int:
    """Returns the bytes that a device of the layout can hold."""
    return memory.free_on_a_device(layout.mesh.size)


def training(experiment: Experiment, layout: Layout, free: int) -> list[Part]:
    """Returns what a device must hold at once in a training step.

    The model is traced only if the rest fits in `free` bytes, for tracing may take memory like that of its weights.
    """
    held = state(experiment, layout)
    parts = [*held, *_gradient(experiment, held[0]), *_program(experiment)]
    # A batch made on the device need not be written down, if it is not cut into parts.
    if experiment.task.batches is not None or experiment.train.microbatches > 1:
        shapes = experiment.batch_shapes()
        n_bytes = sum(math.prod(x.shape) * x.dtype.itemsize for x in shapes.values()) // layout.parts
        parts.append(Part("batch", n_bytes, _present(experiment, (*BATCH_KEYS, *LENGTH_KEYS))))
    return parts if memory.total(parts) > free else [*parts, *_activations(experiment, layout)]


def scoring(experiment: Experiment) -> list[Part]:
    """Returns what scoring must hold at once beside the params, so far as that is known before there are prompts."""
    logits = 4 * experiment.decode.beam_width * experiment.task.vocab_size
    return [
        Part("sample to score", experiment.task.sample_bytes, _present(experiment, ("task.examples", *LENGTH_KEYS))),
        Part("logits of the beam", logits, ("decode.beam_width",)),
    ]


def state(experiment: Experiment, layout: Layout) -> list[Part]:
    """Returns the params, and the optimizer's state; of many blocks two are built at most."""

    def measure(some: Experiment) -> dict[str, int]:
        shapes = some.state_shapes(layout)
        return {"params": device_bytes(shapes.params), "optimizer state": device_bytes(shapes.opt_state)}

    keys = _weight_keys(experiment)
    return [Part(name, n_bytes, keys) for name, n_bytes in by_layers(experiment, measure).items()]


def by_layers(experiment: Experiment, measure: Callable[[Experiment], dict[str, int]]) -> dict[str, int]:
    """Returns what `measure` finds of the experiment, if every block after the first adds the same to each figure."""
    n_layers = experiment.config["model"].get("n_layers", 1)
    if n_layers <= 2:
        return measure(experiment)
    one, two = (measure(experiment.with_model(n_layers=n)) for n in (1, 2))
    return {name: one[name] + (n_layers - 1) * (two[name] - one[name]) for name in one}


def device_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    shapes = (leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves)
    return sum(math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves, strict=True))


def _gradient(experiment: Experiment, params: Part) -> list[Part]:
    """Returns the gradient, whole where something is done with all of it; else each weight's may go before the next."""
    config = experiment.config
    whole = config["optimizer"]["clip_norm"] or config["train"]["microbatches"] > 1 or config["train"]["skip_nonfinite"]
    return [params._replace(name="gradient")] if whole else []


def _program(experiment: Experiment) -> list[Part]:
    """Returns what it takes to compile the blocks, one by one, on a CPU, whose memory is the host's."""
    config = experiment.config["model"]
    if jax.default_backend() != "cpu" or config.get("scan_blocks", True):
        return []
    return [Part("compiled program", PROGRAM_BYTES * config["n_layers"], ("model.n_layers", "model.scan_blocks"))]


def _activations(experiment: Experiment, layout: Layout) -> list[Part]:
    """Returns what enters each block, which its gradient needs, and the largest array that a product writes."""
    cut, tensor = layout.parts * experiment.train.microbatches, layout.mesh.shape[TENSOR]
    shapes = {
        name: jax.ShapeDtypeStruct((-(-len(x) // cut), *x.shape[1:]), x.dtype)
        for name, x in experiment.batch_shapes().items()
    }
    model = experiment.with_model(n_layers=1).model
    params = weights.shapes(model.spec)
    features = jax.eval_shape(model.features, params, shapes)
    # On an accelerator XLA can compute again what it has no room for.
    n_kept = experiment.config["model"].get("n_layers", 1) if jax.default_backend() == "cpu" else 1
    product = memory.largest_product(jax.make_jaxpr(lambda p, b: batch_loss(model, p, b))(params, shapes).jaxpr)
    keys = _present(experiment, (*BATCH_KEYS, *LENGTH_KEYS))
    width = _present(experiment, ("model.d_model",))
    return [
        Part("input of every block", n_kept * features.size * features.dtype.itemsize, (*keys, *width)),
        Part("largest matrix product", product // tensor, keys),
    ]


def _weight_keys(experiment: Experiment) -> tuple[str, ...]:
    """Returns the keys that set the sizes of the largest weight, the key of its longest axis first."""
    found = list(weights.without_repeats(experiment.model.spec))
    _, weight, copies = max(found, key=lambda each: each[2] * math.prod(each[1].shape))
    axes = sorted(zip(weight.shape, weight.axes, strict=True), reverse=True)
    sizes = sorted([*axes, (copies, weights.LAYERS)], key=lambda axis: -axis[0])
    return _present(experiment, tuple(key for size, axis in sizes if size > 1 for key in AXIS_KEYS.get(axis, ())))


def _present(experiment: Experiment, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of the keys that the config has, and that are not off."""
    found = (key.split(".") for key in dict.fromkeys(keys))
    return tuple(f"{section}.{name}" for section, name in found if experiment.config.get(section, {}).get(name))

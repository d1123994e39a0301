"""A lower bound on the memory that a run needs at once: it counts only what every compiled program must hold."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import jax

from fxf import weights
from fxf.machine import memory
from fxf.machine.memory import Part
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.runs import contract, misuse
from fxf.runs.experiment import Experiment
from fxf.training.gradient import batch_loss, parts_in_cache
from fxf.training.sharding import SEQUENCE, TENSOR, Layout

# The keys that set the size of an axis of a weight. A config has some of them.
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
PROGRAM_BYTES = 2**20  # the host's memory to compile one block; even a small block took ten times as much


def require_training(experiment: Experiment, layout: Layout) -> None:
    """Raises a UserError if a run cannot fit in memory; it names the largest parts and their keys."""
    free = free_for(layout)
    parts = training(experiment, layout, free)
    memory.require("training", parts, free)
    memory.require("scoring", [parts[0], *scoring(experiment)], min(free, memory.free_on_the_host()))


def require_state(experiment: Experiment, layout: Layout) -> None:
    """Raises a UserError if a checkpoint of a run cannot fit in memory."""
    memory.require("a checkpoint", state(experiment, layout), free_for(layout))


def free_for(layout: Layout) -> int:
    """Returns the bytes that a device of the layout can hold."""
    return memory.free_on_a_device(layout.mesh.size)


def training(experiment: Experiment, layout: Layout, free: int) -> list[Part]:
    """Returns the parts that a device must hold at once in a training step.

    The model is traced only if the other parts fit in `free` bytes, because tracing may take as much memory as weights.
    """
    held = state(experiment, layout)
    parts = [*held, *_gradient(experiment, held[0]), *_program(experiment)]
    if memory.total(parts) > free:
        return parts
    shapes, one_block = experiment.batch_shapes(), _one_block(experiment)
    microbatches = experiment.train.microbatches
    microbatches *= parts_in_cache(one_block, shapes["weights"].shape, microbatches, layout)
    # XLA may fuse a batch made on the device into its readers, unless it is cut into microbatches.
    if experiment.task.batches is not None or microbatches > 1:
        cut = layout.parts * layout.mesh.shape[SEQUENCE]
        n_bytes = sum(math.prod(x.shape) * x.dtype.itemsize for x in shapes.values()) // cut
        parts.append(Part("batch", n_bytes, _present(experiment, (*BATCH_KEYS, *LENGTH_KEYS))))
    return parts if memory.total(parts) > free else [*parts, *_activations(experiment, layout, microbatches)]


def scoring(experiment: Experiment) -> list[Part]:
    """Returns the parts that scoring must hold beside the params, as far as they are known without prompts."""
    logits = 4 * experiment.decode.beam_width * experiment.task.vocab_size
    return [
        Part("sample to score", experiment.task.sample_bytes, _present(experiment, ("task.examples", *LENGTH_KEYS))),
        Part("logits of the beam", logits, ("decode.beam_width",)),
    ]


def state(experiment: Experiment, layout: Layout) -> list[Part]:
    """Returns the params and the optimizer's state as parts; builds at most two blocks."""

    def measure(some: Experiment) -> dict[str, int]:
        shapes = some.state_shapes(layout)
        return {"params": device_bytes(shapes.params), "optimizer state": device_bytes(shapes.opt_state)}

    keys = _weight_keys(experiment)
    return [Part(name, n_bytes, keys) for name, n_bytes in by_layers(experiment, measure).items()]


def by_layers(experiment: Experiment, measure: Callable[[Experiment], dict[str, int]]) -> dict[str, int]:
    """Returns the figures that `measure` finds, where every block after the first adds the same to each figure.

    It measures at most two blocks; or all, if some are frozen, or if a user's model may have unlike ones.
    """
    n_layers, frozen = experiment.config["model"].get("n_layers", 1), experiment.config["optimizer"]["frozen"]
    if n_layers <= 2 or frozen or not _are_alike(experiment):  # frozen blocks have no state
        return measure(experiment)
    one, two = (measure(experiment.with_model(n_layers=n)) for n in (1, 2))
    return {name: one[name] + (n_layers - 1) * (two[name] - one[name]) for name in one}


def _are_alike(experiment: Experiment) -> bool:
    """Returns whether the blocks of the model differ in no more than their weights, as those of fxf's models do."""
    return not contract.is_of_users(MODELS[experiment.config["model"]["name"]].make)


def _one_block(experiment: Experiment) -> Model:
    return experiment.with_model(n_layers=1).model if _are_alike(experiment) else experiment.model


def device_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    shapes = (leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape for leaf in leaves)
    return sum(math.prod(shape) * leaf.dtype.itemsize for shape, leaf in zip(shapes, leaves, strict=True))


def _gradient(experiment: Experiment, params: Part) -> list[Part]:
    """Returns the gradient as a part if all of it must exist at once; else each weight's part may be freed at once."""
    config = experiment.config
    whole = config["optimizer"]["clip_norm"] or config["train"]["microbatches"] > 1 or config["train"]["skip_nonfinite"]
    return [params._replace(name="gradient")] if whole else []


def _program(experiment: Experiment) -> list[Part]:
    """Returns the memory to compile unrolled blocks on a CPU, whose memory is the host's."""
    config = experiment.config["model"]
    if jax.default_backend() != "cpu" or config.get("scan_blocks", True):
        return []
    return [Part("compiled program", PROGRAM_BYTES * config["n_layers"], ("model.n_layers", "model.scan_blocks"))]


def _activations(experiment: Experiment, layout: Layout, microbatches: int) -> list[Part]:
    """Returns the inputs of the blocks, which the gradient needs, and the largest array that a product writes."""
    cut, sequence = layout.parts * microbatches, layout.mesh.shape[SEQUENCE]
    shapes = {
        name: jax.ShapeDtypeStruct((-(-len(x) // cut), *x.shape[1:]), x.dtype)
        for name, x in experiment.batch_shapes().items()
    }
    model = _one_block(experiment)
    params = weights.shapes(model.spec, model.weights_dtype)
    of_users = contract.is_of_users(experiment.task)
    where = f"task '{experiment.config['task']['name']}': batch"
    with misuse.reading(where, shapes) if of_users else contextlib.nullcontext():
        blocks, features = jax.make_jaxpr(model.features, return_shape=True)(params, shapes)
        after = jax.make_jaxpr(
            lambda params, x, batch: batch_loss(model._replace(features=lambda *_, rng: x), params, batch)
        )(params, features, shapes)
    # On an accelerator XLA may recompute inputs that do not fit.
    n_kept = experiment.config["model"].get("n_layers", 1) if jax.default_backend() == "cpu" else 1
    product = max(memory.largest_product(traced.jaxpr) for traced in (blocks, after))
    keys = _present(experiment, (*BATCH_KEYS, *LENGTH_KEYS))
    width = _present(experiment, ("model.d_model",))
    return [
        Part("input of every block", n_kept * features.size * features.dtype.itemsize // sequence, (*keys, *width)),
        Part("largest matrix product", product // (sequence * layout.mesh.shape[TENSOR]), keys),
    ]


def _weight_keys(experiment: Experiment) -> tuple[str, ...]:
    """Returns the keys that set the shape of the largest weight, that of its longest axis first."""
    found = list(weights.without_repeats(experiment.model.spec))
    _, weight, copies = max(found, key=lambda each: each[2] * math.prod(each[1].shape))
    axes = sorted(zip(weight.shape, weight.axes, strict=True), reverse=True)
    sizes = sorted([*axes, (copies, weights.LAYERS)], key=lambda axis: -axis[0])
    return _present(experiment, tuple(key for size, axis in sizes if size > 1 for key in AXIS_KEYS.get(axis, ())))


def _present(experiment: Experiment, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the keys that the config has and that are not 0 or empty."""
    found = (key.split(".") for key in dict.fromkeys(keys))
    return tuple(f"{section}.{name}" for section, name in found if experiment.config.get(section, {}).get(name))

"""Sharding: a mesh of devices, and the rules by which it cuts weights and batches.

The mesh has three axes. `data` and `fsdp` cut a batch's rows. `fsdp` and `tensor` cut weights, their gradient and the
optimizer's state. `fsdp` gathers a weight before its use; `tensor` cuts the computation too.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import DictKey

from fxf.config import key
from fxf.errors import UserError
from fxf.models.model import Model
from fxf.weights import VOCABULARY, Params, Spec, Weight, leaves, map_weights, without_repeats


@dataclasses.dataclass(frozen=True)
class ParallelConfig:
    """The `parallel` section: how training uses the devices. Only dropout's draws depend on it."""

    kind: Literal["jit", "pmap"] = key(
        "jit", "jit: one program over a mesh of devices; pmap: the step mapped over devices that each hold all weights"
    )
    data: int = key(0, "parts of a batch's rows, each with all weights; 0: as many as the devices allow", minimum=0)
    fsdp: int = key(1, "parts of a batch's rows, and of weights and optimizer state", minimum=1)
    tensor: int = key(1, "parts of heads, hidden units and vocabulary, and of their weights", minimum=1)
    processes: int = key(
        1, "number of processes that train together; 0: those that SLURM, Open MPI or a TPU pod started", minimum=0
    )
    coordinator: str = key("", "host:port of the first process, if processes is above 1")
    process: int = key(0, "index of this process, if processes is above 1", minimum=0)

    def __post_init__(self) -> None:
        if self.processes > 1 and not re.fullmatch(r".+:\d+", self.coordinator):
            raise UserError(f"parallel.coordinator: expected host:port of the first process, got {self.coordinator!r}")
        if self.processes <= 1 and (self.coordinator or self.process):
            raise UserError(
                "parallel.coordinator, parallel.process: only read if parallel.processes is above 1; "
                "a launcher's processes find each other"
            )
        if self.process >= max(self.processes, 1):
            raise UserError(
                f"parallel.process: expected less than parallel.processes {self.processes}, got {self.process}"
            )
        if self.kind == "pmap" and self.processes != 1:
            raise UserError("parallel.kind: 'pmap' uses the devices of one process; 'jit' can use several processes")
        if self.kind == "pmap" and self.fsdp * self.tensor > 1:
            raise UserError("parallel.kind: 'pmap' cuts no weights; leave parallel.fsdp and parallel.tensor at 1")


DATA, FSDP, TENSOR = "data", "fsdp", "tensor"

# Each mesh axis cuts the first of these axes of a weight that is not cut yet and whose length it divides.
RULES = {
    TENSOR: ("heads", "mlp", "vocabulary"),
    FSDP: ("embed", "mlp", "vocabulary", "heads", "head_dim", "position"),
}


class Layout(NamedTuple):
    """The devices of a run, one or more, and how they hold its arrays.

    Attributes:
      pmap: whether the step runs under `jax.pmap`, with the whole state on each device.
    """

    mesh: Mesh
    pmap: bool = False

    @property
    def parts(self) -> int:
        """The number of parts that a batch's rows are cut into."""
        return self.mesh.shape[DATA] * self.mesh.shape[FSDP]

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that every device holds whole."""
        return NamedSharding(self.mesh, P())

    @property
    def rows(self) -> NamedSharding:
        """The sharding of an array that is cut along its first axis, the rows of a batch."""
        return NamedSharding(self.mesh, P((DATA, FSDP)))

    def shard_rows(self, batch: Any) -> Any:
        """Constrains, inside a compiled function, arrays to be cut along their rows if the devices divide these."""
        return jax.tree.map(
            lambda x: x if len(x) % self.parts else jax.lax.with_sharding_constraint(x, self.rows), batch
        )

    @property
    def on_cpu(self) -> bool:
        """Whether the devices are CPUs."""
        return self.mesh.devices.flat[0].platform == "cpu"

    @property
    def pads(self) -> bool:
        """Whether the vocabulary may be padded inside a step: not where a CPU has each logit whole."""
        return self.padded_vocabulary(1) > 1

    def padded_vocabulary(self, size: int) -> int:
        """Returns the size filled up to what `tensor` divides, and on accelerators to multiples of 128 for each part.

        Their matrix units work on blocks of 128.
        """
        multiple = self.mesh.shape[TENSOR] * (1 if self.on_cpu else 128)
        return -(-size // multiple) * multiple

    def gather(self, model: Model, params: Params, *, pad: bool = False) -> tuple[Params, Params]:
        """Returns, inside a compiled function, the params for `features` and for `readout`; they are the same.

        Weights outside blocks are whole there: `fsdp` does not cut them any more, and `tensor` still does. A weight
        with an axis of the vocabulary is gathered in the type of the computation. Both gradients of a weight are summed
        over the devices in float32, each device gets its part, and then the two are summed. The weights of blocks are
        gathered by the compiler, where they are used.

        Args:
          pad: whether to fill the axes of the vocabulary with zeros up to `padded_vocabulary`.
        """
        if self.mesh.size == 1 and not (pad and self.pads):
            return params, params

        def read(path: str, weight: Weight) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
            shape = tuple(
                self.padded_vocabulary(n) if pad and axis == VOCABULARY else n
                for n, axis in zip(weight.shape, weight.axes, strict=True)
            )
            cut = NamedSharding(self.mesh, partition(dataclasses.replace(weight, shape=shape), self.mesh))
            if any(part.isdigit() for part in path.split("/")):
                return lambda x: (jax.lax.with_sharding_constraint(x, cut),) * 2
            whole = NamedSharding(self.mesh, P(*(None if axis == FSDP else axis for axis in cut.spec)))
            dtype = model.dtype if VOCABULARY in weight.axes and whole != cut else jnp.float32
            return functools.partial(_read_whole, cut, whole, shape, jnp.dtype(dtype))

        stored, tree = jax.tree.flatten(params)
        readers = jax.tree.leaves(map_weights(read, model.spec))
        pairs = [reader(x) for reader, x in zip(readers, stored, strict=True)]
        of_features, of_readout = zip(*pairs, strict=True)
        return jax.tree.unflatten(tree, of_features), jax.tree.unflatten(tree, of_readout)

    def weights(self, spec: Spec) -> Any:
        """Returns the tree of the weights' shardings."""
        return map_weights(lambda _, weight: NamedSharding(self.mesh, partition(weight, self.mesh)), spec)

    def uncut(self, spec: Spec) -> list[str]:
        """Returns a line for each mesh axis of several devices that cannot cut some weights that it may cut."""
        lines = []
        for mesh_axis, logical_axes in RULES.items():
            held = [
                f"{path} {' x '.join(map(str, weight.shape))}"
                for path, weight, _ in without_repeats(spec)
                if set(weight.axes) & set(logical_axes) and mesh_axis not in partition(weight, self.mesh)
            ]
            if held and self.mesh.shape[mesh_axis] > 1:
                size = f"parallel.{mesh_axis} {self.mesh.shape[mesh_axis]}"
                lines.append(f"{size} divides no axis of {', '.join(held)}: each of its devices holds all of that")
        return lines

    def optimizer_state(self, shapes: Any, spec: Spec) -> Any:
        """Returns the tree of the optimizer state's shardings for the tree of its shapes.

        An array is cut like a weight if its path ends in the weight's path and it has the weight's shape.
        """
        cut = {path: (w.shape, NamedSharding(self.mesh, partition(w, self.mesh))) for path, w in leaves(spec)}

        def follow(path: tuple, leaf: Any) -> NamedSharding:
            name = "/".join(["", *(key.key for key in path if isinstance(key, DictKey))])
            weight = max((w for w in cut if name.endswith(f"/{w}")), key=len, default=None)
            return cut[weight][1] if weight and cut[weight][0] == leaf.shape else self.replicated

        return jax.tree_util.tree_map_with_path(follow, shapes)

    def put(self, batch: dict[str, np.ndarray], parts: int) -> dict[str, jax.Array]:
        """Returns a batch, or this process's rows, as arrays on the devices.

        It appends copies of the last row, with weight 0, up to a multiple of `parts` rows.
        """
        missing = -len(batch["weights"]) % (parts // jax.process_count())
        if missing:
            n_rows = len(batch["weights"])
            batch = {name: np.pad(x, [(0, missing)] + [(0, 0)] * (x.ndim - 1), "edge") for name, x in batch.items()}
            batch["weights"][n_rows:] = 0
        return {name: jax.make_array_from_process_local_data(self.rows, x) for name, x in batch.items()}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _read_whole(cut: NamedSharding, whole: NamedSharding, shape: tuple[int, ...], dtype: Any, x: jax.Array) -> Any:
    """Returns an array twice, with zeros up to `shape`, gathered from `cut` to `whole` in this type."""
    padded = jnp.pad(x.astype(dtype), [(0, after - before) for before, after in zip(x.shape, shape, strict=True)])
    return (jax.lax.with_sharding_constraint(padded, whole).astype(x.dtype),) * 2


def _read_whole_forward(cut: Any, whole: Any, shape: Any, dtype: Any, x: CustomVJPPrimal) -> tuple[Any, Any]:
    return _read_whole(cut, whole, shape, dtype, x.value), x.value


def _read_whole_backward(cut: Any, whole: Any, _shape: Any, _dtype: Any, x: jax.Array, gradients: tuple) -> tuple:
    """Scatters the gradients one by one: the compiler makes a scatter of a sum over the devices, not of two sums."""
    parts = [
        # Without the first constraint the compiler would cut what leads to a gradient along the width, and move it.
        jax.lax.with_sharding_constraint(jax.lax.with_sharding_constraint(gradient, whole), cut)
        for gradient in gradients
        if not isinstance(gradient, SymbolicZero)
    ]
    return (jax.lax.slice(sum(parts), (0,) * x.ndim, x.shape) if parts else jnp.zeros_like(x),)


_read_whole.defvjp(_read_whole_forward, _read_whole_backward, symbolic_zeros=True)


def make_layout(config: ParallelConfig, devices: Sequence[Any]) -> Layout:
    """Returns the layout over the first devices, as many as the config names.

    Raises:
      UserError: there are fewer devices; `data` is 0 and the other axes do not divide their number; or one of several
        processes would have an unused device, or devices that `tensor` does not divide.
    """
    others = config.fsdp * config.tensor
    if not config.data and len(devices) % others:
        sizes = f"parallel.fsdp {config.fsdp} × parallel.tensor {config.tensor}"
        raise UserError(f"{sizes}: {others} does not divide the number of devices here, {len(devices)}")
    shape = (config.data or len(devices) // others, config.fsdp, config.tensor)
    n = math.prod(shape)
    if n > len(devices):
        sizes = " × ".join(f"parallel.{name} {size}" for name, size in zip((DATA, FSDP, TENSOR), shape, strict=True))
        raise UserError(f"{sizes}: needs {n} devices; here are {len(devices)}")
    n_processes = jax.process_count()
    if n_processes > 1 and n < len(devices):
        raise UserError(f"parallel: uses {n} of {len(devices)} devices; {n_processes} processes must use all")
    if n_processes > 1 and jax.local_device_count() % config.tensor:
        here = f"the devices of a process, {jax.local_device_count()}"
        raise UserError(f"parallel.tensor: {config.tensor} does not divide {here}")
    mesh = jax.make_mesh(shape, (DATA, FSDP, TENSOR), axis_types=(AxisType.Auto,) * 3, devices=devices[:n])
    return Layout(mesh, config.kind == "pmap")


def require_divisible(layout: Layout, batch_size: int, microbatches: int) -> None:
    """Raises a UserError if the devices do not divide the rows of a microbatch."""
    if (batch_size // microbatches) % layout.parts:
        sizes = f"parallel.data {layout.mesh.shape[DATA]} × parallel.fsdp {layout.mesh.shape[FSDP]}"
        rows = f"{batch_size} / train.microbatches {microbatches}" if microbatches > 1 else f"{batch_size}"
        raise UserError(f"train.batch_size: {rows} does not divide into {layout.parts} equal parts ({sizes})")


def partition(weight: Weight, mesh: Mesh) -> P:
    """Returns the mesh axis that cuts each axis of a weight, or None, by `RULES`."""
    cuts: list[str | None] = [None] * len(weight.axes)
    for mesh_axis, logical_axes in RULES.items():
        size = mesh.shape[mesh_axis]
        free = (weight.axes.index(name) for name in logical_axes if name in weight.axes)
        found = next((i for i in free if cuts[i] is None and weight.shape[i] % size == 0), None)
        if size > 1 and found is not None:
            cuts[found] = mesh_axis
    return P(*cuts)

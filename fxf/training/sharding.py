"""Sharding: a mesh of devices, and the rules by which it shards weights and batches.

The mesh has five axes. `data`, `fsdp` and `expert` shard a batch's rows, and `sequence` shards the tokens of each row.
`fsdp`, `expert` and `tensor` shard weights, their gradient and the optimizer's state. `fsdp` gathers a weight before
its use; `tensor` shards the computation too; `expert` shards the experts of a mixture, to which rows are sent.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import DictKey

from fxf.base.devices import AXES, DATA, EXPERT, FSDP, ROWS, SEQUENCE, TENSOR, compiling_for, over_mesh, target_devices
from fxf.base.errors import UserError
from fxf.base.weights import VOCABULARY, Params, Spec, Weight, leaves, map_weights
from fxf.models.model import Model
from fxf.training.parallel import ParallelConfig

# Each mesh axis shards the first of these axes of a weight that is not sharded yet and that it divides.
RULES = {
    EXPERT: ("expert",),
    TENSOR: ("heads", "mlp", "vocabulary"),
    FSDP: ("embed", "mlp", "vocabulary", "heads", "head_dim", "position"),
}


class Layout(NamedTuple):
    """The devices of a run, one or more, and how they hold its arrays.

    Attributes:
      pmap: whether the step runs under `jax.pmap`, with the whole state on each device.
      in_float32: whether the devices sum the gradients of blocks in float32, whatever the type of the computation.
    """

    mesh: Mesh
    pmap: bool = False
    in_float32: bool = True

    @property
    def parts(self) -> int:
        """The number of parts that a batch's rows are sharded into."""
        return math.prod(self.mesh.shape[axis] for axis in ROWS)

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that every device holds whole."""
        return NamedSharding(self.mesh, P())

    @property
    def rows(self) -> NamedSharding:
        """The sharding of an array along its first axis, the rows of a batch."""
        return NamedSharding(self.mesh, P(ROWS))

    @property
    def tokens(self) -> NamedSharding:
        """The sharding of an array [B, T, ...] along its rows and its sequences."""
        return NamedSharding(self.mesh, P(ROWS, SEQUENCE)) if self.mesh.shape[SEQUENCE] > 1 else self.rows

    def shard(self, arrays: Any) -> Any:
        """Constrains, inside a compiled function, arrays [B] or [B, T, ...] to be sharded where devices divide them."""

        def constrained(x: jax.Array) -> jax.Array:
            if len(x) % self.parts:
                return x
            in_parts = x.ndim > 1 and x.shape[1] % self.mesh.shape[SEQUENCE] == 0
            return jax.lax.with_sharding_constraint(x, self.tokens if in_parts else self.rows)

        return jax.tree.map(constrained, arrays)

    def shards_of_tokens(self, x: jax.Array) -> jax.Array:
        """Returns [B, T, ...] as [parts, B / rows, T / sequences, ...]; each part is on devices of its own."""
        n_rows, n_sequences = self.parts, self.mesh.shape[SEQUENCE]
        if n_sequences == 1:
            return x.reshape(n_rows, -1, *x.shape[1:])
        shards = x.reshape(n_rows, x.shape[0] // n_rows, n_sequences, -1, *x.shape[2:]).swapaxes(1, 2)
        return shards.reshape(n_rows * n_sequences, *shards.shape[2:])

    def with_mesh(self, model: Model) -> Model:
        """Returns the model with functions that know this mesh: attention and norms map their kernels over it."""
        prefill = model.prefill
        if self.mesh.size > 1:
            here = over_mesh(self.mesh)
            features = over_mesh(self.mesh, self.in_float32)(model.features)
            return model._replace(features=features, prefill=prefill and here(prefill))
        if len(target_devices()) == 1:
            return model
        alone = compiling_for([*self.mesh.devices.flat])
        readout = alone(model.readout)
        return model._replace(features=alone(model.features), readout=readout, prefill=prefill and alone(prefill))

    @property
    def pads(self) -> bool:
        """Whether a step may pad the vocabulary: everywhere but on CPUs without `tensor`."""
        return self.padded_vocabulary(1) > 1

    def padded_vocabulary(self, size: int) -> int:
        """Returns the size, padded to a multiple of `tensor`, and on accelerators of 128 · `tensor`.

        Their matrix units work on blocks of 128.
        """
        on_cpu = self.mesh.devices.flat[0].platform == "cpu"
        multiple = self.mesh.shape[TENSOR] * (1 if on_cpu else 128)
        return -(-size // multiple) * multiple

    def gather(self, model: Model, params: Params, *, pad: bool = False) -> tuple[Params, Params]:
        """Returns, inside a compiled function, the params for `features` and for `readout`.

        They differ only by padding: `features` may read logits too, for a term. Weights outside blocks are gathered
        over `fsdp`, and stay sharded over `tensor`. A weight with an axis of the vocabulary is gathered in the type of
        the computation, and cast back. Both gradients of a weight are reduce-scattered in float32, and then summed. The
        compiler gathers the weights of blocks where they are used.

        Args:
          pad: whether to pad the vocabulary's axes of weights for `readout` with zeros to `padded_vocabulary`.
        """
        if self.mesh.size == 1 and not (pad and self.pads):
            return params, params

        def read(path: str, weight: Weight) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
            sizes = zip(weight.shape, weight.axes, strict=True)
            shape = tuple(self.padded_vocabulary(n) if pad and axis == VOCABULARY else n for n, axis in sizes)
            own, filled = (partition(each, self.mesh) for each in (weight, dataclasses.replace(weight, shape=shape)))
            if not shape or any(part.isdigit() for part in path.split("/")):  # one number is whole on each device
                return lambda x: (jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, own)),) * 2
            dtype = model.dtype if VOCABULARY in weight.axes else model.weights_dtype
            return functools.partial(_read_whole, self.mesh, (own, filled), shape, jnp.dtype(dtype))

        stored, tree = jax.tree.flatten(params)
        readers = jax.tree.leaves(map_weights(read, model.spec))
        of_features, of_readout = zip(*(reader(x) for reader, x in zip(readers, stored, strict=True)), strict=True)
        return jax.tree.unflatten(tree, of_features), jax.tree.unflatten(tree, of_readout)

    def weights(self, spec: Spec) -> Any:
        """Returns the tree of the weights' shardings."""
        return map_weights(lambda _, weight: NamedSharding(self.mesh, partition(weight, self.mesh)), spec)

    def placed(self, state: Any, spec: Spec) -> Any:
        """Returns the tree of a state's shapes with their shardings.

        An array is sharded like a weight if its path ends in the weight's path and it has the weight's shape.
        """
        weights = dict(leaves(spec))

        def follow(path: tuple, leaf: Any) -> Any:
            name = "/".join(["", *(str(key.key) for key in path if isinstance(key, DictKey))])
            found = max((w for w in weights if name.endswith(f"/{w}")), key=len, default="")
            alike = found in weights and weights[found].shape == leaf.shape
            axes = partition(weights[found], self.mesh) if alike else P()
            return leaf.update(sharding=NamedSharding(self.mesh, axes))

        return jax.tree_util.tree_map_with_path(follow, state)

    def put(self, batch: dict[str, np.ndarray], parts: int) -> dict[str, jax.Array]:
        """Returns a batch, or this process's rows, as arrays on the devices.

        It appends copies of the last row, with weight 0, up to a multiple of `parts` rows.

        Raises:
          UserError: `parallel.sequence` does not divide the sequences.
        """
        self.require_divisible_sequences(batch)
        n_rows = len(batch["weights"])
        if missing := -n_rows % (parts // jax.process_count()):
            batch = {name: np.pad(x, [(0, missing), *[(0, 0)] * (x.ndim - 1)], "edge") for name, x in batch.items()}
            batch["weights"][n_rows:] = 0
        return {
            name: jax.make_array_from_process_local_data(self.rows if x.ndim == 1 else self.tokens, x)
            for name, x in batch.items()
        }

    def require_divisible_sequences(self, batch: Mapping[str, Any]) -> None:
        """Raises a UserError if `parallel.sequence` does not divide the sequences [B, T, ...] of a batch."""
        n_sequences = self.mesh.shape[SEQUENCE]
        for name, x in batch.items():
            if x.ndim > 1 and x.shape[1] % n_sequences:
                what = f"{n_sequences} does not divide the length {x.shape[1]} of the batch's {name}"
                raise UserError(f"parallel.sequence: {what}")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _read_whole(mesh: Mesh, sharded: tuple[P, P], shape: tuple[int, ...], dtype: Any, x: jax.Array) -> Any:
    """Gathers an array in `dtype`; returns it as it is, and padded with zeros to `shape`, with partitions `sharded`."""
    padded = jnp.pad(x.astype(dtype), [(0, after - before) for before, after in zip(x.shape, shape, strict=True)])
    whole = jax.lax.with_sharding_constraint(padded, _whole(mesh, sharded[1])).astype(x.dtype)
    return _unpadded(whole, x.shape), whole


def _read_whole_forward(mesh: Mesh, sharded: Any, shape: Any, dtype: Any, x: CustomVJPPrimal) -> tuple[Any, Any]:
    return _read_whole(mesh, sharded, shape, dtype, x.value), x.value


def _read_whole_backward(mesh: Mesh, sharded: Any, _shape: Any, _dtype: Any, x: jax.Array, gradients: tuple) -> tuple:
    """Reduce-scatters the gradients one by one.

    The compiler does not fuse a scatter with two sums over the devices, or with a sum that is padded before.
    """
    parts = []
    for gradient, axes in zip(gradients, sharded, strict=True):
        if not isinstance(gradient, SymbolicZero):
            # Without the first constraint the compiler computes shards along the width, and then moves them.
            whole = jax.lax.with_sharding_constraint(gradient, _whole(mesh, axes))
            parts.append(_unpadded(jax.lax.with_sharding_constraint(whole, NamedSharding(mesh, axes)), x.shape))
    return (sum(parts) if parts else jnp.zeros_like(x),)


def _whole(mesh: Mesh, axes: P) -> NamedSharding:
    """Returns a sharding without `fsdp`."""
    return NamedSharding(mesh, P(*(None if axis == FSDP else axis for axis in axes)))


def _unpadded(x: Any, shape: tuple[int, ...]) -> jax.Array:
    return x if x.shape == shape else jax.lax.slice(x, (0,) * x.ndim, shape)  # no slice, which would be an operation


_read_whole.defvjp(_read_whole_forward, _read_whole_backward, symbolic_zeros=True)


def make_layout(config: ParallelConfig, devices: Sequence[Any]) -> Layout:
    """Returns the layout over the first devices, as many as the config names.

    Raises:
      UserError: there are fewer devices; `data` is 0 and the other axes do not divide their number; slices do not
        divide `data`; or one of several processes would have an unused device, or devices that `tensor` does not
        divide.
    """
    shape = {axis: getattr(config, axis) for axis in AXES}
    others, here = math.prod(list(shape.values())[1:]), len(devices)
    if not config.data and here % others:
        raise UserError(f"{_sizes(shape)}: {others} does not divide the number of devices here, {here}")
    shape[DATA] = config.data or here // others
    if (n := math.prod(shape.values())) > here:
        raise UserError(f"{_sizes(shape)}: needs {n} devices; here are {here}")
    slices = config.slices or len({_slice(device) for device in devices[:n]})
    if shape[DATA] % slices:
        only = f"parallel.data {shape[DATA]}, which alone goes across slices"
        raise UserError(f"{_sizes(shape) or 'parallel.slices'}: {slices} slices do not divide {only}")
    if jax.process_count() > 1:
        if n < here:
            raise UserError(f"parallel: uses {n} of {here} devices; {jax.process_count()} processes must use all")
        if jax.local_device_count() % (of_a_row := config.sequence * config.tensor):
            of_process = f"the devices of a process, {jax.local_device_count()}"
            raise UserError(f"{_sizes(shape, SEQUENCE, TENSOR)}: {of_a_row} does not divide {of_process}")
    compiler_shards = (AxisType.Auto,) * len(AXES)
    of_slice = tuple({**shape, DATA: shape[DATA] // slices}.values())
    by_slice = np.array(sorted(devices[:n], key=_slice)).reshape(slices, -1).tolist()
    # Within a slice, JAX orders the devices by their links.
    meshes = [jax.make_mesh(of_slice, AXES, axis_types=compiler_shards, devices=part).devices for part in by_slice]
    mesh = Mesh(np.concatenate(meshes), AXES, axis_types=compiler_shards)
    return Layout(mesh, config.kind == "pmap", config.gradient_sums == "float32")


def _slice(device: Any) -> int:
    """Returns the number of the slice of TPUs that a device is in; others have none."""
    return getattr(device, "slice_index", 0)


def _sizes(shape: Mapping[str, int], *axes: str) -> str:
    """Returns the sizes of several axes of a mesh, or of all, in words, without those of size 1."""
    return " × ".join(f"parallel.{axis} {shape[axis]}" for axis in axes or AXES if shape[axis] > 1)


def require_divisible(layout: Layout, batch_size: int, microbatches: int) -> None:
    """Raises a UserError if the devices do not divide the rows of a microbatch."""
    if (batch_size // microbatches) % layout.parts:
        rows, sizes = f"{batch_size} / train.microbatches {microbatches}", _sizes(layout.mesh.shape, *ROWS)
        raise UserError(f"train.batch_size: {rows} does not divide into {layout.parts} equal parts ({sizes})")


def partition(weight: Weight, mesh: Mesh) -> P:
    """Returns the mesh axis, or None, that shards each axis of a weight by `RULES`."""
    axes: list[str | None] = [None] * len(weight.axes)
    for mesh_axis, logical_axes in RULES.items():
        size = mesh.shape[mesh_axis]
        free = (weight.axes.index(name) for name in logical_axes if name in weight.axes)
        found = next((i for i in free if axes[i] is None and weight.shape[i] % size == 0), None)
        if size > 1 and found is not None:
            axes[found] = mesh_axis
    return P(*axes)

"""Formulas for a GPU, whose memory is slow compared with its products, and whose threads add in any order.

The platform that a program is compiled for decides, not the host's platform.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import PartitionSpec

from fxf.base.devices import ROWS, SEQUENCE, divides, target_devices, target_mesh
from fxf.base.operations import COUNTED

# Names of cuDNN's flash attention in a lowered program: of its kernels, or of the partitioning of these over a mesh.
FLASH = ("__cudnn$fmha", "CustomSPMDPartitioning")
BLOCK = 512  # rows of an expert in one product
# Compiler options for decoding. Otherwise XLA joins the weights of products with the same input, again at each step.
DECODING = {"xla_gpu_dot_merger_threshold_mb": 0}


def deterministic(jitted: Any) -> Callable[..., Any]:
    """Returns a jitted training step. On a GPU it compiles with `deterministic_options`, once for each batch shape."""
    if not on_gpu():
        return jitted
    programs: dict[Any, Any] = {}

    def step(state: Any, *others: Any) -> Any:
        shapes = tuple(map(np.shape, jax.tree.leaves(others)))  # the state's are the same each time
        if shapes not in programs:
            lowered = jitted.lower(state, *others)
            programs[shapes] = lowered.compile(deterministic_options(lowered))
        return programs[shapes](state, *others)

    return step


def deterministic_options(lowered: Any) -> dict[str, bool] | None:
    """Returns the compiler options that make a lowered training step deterministic.

    Without them a GPU's threads add to one element in any order. A program with cuDNN's flash attention gets none: with
    the option XLA compiles the first of several equal kernels, and does not find it for the others
    (`CuDnnCustomCallCompiler` changes the name under which it caches the first).
    """
    if not on_gpu():
        return None
    text = lowered.as_text()
    return None if any(name in text for name in FLASH) else {"xla_gpu_exclude_nondeterministic_ops": True}


def on_gpu() -> bool:
    """Returns whether programs are compiled for a GPU."""
    return target_devices()[0].platform == "gpu"


def row_major(x: jax.Array) -> jax.Array:
    """Returns x; on a GPU its memory layout is row-major, also if x was transposed."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if on_gpu() else x


def product_of_one(x: jax.Array, w: jax.Array) -> jax.Array:
    """Returns x w for one vector, x [..., I] of I elements and w [I, O].

    As a sum it fuses with the operations that compute w; a matrix product would first write w to memory.
    """
    wide = jnp.promote_types(x.dtype, jnp.float32)
    terms_OI = jnp.ravel(x).astype(wide)[None] * w.T.astype(wide)
    return terms_OI.sum(axis=1).astype(x.dtype).reshape(*x.shape[:-1], -1)


def recomputed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns the function; on a GPU its gradient recomputes it from its arguments, which alone are stored."""
    return jax.checkpoint(function) if on_gpu() else function


def norm_of(tree: Any) -> jax.Array:
    """Returns the global norm of arrays; a GPU sums rows first, so that each large array takes one kernel, not two."""
    if not on_gpu():
        return optax.tree.norm(tree)
    squares = [jnp.square(x) for x in jax.tree.leaves(tree)]
    rows = jnp.concatenate([(x.sum(-1) if x.size > 2**16 else x).ravel() for x in squares])
    return jnp.sqrt(jax.lax.optimization_barrier(rows).sum())


@jax.custom_vjp
def _read_twice(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, x


_read_twice.defvjp(lambda x: ((x, x), None), lambda _, changes: (changes[0] + changes[1],))


def with_gradient_added_last(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns x twice: for one reader, and for all others, whose gradients are summed before the first's is added.

    So each product of the gradient adds to the one before. XLA would add the third in a separate pass, which takes 1 %
    of a GPT-2 step on a GPU.
    """
    return _read_twice(x) if on_gpu() else (x, x)


def embedding_lookup(table: jax.Array, indices: jax.Array, *, beyond: float | None = None) -> jax.Array:
    """Returns the rows of a table at the indices [...], [..., D]: an embedding lookup.

    On a GPU its gradient is deterministic: it sorts the indices, and sums the rows of each index by a scan. Each device
    of the mesh does so for its own indices [B, T], and the sums of the devices are added. XLA's deterministic scatter,
    which `deterministic_options` asks for, would sort every element. On a GPU `jax.jvp` of the lookup is not possible;
    that of its gradient is.

    Args:
      beyond: the elements of rows outside the table, also at negative indices; None if all indices are inside.
    """
    if not on_gpu():
        return _rows(beyond, table, indices)
    n_rows, mesh = len(table), target_mesh()

    @jax.custom_vjp
    def rows(table: jax.Array, indices: jax.Array) -> jax.Array:
        return _rows(beyond, table, indices)

    rows.defvjp(
        lambda table, indices: (_rows(beyond, table, indices), indices),
        lambda indices, gradient: (_sums_over_devices(mesh, n_rows, indices, gradient), None),
    )
    return rows(table, indices)


def product_of_experts(x_MI: jax.Array, w_EIO: jax.Array, sizes_E: jax.Array) -> jax.Array:
    """Multiplies rows, sorted by expert, by their experts' matrices, [M, O]; rows of no expert come last and give 0.

    XLA for a GPU multiplies each row by the matrices of all experts. So there the rows of each expert are padded to
    whole blocks, and each block has a copy of the matrix. A step of two blocks of GPT-2's width with 8 experts then
    takes a third of the time, and with 64 an 18th (`fxf compile` for an H100). The copies are made by products, so that
    their gradients are summed in one order.
    """
    (n_rows, _), n_experts = x_MI.shape, len(sizes_E)
    if not on_gpu() or n_rows <= BLOCK:
        return jax.lax.ragged_dot(x_MI, w_EIO, sizes_E)
    n_blocks, blocks_E = -(-n_rows // BLOCK) + n_experts, -(-sizes_E // BLOCK)
    ends_E, last_E = jnp.cumsum(sizes_E), jnp.cumsum(blocks_E)
    row_M, place_NR = jnp.arange(n_rows), jnp.arange(n_blocks * BLOCK).reshape(n_blocks, BLOCK)
    expert_M, expert_N = (
        jnp.minimum((ends[None] <= numbers[:, None]).sum(1), n_experts - 1)
        for ends, numbers in ((ends_E, row_M), (last_E, jnp.arange(n_blocks)))
    )
    moves_E = (last_E - blocks_E) * BLOCK - (ends_E - sizes_E)  # how far the rows of an expert move
    row_NR = place_NR - moves_E[expert_N][:, None]
    # Padding: an index beyond the last row reads 0.
    row_NR = jnp.where(row_NR < ends_E[expert_N][:, None], row_NR, n_rows + place_NR)
    place_M = jnp.where(row_M < ends_E[-1], row_M + moves_E[expert_M], place_NR.size + row_M)
    filled: Any = {"mode": "fill", "fill_value": 0, "unique_indices": True}
    with jax.named_scope(COUNTED.format(0, 1)):
        is_of_NE = (expert_N[:, None] == jnp.arange(n_experts)[None]).astype(w_EIO.dtype)
        w_NIO = jnp.einsum("NE,EIO->NIO", is_of_NE, w_EIO)
    with jax.named_scope(COUNTED.format(n_rows, place_NR.size)):
        y_NRO = jnp.einsum("NRI,NIO->NRO", x_MI.at[row_NR].get(**filled), w_NIO)
    return y_NRO.reshape(place_NR.size, -1).at[place_M].get(**filled)


def _rows(beyond: float | None, table: jax.Array, indices: jax.Array) -> jax.Array:
    if beyond is None:
        # XLA makes a lookup of one row a slice, for which it gathers a table that is sharded along its rows.
        twice = indices.size == 1 and indices.ndim > 0 and on_gpu()
        return table[jnp.concatenate([indices, indices])][:1] if twice else table[indices]
    return table.at[indices].get(mode="fill", fill_value=beyond, wrap_negative_indices=False)


def _sums_over_devices(mesh: Any, n_rows: int, indices: jax.Array, added: jax.Array) -> jax.Array:
    """Returns `_sums_in_order` over a mesh, where each device sums the rows of its own indices [B, T]."""
    if mesh is None or indices.ndim != 2:
        return _sums_in_order(n_rows, indices, added)
    each = zip((ROWS, (SEQUENCE,)), indices.shape, strict=True)
    cuts = [axes if divides(mesh, axes, length) else () for axes, length in each]

    def of_device(indices: jax.Array, added: jax.Array) -> jax.Array:
        return jax.lax.psum(_sums_in_order(n_rows, indices, added), (*cuts[0], *cuts[1]))

    spec = PartitionSpec(*cuts)
    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=(spec, spec), out_specs=PartitionSpec(), check_vma=False)
    return mapped(indices, added)


def _sums_in_order(n_rows: int, indices: jax.Array, added: jax.Array) -> jax.Array:
    """Returns the sum of the rows [..., D] of each index, in a fixed order, [n_rows, D]."""
    added_ND, indices_N = added.reshape(-1, added.shape[-1]), jnp.ravel(indices)
    indices_N = jnp.where(indices_N < 0, indices_N + n_rows, indices_N)  # -1 is the last row
    sorted_N, order_N = jax.lax.sort((indices_N, jnp.arange(len(added_ND))), num_keys=1)
    differ, end = sorted_N[1:] != sorted_N[:-1], jnp.array([True])
    is_first_N1 = jnp.concatenate([end, differ])[:, None]
    is_last_N = jnp.concatenate([differ, end])

    def join(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Joins two ranges: whether a range has the first row of its last index, and the sum for that index."""
        (first_left, sum_left), (first_right, sum_right) = left, right
        return first_left | first_right, jnp.where(first_right, sum_right, sum_left + sum_right)

    _, sums_ND = jax.lax.associative_scan(join, (is_first_N1, added_ND[order_N]))
    beyond_N = n_rows + jnp.arange(len(added_ND))  # outside: dropped
    places_N = jnp.where(is_last_N, sorted_N, beyond_N)
    zeros = jnp.zeros((n_rows, added_ND.shape[1]), added_ND.dtype)
    return zeros.at[places_N].set(sums_ND, mode="drop", unique_indices=True)

"""Kernels of attention over a mesh, whose axis `sequence` cuts each row's tokens (context parallelism).

Each device computes what its own queries read, and gets the keys and values of others for it (Dubey et al. 2024,
section 3.3.2). Causal attention cuts a row into two pieces a device: the devices swap queries, so that each has an
early and a late piece, and all see as many keys (zhuzilin 2024, "zigzag ring attention"). A piece reads the keys of one
piece at a time; what it reads of several is their mean by the sums of weights, whose logarithms the kernel returns.

Letters: B rows, T or S tokens, P tokens of a piece, H heads, G groups of heads, K width of a head; N pieces of a row,
of which a device has 2.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fxf.base.devices import ROWS, SEQUENCE, TENSOR, target_mesh

CUT = {"B": ROWS, "T": (SEQUENCE,), "S": (SEQUENCE,), "G": (TENSOR,)}


class Kernel(NamedTuple):
    """Attention to a part of the keys that a query sees.

    If it is causal, query i sees the keys up to i, and below a distance if a window follows.

    Attributes:
      read: (q [B, T, H, K], k and v [B, S, G, K], causal) to what is read, [B, T, H, K], and the logarithm of the sum
        of the exponentials of the scores, [B, H, T], in float32.
      gradients: (q, k, v, read, logarithm, gradient by what is read, causal) to the gradients by q, k and v, where read
        and logarithm are those of all keys.
    """

    read: Callable[..., Any]
    gradients: Callable[..., Any]


def n_parts() -> int:
    """Returns into how many parts the mesh cuts each sequence."""
    mesh = target_mesh()
    return 1 if mesh is None else mesh.shape[SEQUENCE]


def mapped(kernel: Callable[..., jax.Array], axes: str, *arrays: jax.Array) -> jax.Array:
    """Returns `kernel(*arrays)`, for which each device of the mesh computes its rows, heads and queries.

    XLA does not shard a kernel. Rows, heads and tokens that the mesh does not divide are whole on each device.

    Args:
      axes: letters of the axes of each array. The mesh cuts B, H, G, T and S, where an array has more than one of
        them, and the kernel gets S gathered. The first array is like the result.
    """
    mesh = target_mesh()
    if mesh is None:
        return kernel(*arrays)
    names, sizes = axes.split(), dict[str, int]()
    for name, x in zip(names, arrays, strict=True):
        sizes = {**dict(zip(name, x.shape, strict=True)), **sizes}
    cut: dict[str, Any] = {
        letter: on
        for letter, on in CUT.items()
        if letter in sizes and sizes[letter] % math.prod(mesh.shape[axis] for axis in on) == 0
    }
    cut["H"] = cut.get("G")
    specs = [
        P(*(cut.get(letter) if n > 1 else None for letter, n in zip(name, x.shape, strict=True)))
        for name, x in zip(names, arrays, strict=True)
    ]

    def local(*arrays: jax.Array) -> jax.Array:
        gathered = [
            jax.lax.all_gather(x, SEQUENCE, axis=name.index("S"), tiled=True) if "S" in cut and "S" in name else x
            for name, x in zip(names, arrays, strict=True)
        ]
        return kernel(*gathered)

    # What a kernel writes has no record of the axes over which it differs, which JAX would check.
    return jax.shard_map(local, mesh=mesh, in_specs=tuple(specs), out_specs=specs[0], check_vma=False)(*arrays)


def causal(kernel: Kernel, q_BTHK: jax.Array, k_BTGK: jax.Array, v_BTGK: jax.Array, *, window: int = 0) -> jax.Array:
    """Returns what queries read of their own and earlier tokens, [B, T, H, K], where the mesh cuts sequences.

    Args:
      window: they see keys at a distance below this; 0: at any.
    """

    def local(q_BSHK: jax.Array, *memory: jax.Array) -> jax.Array:
        if 0 < window < length:
            return _windowed(kernel, window, q_BSHK, *memory)
        return swapped(_balanced(kernel, swapped(q_BSHK, 1), *memory), 1, back=True)

    # Rows are filled up at their end, where no query sees it, so that a piece has an even length.
    length = q_BTHK.shape[1]
    filling = ((0, 0), (0, -length % (4 * n_parts())), (0, 0), (0, 0))
    arrays = [jnp.pad(x, filling) for x in (q_BTHK, k_BTGK, v_BTGK)]
    return mapped(local, "BTHK BTGK BTGK", *arrays)[:, :length]


def pieces_of_queries(n: int) -> np.ndarray:
    """Returns the numbers of the two pieces that each of n devices has after `swapped`, int32 [n, 2].

    The first is even, the other odd, and one is as early as the other is late.
    """
    early = np.arange(n, dtype=np.int32)
    pairs = np.stack([early, 2 * n - 1 - early], 1)
    return np.where(pairs[:, :1] % 2 == 0, pairs, pairs[:, ::-1])


def swapped(x: jax.Array, axis: int, back: bool = False) -> jax.Array:
    """Returns tokens of `pieces_of_queries` in place of a device's own, pieces 2d and 2d + 1 along an axis; or back."""
    pieces, exchanged = pieces_of_queries(jax.lax.axis_size(SEQUENCE)), []
    for of_device, part in zip(pieces.T, jnp.split(x, 2, axis), strict=True):
        moves = [(int(piece) // 2, device) for device, piece in enumerate(of_device)]
        exchanged.append(jax.lax.ppermute(part, SEQUENCE, [move[::-1] for move in moves] if back else moves))
    return jnp.concatenate(exchanged, axis)


def _mine() -> jax.Array:
    """Returns the numbers of a device's pieces of queries, int32 [2]; their sum is N - 1."""
    return jnp.asarray(pieces_of_queries(jax.lax.axis_size(SEQUENCE)))[jax.lax.axis_index(SEQUENCE)]


def _pair(mine: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns which of a device's pieces reads which piece of keys in one of N - 1 turns, both earlier than itself."""
    which = (index >= mine[0]).astype(index.dtype)
    return which, index - which * mine[0]


def _pieces(x_BS: jax.Array) -> jax.Array:
    """Cuts [B, S, …] into [2, B, P, …]."""
    return x_BS.reshape(x_BS.shape[0], 2, -1, *x_BS.shape[2:]).swapaxes(0, 1)


def _joined(x_2BP: jax.Array) -> jax.Array:
    return x_2BP.swapaxes(0, 1).reshape(x_2BP.shape[1], -1, *x_2BP.shape[3:])


def _gathered(x_BS: jax.Array) -> jax.Array:
    """Returns the pieces of all devices, [N, B, P, …]."""
    return jax.lax.all_gather(_pieces(x_BS), SEQUENCE, axis=0, tiled=True)


def _rows(x_2B: jax.Array) -> jax.Array:
    return x_2B.reshape(-1, *x_2B.shape[2:])


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _merged(one: tuple[jax.Array, jax.Array], other: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Returns what is read of two sets of keys, [B, P, H, K], and the logarithm of the sum, [B, H, P]."""
    total_BHP = jnp.logaddexp(one[1], other[1])
    shares = [jnp.exp(part - total_BHP).swapaxes(1, 2)[..., None] for _, part in (one, other)]
    return one[0] * shares[0] + other[0] * shares[1], total_BHP


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _balanced(kernel: Kernel, q_BSHK: jax.Array, k_BSGK: jax.Array, v_BSGK: jax.Array) -> jax.Array:
    """Returns what the `pieces_of_queries` read, [B, S, H, K]; keys and values are the device's own."""
    return _balanced_forward(kernel, q_BSHK, k_BSGK, v_BSGK)[0]


def _balanced_forward(kernel: Kernel, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    mine, q, (keys, values) = _mine(), _pieces(arrays[0]), map(_gathered, arrays[1:])
    of_own = kernel.read(_rows(q), _rows(keys[mine]), _rows(values[mine]), causal=True)
    start = tuple(_wide(x).reshape(2, -1, *x.shape[1:]) for x in of_own)

    def turn(state: tuple[jax.Array, ...], index: jax.Array) -> Any:
        which, of_keys = _pair(mine, index)
        earlier = kernel.read(q[which], keys[of_keys], values[of_keys], causal=False)
        merged = _merged((state[0][which], state[1][which]), earlier)
        return tuple(x.at[which].set(new) for x, new in zip(state, merged, strict=True)), None

    (read, total), _ = jax.lax.scan(turn, start, jnp.arange(len(keys) - 1))
    read = _joined(read.astype(q.dtype))
    return read, (*arrays, read, total)


def _balanced_backward(kernel: Kernel, residuals: Any, of_read: jax.Array) -> tuple[jax.Array, ...]:
    *arrays, read, total = residuals
    mine, q, (keys, values) = _mine(), _pieces(arrays[0]), map(_gathered, arrays[1:])
    queries = (_pieces(read), total, _pieces(of_read))
    own = kernel.gradients(*map(_rows, (q, keys[mine], values[mine], *queries)), causal=True)
    of_q, *of_own = (_wide(x).reshape(2, -1, *x.shape[1:]) for x in own)
    start = (of_q, *(jnp.zeros(keys.shape, x.dtype).at[mine].set(x) for x in of_own))

    def turn(state: tuple[jax.Array, ...], index: jax.Array) -> Any:
        which, of_keys = _pair(mine, index)
        found = kernel.gradients(q[which], keys[of_keys], values[of_keys], *(x[which] for x in queries), causal=False)
        places = (which, of_keys, of_keys)
        return tuple(x.at[i].add(new) for x, i, new in zip(state, places, found, strict=True)), None

    (of_q, *of_memory), _ = jax.lax.scan(turn, start, jnp.arange(len(keys) - 1))
    scattered = (jax.lax.psum_scatter(x.astype(q.dtype), SEQUENCE, tiled=True) for x in of_memory)
    return tuple(_joined(x.astype(q.dtype)) for x in (of_q, *scattered))


_balanced.defvjp(_balanced_forward, _balanced_backward)


class Block(NamedTuple):
    """Queries of a device and keys of an earlier one, of which each query sees all, or in a window the last ones.

    Attributes:
      hops: how many devices earlier.
      queries, keys: which of the device's.
      band: whether query i sees the keys from i on. Turned around, this is causal attention.
    """

    hops: int
    queries: slice
    keys: slice
    band: bool


def earlier_blocks(window: int, length: int, n: int) -> list[Block]:
    """Returns the blocks of pairs below a distance, for n devices with so many tokens each, but for a device's own."""
    blocks = []
    for hops in range(1, min(n - 1, -(-(window - 1) // length)) + 1):
        first = hops * length - window + 1  # query i sees the keys from i + first on
        seen_by_all = min(max(-first, 0), length)
        if seen_by_all:
            blocks.append(Block(hops, slice(0, length), slice(length - seen_by_all, length), False))
        if seen_by_all < length:
            late = max(first, 0)
            blocks.append(Block(hops, slice(0, length - late), slice(late, length - seen_by_all), True))
    return blocks


def _of_block(block: Block, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the queries, keys and values of a block; of a band they are turned around."""
    n = jax.lax.axis_size(SEQUENCE)
    moves = [(i, i + block.hops) for i in range(n - block.hops)]
    memory = [jax.lax.ppermute(x[:, block.keys], SEQUENCE, moves) for x in (k, v)]
    return tuple(_turned(block, x, 1) for x in (q[:, block.queries], *memory))


def _turned(block: Block, x: jax.Array, axis: int) -> jax.Array:
    return jnp.flip(x, axis) if block.band else x


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _windowed(kernel: Kernel, window: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return _windowed_forward(kernel, window, q, k, v)[0]


def _windowed_forward(kernel: Kernel, window: int, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    length, device = arrays[0].shape[1], jax.lax.axis_index(SEQUENCE)
    read, total = kernel.read(*arrays, causal=True, window=window)
    read = _wide(read)
    for block in earlier_blocks(window, length, jax.lax.axis_size(SEQUENCE)):
        found, logarithms = kernel.read(*_of_block(block, *arrays), causal=block.band)
        others = length - found.shape[1]
        found = jnp.pad(_turned(block, found, 1), ((0, 0), (0, others), (0, 0), (0, 0)))
        logarithms = jnp.where(device < block.hops, -jnp.inf, _turned(block, logarithms, 2))
        logarithms = jnp.pad(logarithms, ((0, 0), (0, 0), (0, others)), constant_values=-jnp.inf)
        read, total = _merged((read, total), (found, logarithms))
    read = read.astype(arrays[0].dtype)
    return read, (*arrays, read, total)


def _windowed_backward(kernel: Kernel, window: int, residuals: Any, of_read: jax.Array) -> tuple[jax.Array, ...]:
    *arrays, read, total = residuals
    length, device = read.shape[1], jax.lax.axis_index(SEQUENCE)
    sums = kernel.gradients(*arrays, read, total, of_read, causal=True, window=window)
    for block in earlier_blocks(window, length, jax.lax.axis_size(SEQUENCE)):
        given, back = jax.vjp(functools.partial(_of_block, block), *arrays)
        queries = [_turned(block, x[:, block.queries], 1) for x in (read, of_read)]
        logarithms = _turned(block, total[:, :, block.queries], 2)
        found = kernel.gradients(*given, queries[0], logarithms, queries[1], causal=block.band)
        found = back(tuple(jnp.where(device < block.hops, 0, x).astype(x.dtype) for x in found))
        sums = [x + new for x, new in zip(sums, found, strict=True)]
    return tuple(sums)


_windowed.defvjp(_windowed_forward, _windowed_backward)

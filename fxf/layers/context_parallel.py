"""Attention kernels over a mesh whose axis `sequence` shards each row's tokens (context parallelism).

Each device computes the output of its own queries, and gathers other devices' keys and values for it (Dubey et al.
2024, section 3.3.2). Causal attention splits a row into two pieces per device. The devices swap queries, so that each
has an early and a late piece, and all see equally many keys (zhuzilin 2024, "zigzag ring attention"). With a window, a
device fetches only the keys in reach before its own tokens. A kernel reads one range of keys at a time, and returns the
log of the sum of its weights, by which the outputs of several ranges are averaged.

Letters: B rows, T or S tokens, H heads, G groups of heads, K width of a head.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fxf.base.devices import ROWS, SEQUENCE, TENSOR, devices_along, divides, target_mesh
from fxf.layers.linear import as_float32

CUT = {"B": ROWS, "T": (SEQUENCE,), "S": (SEQUENCE,), "G": (TENSOR,)}


class Kernel(NamedTuple):
    """Attention to a range of the keys that a query sees.

    If causal, query i sees the keys up to i, within the window if that is not 0; otherwise it sees all.

    Attributes:
      read: `read(q [B, T, H, K], k [B, S, G, K], v [B, S, G, K], causal, window)` returns the output [B, T, H, K], and
        the log of the sum of the exponentials of the scores, [B, T, H], in float32.
      gradients: `gradients(q, k, v, output, log_sum, output_gradient, causal, window)` returns the gradients of q, k
        and v, where output and log_sum are those over all keys.
    """

    read: Callable[..., Any]
    gradients: Callable[..., Any]


def mapped(kernel: Callable[..., jax.Array], axes: str, *arrays: jax.Array) -> jax.Array:
    """Returns `kernel(*arrays)`, where each device of the mesh computes its own rows, heads and queries.

    XLA does not shard a kernel. An axis that the mesh does not divide is replicated.

    Args:
      axes: letters of the axes of each array. The mesh shards B, H, G, T and S unless they have size 1, and the kernel
        gets S gathered. The result has the sharding of the first array.
    """
    mesh = target_mesh()
    if mesh is None:
        return kernel(*arrays)
    names, sizes = axes.split(), dict[str, int]()
    for name, x in zip(names, arrays, strict=True):
        sizes = dict(zip(name, x.shape, strict=True)) | sizes
    cut: dict[str, Any] = {letter: on for letter, on in CUT.items() if divides(mesh, on, sizes.get(letter, 1))}
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

    # JAX does not know over which mesh axes a kernel's outputs vary, so it cannot check them.
    return jax.shard_map(local, mesh=mesh, in_specs=tuple(specs), out_specs=specs[0], check_vma=False)(*arrays)


def causal(kernel: Kernel, window: int, *arrays: jax.Array) -> jax.Array:
    """Returns the causal attention of queries [B, T, H, K] to keys and values [B, T, G, K], with sharded sequences.

    Args:
      window: a query sees its own key and earlier ones at a distance below this; 0: at any.
    """
    length = arrays[0].shape[1]

    def local(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        if 0 < window < length:
            return _in_turns(kernel, window, q, k, v)
        return swapped(_in_turns(kernel, 0, swapped(q, 1), k, v), 1, back=True)

    # Padding at the end of rows, which no query sees, gives each piece an even length.
    padding = ((0, 0), (0, -length % (4 * devices_along(SEQUENCE))), (0, 0), (0, 0))
    return mapped(local, "BTHK BTGK BTGK", *(jnp.pad(x, padding) for x in arrays))[:, :length]


def pieces_of_queries(n: int) -> np.ndarray:
    """Returns the indices of the two pieces that each of n devices has after `swapped`, int32 [n, 2].

    The first is even and the second odd. Their sum is 2n - 1, so one is as early as the other is late.
    """
    early = np.arange(n, dtype=np.int32)
    pairs = np.stack([early, 2 * n - 1 - early], 1)
    return np.where(pairs[:, :1] % 2 == 0, pairs, pairs[:, ::-1])


def swapped(x: jax.Array, axis: int, back: bool = False) -> jax.Array:
    """Exchanges device d's own pieces of an axis, 2d and 2d + 1, for those of `pieces_of_queries`; or `back`."""
    pieces, exchanged = pieces_of_queries(jax.lax.axis_size(SEQUENCE)), []
    for of_device, part in zip(pieces.T, jnp.split(x, 2, axis), strict=True):
        moves = [(int(piece) // 2, device) for device, piece in enumerate(of_device)]
        exchanged.append(jax.lax.ppermute(part, SEQUENCE, [move[::-1] for move in moves] if back else moves))
    return jnp.concatenate(exchanged, axis)


class Turns(NamedTuple):
    """A loop of reads. In each turn, a range of a device's queries reads a range of keys.

    Attributes:
      queries, keys: the first query and the first key of each turn.
      sizes: the numbers of queries and of keys in a range.
      causal: whether query i of a range sees its keys up to i, within `window` if that is not 0; else it sees all.
      band: whether both ranges are reversed for the kernel, so that causal means that query i sees the keys from i on.
      hops: the keys come from the device this many before. Devices without such a device skip the loop.
    """

    queries: Any
    keys: Any
    sizes: tuple[int, int]
    causal: bool = False
    window: int = 0
    band: bool = False
    hops: int = 0

    def take(self, starts: Any, of_queries: Any, of_keys: Any) -> list[jax.Array]:
        """Returns this turn's ranges of arrays [B, tokens, …]."""
        arrays = [*((x, 0) for x in of_queries), *((x, 1) for x in of_keys)]
        ranges = [jax.lax.dynamic_slice_in_dim(x, starts[side], self.sizes[side], 1) for x, side in arrays]
        return [jnp.flip(x, 1) for x in ranges] if self.band else ranges

    def put(self, x: jax.Array, start: Any, new: jax.Array) -> jax.Array:
        """Returns x with `new` as its range from `start`."""
        return jax.lax.dynamic_update_slice_in_dim(x, jnp.flip(new, 1) if self.band else new, start, 1)


def turns_of_causal(n: int, device: Any, length: int) -> list[Turns]:
    """Returns the turns in which `pieces_of_queries` read all earlier keys; a device has `length` queries."""
    mine, half, index = jnp.asarray(pieces_of_queries(n))[device], length // 2, np.arange(2 * n - 1)
    second = (index >= mine[0]).astype(mine.dtype)  # the first piece has as many turns as its index
    return [
        Turns(np.array([0, half]), mine * half, (half, half), causal=True),
        Turns(second * half, (index - second * mine[0]) * half, (half, half)),
    ]


def turns_of_window(n: int, length: int, window: int) -> list[Turns]:
    """Returns the turns in which a device's queries read keys within a window; the keys before its own come first."""
    n_before = min(window - 1, (n - 1) * length)
    turns = [Turns([0], [n_before], (length, length), causal=True, window=window)]
    for hops in range(1, -(-n_before // length) + 1):
        start = n_before - hops * length  # where that device's keys begin
        first = hops * length - window + 1  # query i sees them from i + first on
        seen_by_all = min(max(-first, 0), length)
        if seen_by_all:
            turns.append(Turns([0], [start + length - seen_by_all], (length, seen_by_all), hops=hops))
        if seen_by_all < length:
            n_queries = length - max(first, 0)
            band = (n_queries, n_queries - seen_by_all)
            turns.append(Turns([0], [start + max(first, 0)], band, causal=True, band=True, hops=hops))
    return turns


def _turns(window: int, length: int) -> list[Turns]:
    n = jax.lax.axis_size(SEQUENCE)
    return turns_of_window(n, length, window) if window else turns_of_causal(n, jax.lax.axis_index(SEQUENCE), length)


def _shared(window: int, x_BS: jax.Array) -> jax.Array:
    """Returns the keys or values of all devices; with a window, those in reach before a device's own, and its own."""
    if not window:
        return jax.lax.all_gather(x_BS, SEQUENCE, axis=1, tiled=True)
    n, length = jax.lax.axis_size(SEQUENCE), x_BS.shape[1]
    parts = [x_BS]
    for hops in range(1, min(n - 1, -(-(window - 1) // length)) + 1):
        last = x_BS[:, -(window - 1 - (hops - 1) * length) :]
        parts.insert(0, jax.lax.ppermute(last, SEQUENCE, [(i, i + hops) for i in range(n - hops)]))
    return jnp.concatenate(parts, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_turns(kernel: Kernel, window: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Returns the attention output of a device's queries, [B, S, H, K]; keys and values are the device's own too."""
    return _forward(kernel, window, q, k, v)[0]


def _forward(kernel: Kernel, window: int, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    q, memory = arrays[0], [_shared(window, x) for x in arrays[1:]]
    start = as_float32(jnp.zeros_like(q))
    state, device = [start, jnp.full_like(start[..., 0], -jnp.inf)], jax.lax.axis_index(SEQUENCE)
    for turns in _turns(window, q.shape[1]):

        def turn(state: list[jax.Array], starts: Any, turns: Turns = turns) -> Any:
            q_BTHK, read_BTHK, total_BTH, *keys = turns.take(starts, [q, *state], memory)
            output_BTHK, log_sum_BTH = kernel.read(q_BTHK, *keys, causal=turns.causal, window=turns.window)
            log_sum_BTH = jnp.where(device < turns.hops, -jnp.inf, log_sum_BTH)
            sum_BTH = jnp.logaddexp(total_BTH, log_sum_BTH)
            shares = [jnp.exp(x - sum_BTH)[..., None] for x in (total_BTH, log_sum_BTH)]
            new = (read_BTHK * shares[0] + output_BTHK * shares[1], sum_BTH)
            return [turns.put(x, starts[0], y) for x, y in zip(state, new, strict=True)], None

        state, _ = jax.lax.scan(turn, state, (jnp.asarray(turns.queries), jnp.asarray(turns.keys)))
    read = state[0].astype(q.dtype)
    return read, (arrays, read, state[1])


def _backward(kernel: Kernel, window: int, residuals: Any, d_read: jax.Array) -> tuple[jax.Array, ...]:
    (q, *own), read, total = residuals
    memory, back = jax.vjp(lambda *own: [_shared(window, x) for x in own], *own)
    sums, device = [as_float32(jnp.zeros_like(x)) for x in (q, *memory)], jax.lax.axis_index(SEQUENCE)
    for turns in _turns(window, q.shape[1]):

        def turn(sums: list[jax.Array], starts: Any, turns: Turns = turns) -> Any:
            of_queries, of_keys = [q, read, total, d_read, sums[0]], [*memory, *sums[1:]]
            q_BTHK, *read_BTHK, dq, k, v, dk, dv = turns.take(starts, of_queries, of_keys)
            options = {"causal": turns.causal, "window": turns.window}
            gradients = kernel.gradients(q_BTHK, k, v, *read_BTHK, **options)
            gradients = [jnp.where(device < turns.hops, 0, x) for x in gradients]
            new = [x + more for x, more in zip((dq, dk, dv), gradients, strict=True)]
            firsts = (starts[0], starts[1], starts[1])
            return [turns.put(x, start, y) for x, start, y in zip(sums, firsts, new, strict=True)], None

        sums, _ = jax.lax.scan(turn, sums, (jnp.asarray(turns.queries), jnp.asarray(turns.keys)))
    dq, *d_memory = (x.astype(q.dtype) for x in sums)
    return dq, *back(d_memory)


_in_turns.defvjp(_forward, _backward)

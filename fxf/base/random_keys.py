"""Random keys whose programs have no 64-bit numbers.

JAX's default keys count the numbers that they draw in 64 bits, which accelerators compute slowly or in halves.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry2x32_p, threefry_prng_impl

from fxf.base.devices import target_devices
from fxf.base.errors import UserError, one_line

# Threefry2x32 (Salmon et al. 2011): the rotations of four rounds, twice, and the constant of the third word of the key.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def seed_of(seed: Any) -> int:
    """Returns a seed, also one of NumPy, as an int. Raises a UserError if it is not an int from 0 to 2**32 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise UserError(f"seed: expected an int from 0 to 2**32 - 1, got {one_line(repr(seed))}")
    return int(seed)


def random_key(seed: Any) -> jax.Array:
    """Returns a key from a seed, whose bits are those of `jax.random.key(seed)`: Threefry's (Salmon et al. 2011).

    The third word of the key is the number of its part (`key_of_part`). Keys that derive from it keep that word.
    """
    return jax.random.key(seed, impl=_KEYS)


def key_of_part(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """Returns a key for part `number` of an array's rows, from 0.

    It draws for the part the numbers that `key` draws there for the whole array, if all parts have the same size, and
    elements of less than 64 bits. A key that is not of `random_key` is folded with the number instead.
    """
    if jax.random.key_impl(key) != _KEYS:
        return jax.random.fold_in(key, number)
    words = jax.random.key_data(key)
    return jax.random.wrap_key_data(words.at[..., 2].set(jnp.asarray(number, jnp.uint32)), impl=_KEYS)


def keys_of_rows(key: jax.Array, n: int) -> jax.Array:
    """Returns a key for each of n rows, as `jax.random.split(key, n)` does; for a key of `key_of_part`, of its rows."""
    if jax.random.key_impl(key) != _KEYS:
        return jax.random.split(key, n)
    words_N2 = jnp.stack(_words(jax.random.key_data(key), (n,)), axis=-1)
    return jax.random.wrap_key_data(jnp.pad(words_N2, ((0, 0), (0, 1))), impl=_KEYS)


def random_words(key: jax.Array, n: int) -> jax.Array:
    """Returns n words of 32 random bits, those of `jax.random.bits(key, (n,), jnp.uint32)`.

    On a CPU, XLA loops over the rounds of Threefry, each of which passes over all words in memory. Here all rounds are
    one expression, for a key of `random_key`, which takes a third of the time (of a step of Transformer-Tiny with
    dropout 0.3: 3 to 4 %). A loop over halves keeps XLA from computing the words again wherever they are used.
    """
    if target_devices()[0].platform != "cpu" or jax.random.key_impl(key) != _KEYS or n >= 2**31:
        return jax.random.bits(key, (n,), jnp.uint32)
    half = -(-n // 2)
    words, counts = jax.random.key_data(key), jax.lax.iota(jnp.uint32, half)
    starts = jnp.array([0, half], jnp.uint32) + words[2] * jnp.uint32(n)
    return jax.lax.map(lambda start: _threefry(words, start + counts), starts).reshape(-1)[:n]


def _threefry(key: jax.Array, counts: jax.Array) -> jax.Array:
    """Returns a random word for each count: both words of Threefry2x32's 20 rounds of (0, count), by exclusive or."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    first, second = jnp.broadcast_to(keys[0], counts.shape), counts + keys[1]
    for i in range(5):
        for bits in ROTATIONS[i % 2]:
            first += second
            second = first ^ (second << bits | second >> (32 - bits))
        first += keys[(i + 1) % 3]
        second += keys[(i + 2) % 3] + jnp.uint32(i + 1)
    return first ^ second


def _words(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns two random words for each element, by its index in row-major order. Fewer than 2^32 elements."""
    counts = jnp.broadcast_to(key[2] * jnp.uint32(math.prod(shape)), shape)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]))
        counts += stride * jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    return threefry2x32_p.bind(key[0], key[1], jnp.zeros_like(counts), counts)


@functools.partial(jax.jit, static_argnums=1)  # outside of other jitted functions it is one program
def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    words = jnp.stack(_words(key.at[2].set(0), shape), axis=-1)
    return jnp.concatenate([words, jnp.broadcast_to(key[2], (*shape, 1))], axis=-1)


@jax.jit
def _seed(seed: jax.Array) -> jax.Array:
    return jnp.append(threefry_prng_impl.seed(seed), jnp.uint32(0))


@jax.jit
def _fold_in(key: jax.Array, number: Any) -> jax.Array:
    return jnp.append(threefry_prng_impl.fold_in(key[:2], number), key[2])


def _random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    if width == 64 or math.prod(shape) >= 2**32:
        of_part = jnp.where(key[2] == 0, key[:2], threefry_prng_impl.fold_in(key[:2], key[2]))
        return threefry_prng_impl.random_bits(of_part, width, shape)
    first, second = _words(key, shape)
    return (first ^ second).astype(f"uint{width}")


_KEYS = define_prng_impl(
    key_shape=(3,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32 with 32-bit counts, in parts",
    tag="fxf",
)

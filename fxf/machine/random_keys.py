"""Random keys whose programs hold no number of 64 bits.

JAX's default keys count the numbers that they draw in 64 bits, which accelerators compute slowly or in halves.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl, threefry2x32_p, threefry_prng_impl


def random_key(seed: Any) -> jax.Array:
    """Returns a key from a seed, whose bits are those of `jax.random.key(seed)`: Threefry's (Salmon et al. 2011)."""
    return jax.random.key(seed, impl=_KEYS)


def _words(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns two random words for each element, by its index in row-major order. Fewer than 2^32 elements."""
    counts = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]))
        counts += stride * jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    return threefry2x32_p.bind(key[0], key[1], jnp.zeros_like(counts), counts)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(_words(key, shape), axis=-1)


def _random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    if width == 64 or math.prod(shape) >= 2**32:
        return threefry_prng_impl.random_bits(key, width, shape)
    first, second = _words(key, shape)
    return (first ^ second).astype(f"uint{width}")


_KEYS = define_prng_impl(
    key_shape=threefry_prng_impl.key_shape,
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=threefry_prng_impl.fold_in,
    name="threefry2x32 with 32-bit counts",
    tag="fxf",
)

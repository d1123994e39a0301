"""Problems of binary numbers of any length: sums, products and square roots (Delétang et al. 2022).

Numbers are arrays of bits, the lowest bit first. Each function draws the symbols of a string of n symbols in an array
[P], the symbols of its answer, and their number.
"""

import jax
import jax.numpy as jnp

from .problem import Draw

EXACT_BITS = 16


def draw_number(key: jax.Array, n_bits: jax.Array, P: int) -> jax.Array:
    """Returns a random number from 1 to 2^n_bits - 1, bits [P].

    Each number is as likely as any other. Beyond 16 bits the number 1 also replaces 0, once in 2^n_bits draws.
    """
    of_small, of_large = jax.random.split(key)
    places = jnp.arange(P)
    small = jax.random.randint(of_small, (), 1, 1 << jnp.minimum(n_bits, EXACT_BITS))
    bits = jax.random.randint(of_large, (P,), 0, 2) * (places < n_bits)
    bits = jnp.where((places == 0) & (bits.sum() == 0), 1, bits)
    return jnp.where(n_bits <= EXACT_BITS, small >> jnp.minimum(places, EXACT_BITS) & 1, bits)


def with_carries(counts: jax.Array) -> jax.Array:
    """Returns the bits of Σ counts_i 2^i, as many as there are counts."""

    def carry(above: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        return (above + count) // 2, (above + count) % 2

    return jax.lax.scan(carry, jnp.int32(0), counts)[1]


def n_digits(bits: jax.Array) -> jax.Array:
    """Returns the number of bits without leading zeros, at least 1."""
    return jnp.max(jnp.where(bits > 0, jnp.arange(len(bits)) + 1, 1))


def _two_numbers(key: jax.Array, n: jax.Array, P: int) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns the symbols of two numbers and their operator, both numbers, and the number of a shorter string.

    A string of n = 1 or 2 symbols is one number below 2^n - 1, as in the public code.
    """
    of_split, of_a, of_b, of_short = jax.random.split(key, 4)
    n_a = jax.random.randint(of_split, (), 1, jnp.maximum(n - 1, 2))
    a, b = draw_number(of_a, n_a, P), draw_number(of_b, jnp.maximum(n - 1 - n_a, 1), P)
    places = jnp.arange(P)
    symbols = jnp.where(places < n_a, a, jnp.where(places == n_a, 2, b[places - n_a - 1]))
    single = jax.random.randint(of_short, (), 0, (1 << jnp.minimum(n, 2)) - 1) >> jnp.minimum(places, 2) & 1
    return jnp.where(n <= 2, single, symbols), a, b, single


def binary_addition(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The sum of two numbers; a string of one or two symbols is a single number, and its own answer."""
    symbols, a, b, single = _two_numbers(key, n, P)
    total = jnp.where(n <= 2, single, with_carries(a + b))
    return symbols, total, n_digits(total)


def binary_multiplication(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The product of two numbers; the answer to two symbols is 0, and the answer to one is empty."""
    symbols, a, b, _ = _two_numbers(key, n, P)
    product = with_carries(jnp.convolve(a, b)[:P].astype(jnp.int32))  # float32 holds these counts
    return symbols, jnp.where(n <= 2, 0, product), jnp.where(n <= 2, n - 1, n_digits(product))


def square_root(bits: jax.Array) -> jax.Array:
    """Returns the bits [P / 2, rounded up] of the largest number whose square is not larger, digit by digit."""
    n_pairs = -(-len(bits) // 2)
    pairs = jnp.pad(bits, (0, 2 * n_pairs - len(bits))).reshape(n_pairs, 2)

    def borrow(first: tuple, then: tuple) -> tuple:
        return then[0] | then[1] & first[0], then[1] & first[1]

    def digit(state: tuple, pair: jax.Array) -> tuple[tuple, None]:
        rest, root = state
        rest, trial = jnp.concatenate([pair, rest[:-2]]), jnp.concatenate([jnp.array([1, 0]), root[:-2]])
        # A place borrows from the next one if it is smaller, or if it is equal and the place before borrows from it.
        borrows, _ = jax.lax.associative_scan(borrow, (rest < trial, rest == trial))
        difference = (rest - trial - jnp.pad(borrows[:-1], (1, 0))) % 2
        fits = ~borrows[-1]
        return (jnp.where(fits, difference, rest), jnp.concatenate([fits[None].astype(jnp.int32), root[:-1]])), None

    zeros = jnp.zeros(n_pairs + 4, jnp.int32)
    (_, root), _ = jax.lax.scan(digit, (zeros, zeros), pairs[::-1])
    return root[:n_pairs]


def compute_sqrt(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The square root of a number, rounded down; both have their highest bit first."""
    number, places = draw_number(key, n, P), jnp.arange(P)
    root, n_root = square_root(number), (n + 1) // 2
    return number[n - 1 - places], root[n_root - 1 - places[: len(root)]], n_root

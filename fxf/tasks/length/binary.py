"""Problems of binary numbers of any length: sums, products and square roots (Delétang et al. 2022).

Numbers are arrays of bits, the lowest bit first.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fxf.tasks.length.problem import Drawn, Problem, drawn

EXACT_BITS = 16


def draw_number(key: jax.Array, n_bits: jax.Array, longest: int) -> jax.Array:
    """Returns a random number from 1 to 2^n_bits - 1, bits [P].

    Each number is as likely as any other. Beyond 16 bits the number 1 stands in for 0 too, once in 2^n_bits draws.
    """
    of_small, of_large = jax.random.split(key)
    places = jnp.arange(longest)
    small = jax.random.randint(of_small, (), 1, 1 << jnp.minimum(n_bits, EXACT_BITS))
    of_few = small >> jnp.minimum(places, EXACT_BITS) & 1
    bits = jax.random.randint(of_large, (longest,), 0, 2) * (places < n_bits)
    bits = jnp.where((places == 0) & (bits.sum() == 0), 1, bits)
    return jnp.where(n_bits <= EXACT_BITS, of_few, bits)


def with_carries(counts: jax.Array) -> jax.Array:
    """Returns the bits of Σ counts_i 2^i, as many as there are counts."""

    def carry(above: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        return (above + count) // 2, (above + count) % 2

    return jax.lax.scan(carry, jnp.int32(0), counts)[1]


def n_digits(bits: jax.Array) -> jax.Array:
    """Returns the number of bits without leading zeros, at least 1."""
    return jnp.max(jnp.where(bits > 0, jnp.arange(len(bits)) + 1, 1))


def square_root(bits: jax.Array) -> jax.Array:
    """Returns the bits [P / 2, rounded up] of the largest number whose square is not larger, digit by digit."""
    n_pairs = -(-len(bits) // 2)
    pairs = jnp.pad(bits, (0, 2 * n_pairs - len(bits))).reshape(n_pairs, 2)

    def digit(state: tuple, pair: jax.Array) -> tuple[tuple, None]:
        rest, root = state
        rest = jnp.concatenate([pair, rest[:-2]])
        trial = jnp.concatenate([jnp.array([1, 0]), root[:-2]])

        def borrow(first: tuple, then: tuple) -> tuple:
            return then[0] | then[1] & first[0], then[1] & first[1]

        # A place borrows from the next one if it is smaller, or if it is equal and the place before borrows from it.
        borrows, _ = jax.lax.associative_scan(borrow, (rest < trial, rest == trial))
        difference = (rest - trial - jnp.pad(borrows[:-1], (1, 0))) % 2
        fits = ~borrows[-1]
        root = jnp.concatenate([fits[None].astype(jnp.int32), root[:-1]])
        return (jnp.where(fits, difference, rest), root), None

    zeros = jnp.zeros(n_pairs + 4, jnp.int32)
    (_, root), _ = jax.lax.scan(digit, (zeros, zeros), pairs[::-1])
    return root[:n_pairs]


def _two_numbers(compute: Callable[[jax.Array, jax.Array], jax.Array], is_sum: bool) -> Callable[..., Drawn]:
    def draw(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
        of_split, of_a, of_b, of_short = jax.random.split(key, 4)
        n_a = jax.random.randint(of_split, (), 1, jnp.maximum(length - 1, 2))
        n_b = jnp.maximum(length - 1 - n_a, 1)
        a, b = draw_number(of_a, n_a, longest), draw_number(of_b, n_b, longest)
        places = jnp.arange(longest)
        symbols = jnp.where(places < n_a, a, jnp.where(places == n_a, 2, b[jnp.clip(places - n_a - 1, 0)]))
        result = compute(a, b)
        # Two symbols have no room for two numbers: a sum is then a number itself, and a product is 0 or nothing.
        number = jax.random.randint(of_short, (), 0, (1 << jnp.minimum(length, 2)) - 1)
        short, of_number = length <= 2, number >> jnp.minimum(places, 2) & 1
        of_short_result = of_number if is_sum else jnp.zeros_like(of_number)
        answer_length = jnp.where(short, n_digits(of_number) if is_sum else length - 1, n_digits(result))
        symbols = jnp.where(short, of_number, symbols)
        return drawn(symbols, length, jnp.where(short, of_short_result, result), answer_length)

    return draw


def _sum(a: jax.Array, b: jax.Array) -> jax.Array:
    return with_carries(a + b)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return with_carries(jnp.convolve(a, b)[: len(a)].astype(jnp.int32))  # float32 holds these counts


binary_addition = _two_numbers(_sum, is_sum=True)
binary_multiplication = _two_numbers(_product, is_sum=False)


def compute_sqrt(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The square root of a number, rounded down; both have their highest bit first."""
    number, places = draw_number(key, length, longest), jnp.arange(longest)
    root, n_root = square_root(number), (length + 1) // 2
    from_highest = number[jnp.clip(length - 1 - places, 0)]
    return drawn(from_highest, length, root[jnp.clip(n_root - 1 - jnp.arange(len(root)), 0)], n_root)


PROBLEMS = {
    "binary_addition": Problem("01+", "01", binary_addition, lambda n: n + 1, ends=True),
    "binary_multiplication": Problem("01*", "01", binary_multiplication, lambda n: n, ends=True),
    "compute_sqrt": Problem("01", "01", compute_sqrt, lambda n: (n + 1) // 2),
}

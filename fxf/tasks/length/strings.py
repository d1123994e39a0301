"""Problems about strings: counts, orders, copies and a stack (Delétang et al. 2022, appendix A)."""

import jax
import jax.numpy as jnp

from fxf.tasks.length.problem import Drawn, Problem, drawn

CYCLE = 5  # places of the circle in cycle navigation
SORTED = 5  # kinds of symbols in bucket sort
POP, PUSH = 2, 3  # stack manipulation: 2 pops, 3 pushes 0, 4 pushes 1


def _symbols(key: jax.Array, longest: int, kinds: int = 2) -> jax.Array:
    return jax.random.randint(key, (longest,), 0, kinds)


def _counts(length: jax.Array, longest: int) -> jax.Array:
    return jnp.arange(longest) < length


def _gathered(symbols_P: jax.Array, places: jax.Array) -> jax.Array:
    return symbols_P[jnp.clip(places, 0, len(symbols_P) - 1)]


def parity(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The number of ones, modulo 2."""
    bits = _symbols(key, longest)
    return drawn(bits, length, jnp.sum(bits * _counts(length, longest), keepdims=True) % 2, 1)


def even_pairs(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The number of pairs 01 and 10, modulo 2: whether the first and the last symbol differ."""
    bits = _symbols(key, longest)
    return drawn(bits, length, bits[:1] ^ bits[length - 1], 1)


def cycle_navigation(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The place on a circle of five after steps to the left (0), none (1), and to the right (2)."""
    steps = _symbols(key, longest, 3)
    return drawn(steps, length, jnp.sum((steps - 1) * _counts(length, longest), keepdims=True) % CYCLE, 1)


def reverse_string(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The string, backwards."""
    bits = _symbols(key, longest)
    return drawn(bits, length, _gathered(bits, length - 1 - jnp.arange(longest)), length)


def duplicate_string(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The string, twice."""
    bits = _symbols(key, longest)
    places = jnp.arange(2 * longest)
    return drawn(bits, length, _gathered(bits, jnp.where(places < length, places, places - length)), 2 * length)


def missing_duplicate(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The symbol that is missing (2) in a string that stands there twice; 3 fills up an odd length.

    A single symbol is 1, and so is its answer.
    """
    of_string, of_place = jax.random.split(key)
    bits, places, half = _symbols(of_string, longest), jnp.arange(longest), length // 2
    twice = jnp.where(places < 2 * half, _gathered(bits, jnp.where(places < half, places, places - half)), 3)
    missing = jax.random.randint(of_place, (), 0, jnp.maximum(2 * half, 1))
    single = length == 1
    symbols = jnp.where(single, 1, jnp.where(places == missing, 2, twice))
    return drawn(symbols, length, jnp.where(single, 1, twice[missing])[None], 1)


def odds_first(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The symbols at places 2, 4, …, and then those at places 1, 3, …, as the public code has it."""
    bits, places, half = _symbols(key, longest), jnp.arange(longest), length // 2
    return drawn(bits, length, _gathered(bits, jnp.where(places < half, 2 * places + 1, 2 * (places - half))), length)


def bucket_sort(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The symbols of five kinds, in order."""
    symbols = _symbols(key, longest, SORTED)
    return drawn(symbols, length, jnp.sort(jnp.where(_counts(length, longest), symbols, SORTED)), length)


def stack_manipulation(key: jax.Array, length: jax.Array, longest: int) -> Drawn:
    """The stack, from its top, after the actions that follow it; to pop an empty stack does nothing.

    A single symbol is a stack without actions.
    """
    of_height, of_bits, of_actions = jax.random.split(key, 3)
    bits, actions = _symbols(of_bits, longest), _symbols(of_actions, longest, 3) + POP
    height = jnp.where(length == 1, 1, jax.random.randint(of_height, (), 1, jnp.maximum(length, 2)))
    places = jnp.arange(longest)
    symbols = jnp.where(places < height, bits, actions)

    def act(stack: tuple, each: tuple) -> tuple[tuple, None]:
        (held, n), (place, symbol) = stack, each
        acts = (place >= height) & (place < length)
        pushes = acts & (symbol >= PUSH)
        held = held.at[jnp.where(pushes, n, longest)].set(symbol - PUSH, mode="drop")
        n = jnp.where(pushes, n + 1, jnp.where(acts, jnp.maximum(n - 1, 0), n))
        return (held, n), None

    (held, n), _ = jax.lax.scan(act, (bits, height), (places, symbols))
    return drawn(symbols, length, _gathered(held, n - 1 - places), n)


PROBLEMS = {
    "even_pairs": Problem("01", "01", even_pairs),
    "parity": Problem("01", "01", parity),
    "cycle_navigation": Problem("<.>", "01234", cycle_navigation),
    "stack_manipulation": Problem("01-oi", "01", stack_manipulation, lambda n: n + 1, ends=True),
    "reverse_string": Problem("01", "01", reverse_string, lambda n: n),
    "duplicate_string": Problem("01", "01", duplicate_string, lambda n: 2 * n),
    "missing_duplicate": Problem("01_.", "01", missing_duplicate),
    "odds_first": Problem("01", "01", odds_first, lambda n: n),
    "bucket_sort": Problem("01234", "01234", bucket_sort, lambda n: n),
}

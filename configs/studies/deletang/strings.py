"""Problems about strings: counts, orders, copies and a stack (Delétang et al. 2022, appendix A).

Each function draws the symbols of a string of n symbols in an array [P], the symbols of its answer, and their number.
Symbols beyond are ignored.
"""

import jax
import jax.numpy as jnp

from .problem import Draw

CYCLE = 5  # places of the circle in cycle navigation
SORTED = 5  # kinds of symbols in bucket sort
POP, PUSH = 2, 3  # stack manipulation: 2 pops, 3 pushes 0, 4 pushes 1


def _symbols(key: jax.Array, P: int, kinds: int = 2) -> jax.Array:
    return jax.random.randint(key, (P,), 0, kinds)


def parity(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The number of ones, modulo 2."""
    bits = _symbols(key, P)
    return bits, jnp.sum(bits * (jnp.arange(P) < n), keepdims=True) % 2, 1


def even_pairs(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The number of pairs 01 and 10, modulo 2: whether the first and the last symbol differ."""
    bits = _symbols(key, P)
    return bits, bits[:1] ^ bits[n - 1], 1


def cycle_navigation(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The place on a circle of five after steps to the left (0), none (1), and to the right (2)."""
    steps = _symbols(key, P, 3)
    return steps, jnp.sum((steps - 1) * (jnp.arange(P) < n), keepdims=True) % CYCLE, 1


def reverse_string(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The string, backwards."""
    bits = _symbols(key, P)
    return bits, bits[n - 1 - jnp.arange(P)], n


def duplicate_string(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The string, twice."""
    bits = _symbols(key, P)
    return bits, bits[jnp.arange(2 * P) % n], 2 * n


def missing_duplicate(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The symbol that is missing (2) in a string that is repeated; 3 pads an odd length.

    A single symbol is 1, and so is its answer.
    """
    of_string, of_place = jax.random.split(key)
    places, half = jnp.arange(P), jnp.maximum(n // 2, 1)
    twice = jnp.where(places < 2 * half, _symbols(of_string, P)[places % half], 3)
    missing = jax.random.randint(of_place, (), 0, jnp.maximum(n // 2 * 2, 1))
    symbols = jnp.where(n == 1, 1, jnp.where(places == missing, 2, twice))
    return symbols, jnp.where(n == 1, 1, twice[missing])[None], 1


def odds_first(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The symbols at places 2, 4, …, and then those at places 1, 3, …, as the public code has it."""
    bits, places, half = _symbols(key, P), jnp.arange(P), n // 2
    return bits, bits[jnp.where(places < half, 2 * places + 1, 2 * (places - half))], n


def bucket_sort(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The symbols of five kinds, in order."""
    symbols = _symbols(key, P, SORTED)
    return symbols, jnp.sort(jnp.where(jnp.arange(P) < n, symbols, SORTED)), n


def stack_manipulation(key: jax.Array, n: jax.Array, P: int) -> Draw:
    """The stack, from its top, after the actions that follow it; popping an empty stack does nothing.

    A single symbol is a stack without actions.
    """
    of_height, of_bits, of_actions = jax.random.split(key, 3)
    bits, actions = _symbols(of_bits, P), _symbols(of_actions, P, 3) + POP
    height = jnp.where(n == 1, 1, jax.random.randint(of_height, (), 1, jnp.maximum(n, 2)))
    symbols = jnp.where(jnp.arange(P) < height, bits, actions)

    def act(place: jax.Array, state: tuple) -> tuple:
        stack, depth = state
        symbol = symbols[place]
        pushes = symbol >= PUSH
        stack = stack.at[jnp.where(pushes, depth, P)].set(symbol - PUSH, mode="drop")
        return stack, jnp.where(pushes, depth + 1, jnp.maximum(depth - 1, 0))

    stack, depth = jax.lax.fori_loop(height, n, act, (bits, height))
    return symbols, stack[depth - 1 - jnp.arange(P)], depth

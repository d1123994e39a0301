"""The contract of a problem: strings of any length, and their answers."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Draw = tuple[jax.Array, jax.Array, Any]  # the symbols of a string and of its answer, and the answer's length


class Problem(NamedTuple):
    """A problem.

    Attributes:
      inputs: the input symbols, one character each.
      outputs: the symbols of answers.
      draw: `draw(key, n, P)` returns the symbols [P] of a string of n symbols, those of its answer, and their number.
        Symbols beyond are ignored. n is an int32 scalar from 1 to the int P.
      tape: returns the number of places that the papers reserve for the answer to a string of this length.
      ends: whether an answer on the tape ends with a symbol of its own, because its length does not follow from the
        string's.
      odd: whether strings have odd lengths; for an even one they are one symbol shorter.
    """

    inputs: str
    outputs: str
    draw: Callable[[jax.Array, jax.Array, int], Draw]
    tape: Callable[[int], int] = lambda n: 1
    ends: bool = False
    odd: bool = False


class Drawn(NamedTuple):
    """Strings and their answers. Symbol i is the token i + 1; zeros pad the strings and the answers.

    Attributes:
      string_BP, answer_BU: tokens, int32.
      length_B, answer_length_B: the numbers of tokens, int32.
    """

    string_BP: Any
    length_B: Any
    answer_BU: Any
    answer_length_B: Any


@functools.partial(jax.jit, static_argnums=(0, 3))
def draw(problem: Problem, key: jax.Array, lengths_B: jax.Array, longest: int) -> Drawn:
    """Returns a string of each length, in arrays of the size of the longest, and its answer."""

    def tokens(symbols: jax.Array, n: jax.Array) -> jax.Array:
        return jnp.where(jnp.arange(len(symbols)) < n, symbols + 1, 0).astype(jnp.int32)

    def one(key: jax.Array, length: jax.Array) -> Drawn:
        n = length - (length % 2 == 0) if problem.odd else length
        symbols_P, answer_U, n_answer = problem.draw(key, n, longest)
        return Drawn(tokens(symbols_P, n), n, tokens(answer_U, n_answer), jnp.int32(n_answer))

    return jax.vmap(one)(jax.random.split(key, len(lengths_B)), lengths_B)

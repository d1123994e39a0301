"""The contract of a problem: strings of any length, and their answers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Drawn(NamedTuple):
    """A string and its answer, as symbols 0, 1, …; what stands after their lengths is 0.

    Attributes:
      symbols_P: int32 [P], of which the first `length` count.
      length: int32 scalar.
      answer_U: int32 [U], of which the first `answer_length` count.
      answer_length: int32 scalar.
    """

    symbols_P: jax.Array
    length: jax.Array
    answer_U: jax.Array
    answer_length: jax.Array


class Problem(NamedTuple):
    """A problem.

    Attributes:
      inputs: the input symbols, one character each.
      outputs: the symbols of answers.
      draw: `draw(key, length, longest) -> Drawn`. The length is an int32 scalar from 1 to the int `longest`, P.
      tape: returns the number of places that the papers reserve for the answer to a string of this length.
      ends: whether an answer on the tape ends with a symbol of its own, because its length does not follow from the
        string's.
    """

    inputs: str
    outputs: str
    draw: Callable[[jax.Array, jax.Array, int], Drawn]
    tape: Callable[[int], int] = lambda length: 1
    ends: bool = False


def drawn(symbols_P: jax.Array, length: jax.Array, answer_U: jax.Array, answer_length: jax.Array | int) -> Drawn:
    """Returns a string and its answer, with 0 after their lengths."""

    def cut(x: jax.Array, n: jax.Array | int) -> jax.Array:
        return jnp.where(jnp.arange(len(x)) < n, x, 0).astype(jnp.int32)

    n, m = jnp.asarray(length, jnp.int32), jnp.asarray(answer_length, jnp.int32)
    return Drawn(cut(symbols_P, n), n, cut(answer_U, m), m)

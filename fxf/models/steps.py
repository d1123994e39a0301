"""Prompts of decoding, and groups of them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# N prompts are a dict of arrays:
#   tokens [N, P], int32: row n has `lengths[n]` tokens (from 0 to P), and padding after them.
#   lengths [N], int32.
#   first [N], int32, optional: the token that the decoder reads before the prompt; 0 by default.
#   positions [N, T], optional: positions[n, 0] is the position of `first[n]`, and positions[n, t] that of token t after
#     it, in the prompt or new. T is at least P + max_tokens; the last new token is never read.
#   numbers [N], int32, optional: a number for each prompt, which seeds its samples; 0, 1, … by default.
#   limits [N], int32, optional: the maximum number of new tokens, from 1 to `max_tokens`, which is the default.
#   Other arrays that the model's prefill reads, such as `source`.
Prompts = dict[str, Any]

LONG, MANY = 128, 64  # each length compiles a program, so only many prompts of half a long length have their own


class PromptGroup(NamedTuple):
    """Prompts that are decoded together.

    Attributes:
      places: the indices of their texts, which become the prompts' numbers; () for 0, 1, …
      max_tokens: the maximum number of new tokens, at least 1; `limits` of the prompts may be lower.
    """

    places: Sequence[int]
    prompts: Prompts
    max_tokens: int

    def whole(self) -> Prompts:
        """Returns the prompts with the defaults of missing arrays."""
        n = len(self.prompts["tokens"])
        defaults = {"first": np.zeros(n), "numbers": self.places or range(n), "limits": np.full(n, self.max_tokens)}
        return {**{name: np.array(values, np.int32) for name, values in defaults.items()}, **self.prompts}

    def at(self, rows: Sequence[int] | np.ndarray) -> "PromptGroup":
        """Returns the group of some of its prompts, by their indices in it."""
        prompts = {name: np.asarray(values)[rows] for name, values in self.prompts.items()}
        return self._replace(places=[self.places[row] for row in rows] if self.places else (), prompts=prompts)


def by_length(group: PromptGroup) -> Iterator[tuple[np.ndarray, PromptGroup]]:
    """Yields the parts of a group, each with the indices of its prompts, the longest first.

    A long prompt would pad all others. So prompts of at most half the length are a part with half the padding, again
    and again, where they are many.
    """
    group = group._replace(places=(), prompts={**group.prompts, "numbers": group.whole()["numbers"]})
    prompts = group.prompts
    lengths_N = np.asarray(prompts["lengths"])
    padded_N = np.full(len(lengths_N), length := prompts["tokens"].shape[1])
    if prompts.keys() <= {"first", "tokens", "lengths", "numbers", "limits"}:  # others may have an entry for each token
        while length > LONG and (lengths_N <= length // 2).sum() >= MANY:
            length //= 2
            padded_N[lengths_N <= length] = length
    for length in np.unique(padded_N)[::-1].tolist():
        places_n = np.flatnonzero(padded_N == length)
        part = group.at(places_n)
        yield places_n, part._replace(prompts={**part.prompts, "tokens": part.prompts["tokens"][:, :length]})


def where_prompts(condition_B: jax.Array, tree: Any, other: Any) -> Any:
    """Returns the elements of `tree`, of arrays [B, ...], for prompts where the condition holds, else of `other`."""

    def where(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(condition_B.reshape(-1, *[1] * (x.ndim - 1)), x, y)

    return jax.tree.map(where, tree, other)

"""The contract of a kind of block, and the kinds: how a block joins its sublayers to the residual stream."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from fxf.config import Choices


class Sublayer(NamedTuple):
    """A sublayer of a block, by functions that map [B, T, D] to [B, T, D].

    Attributes:
      output: the attention, the cross-attention or the feed-forward layer. A block calls it once.
      norm: its norm. With `cross_norm=source` that of cross-attention is the identity, because the source is
        normalized.
      dropout: the dropout of its output.
      post_norm: its second norm, if the block has one for each sublayer.
    """

    output: Callable[[jax.Array], jax.Array]
    norm: Callable[[jax.Array], jax.Array]
    dropout: Callable[[jax.Array], jax.Array]
    post_norm: Callable[[jax.Array], jax.Array] | None = None


class Block(NamedTuple):
    """A kind of block.

    Attributes:
      join: `join(x_BTD, sublayers)` returns the residual stream after the block. The sublayers are attention,
        cross-attention if there is a source, and the feed-forward layer, in this order.
      has_post_norms: whether each sublayer has a second norm.
    """

    join: Callable[[jax.Array, Sequence[Sublayer]], jax.Array]
    has_post_norms: bool = False


def pre_norm(x_BTD: jax.Array, sublayers: Sequence[Sublayer]) -> jax.Array:
    """Returns X + F(N X), for one sublayer F after the other."""
    for layer in sublayers:
        x_BTD = x_BTD + layer.dropout(layer.output(layer.norm(x_BTD)))
    return x_BTD


def post_norm(x_BTD: jax.Array, sublayers: Sequence[Sublayer]) -> jax.Array:
    """Returns N(X + F X), for one sublayer F after the other."""
    for layer in sublayers:
        x_BTD = layer.norm(x_BTD + layer.dropout(layer.output(x_BTD)))
    return x_BTD


def sandwich(x_BTD: jax.Array, sublayers: Sequence[Sublayer]) -> jax.Array:
    """Returns X + M(F(N X)) with the second norm M, for one sublayer F after the other."""
    for layer in sublayers:
        assert layer.post_norm is not None
        x_BTD = x_BTD + layer.dropout(layer.post_norm(layer.output(layer.norm(x_BTD))))
    return x_BTD


def idea(x_BTD: jax.Array, sublayers: Sequence[Sublayer]) -> jax.Array:
    """Returns X + FF(N Y), where Y is what the other sublayers make of X (seed 004, "inspirational idea")."""
    *others, last = sublayers
    return x_BTD + last.dropout(last.output(last.norm(pre_norm(x_BTD, others))))


BLOCKS: Choices[Block] = Choices(
    {
        "pre_norm": Block(pre_norm),
        "post_norm": Block(post_norm),
        "sandwich": Block(sandwich, has_post_norms=True),
        "idea": Block(idea),
    }
)

"""Attention masks and additive score biases."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.errors import UserError
from fxf.layers.cache import Cache
from fxf.layers.config import TransformerConfig
from fxf.layers.position_kinds import of_keys, of_queries
from fxf.layers.positions import POSITIONS, attention_positions, token_positions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mask:
    """The keys that each query may see, and how much their positions weigh.

    Attributes:
      bias: [B, H, T, C], where axes of size 1 repeat. It is added to the scores: the bias of the positional encoding,
        or 0, and -inf for keys that a query may not see. With `attention_implementation` 'chunked', that of a whole
        sequence is 0: `bias_of_rows` makes it for some queries at a time.
      positions: positions of the queries, [B, T], or [B, H, T] for each head; None in cross-attention.
      is_token: bool [B, C], false on padding; None if there is no padding. In decoding it is that of the new tokens,
        [B, T].
      places: the places of the new tokens in the cache, int32 [B, T]; None without a cache.
      documents_BT: the index of each token's document, int32 [B, T]; None if each row is one document. A query sees
        its own document only.
      causal: whether no query sees later tokens.
      global_bias: the bias of global blocks, if `config.global_every` makes any; `bias` is then that of local ones.
      is_global: whether the block is global, a bool scalar; None without `config.global_every`.
    """

    bias: jax.Array
    positions: jax.Array | None = None
    is_token: jax.Array | None = None
    places: jax.Array | None = None
    documents_BT: jax.Array | None = None
    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    global_bias: jax.Array | None = None
    is_global: jax.Array | None = None

    def of_block(self, config: TransformerConfig, index: Any) -> "Mask":
        """Returns the mask of the block with this index, an int or an int32 scalar."""
        if self.global_bias is None:
            return self
        is_global = jnp.asarray((index + 1) % config.global_every == 0)
        bias = jnp.where(is_global, self.global_bias, self.bias)
        return dataclasses.replace(self, bias=bias, global_bias=None, is_global=is_global)


def self_mask(
    config: TransformerConfig,
    positions: jax.Array,
    *,
    causal: bool,
    is_token_BT: jax.Array | None = None,
    documents_BT: jax.Array | None = None,
) -> Mask:
    """Returns the mask of self-attention in a whole sequence, causal or not, with the window of the config.

    Args:
      documents_BT: the index of each token's document, if the rows hold several; None if each row is one document.

    Raises:
      UserError: rows hold several documents, but the tokens of whole rows make the positions.
    """
    if documents_BT is not None and POSITIONS[config.positions].from_tokens is not None:
        walks = f"model.positions '{config.positions}' walks along whole rows"
        raise UserError(f"documents: {walks}; leave attention within a document (task.document_mask) off")
    nothing = jnp.zeros((1, 1, 1, 1))
    is_token_BT = None if is_token_BT is None else _seen_somewhere(is_token_BT)
    mask = Mask(nothing, positions, is_token_BT, documents_BT=documents_BT, causal=causal)
    if config.attention_implementation == "chunked":
        return dataclasses.replace(mask, global_bias=nothing if config.global_every else None)
    bias, global_bias = _biases_of_rows(config, mask, all_rows(mask))
    return dataclasses.replace(mask, bias=bias, global_bias=global_bias)


class Rows(NamedTuple):
    """Some of the queries of a whole sequence: their indices [1, T], and their parts of the fields of the `Mask`."""

    indices_1T: jax.Array
    positions: jax.Array
    documents_BT: jax.Array | None


def all_rows(mask: Mask) -> Rows:
    assert mask.positions is not None
    return Rows(jnp.arange(mask.positions.shape[-1])[None], mask.positions, mask.documents_BT)


def first_tokens(mask: Mask, n: int) -> Mask:
    """Returns the mask of the first n tokens of a sequence, for chunked attention, whose mask holds no bias."""
    parts = (mask.positions, mask.is_token, mask.documents_BT)
    positions, is_token, documents_BT = (None if x is None else x[..., :n] for x in parts)
    return dataclasses.replace(mask, positions=positions, is_token=is_token, documents_BT=documents_BT)


def bias_of_rows(config: TransformerConfig, mask: Mask, rows: Rows) -> jax.Array:
    """Returns the bias of some queries in a block, for chunked attention, whose mask holds no bias."""
    bias, global_bias = _biases_of_rows(config, mask, rows)
    return bias if mask.is_global is None or global_bias is None else jnp.where(mask.is_global, global_bias, bias)


def _biases_of_rows(config: TransformerConfig, mask: Mask, rows: Rows) -> tuple[jax.Array, jax.Array | None]:
    """Returns the bias of some queries for all keys of the sequence, and that of global blocks, if there are any."""
    keys, is_token_BT = mask.positions, mask.is_token
    assert keys is not None
    indices_1C = jnp.arange(keys.shape[-1])[None]
    biases = _biases(config, rows.positions, keys, (rows.indices_1T, indices_1C) if mask.causal else None)
    if is_token_BT is not None:
        seen = is_token_BT[:, None, None]
        if config.window or mask.causal or mask.documents_BT is not None:
            # Padding sees itself, because it may see no token, and a softmax over nothing is NaN.
            seen |= (rows.indices_1T[..., None] == indices_1C[:, None])[:, None]
        biases = jax.tree.map(lambda bias: jnp.where(seen, bias, -jnp.inf), biases)
    if mask.documents_BT is not None:
        assert rows.documents_BT is not None
        same_B1TC = (rows.documents_BT[:, :, None] == mask.documents_BT[:, None])[:, None]
        biases = jax.tree.map(lambda bias: jnp.where(same_B1TC, bias, -jnp.inf), biases)
    bias, global_bias = biases
    if mask.causal and _overwrites(config):
        bias = _hide_overwritten(bias, keys, rows.indices_1T)
    return bias, global_bias


def cached_mask(
    config: TransformerConfig,
    cache: Cache,
    places_BT: jax.Array,
    indices_BT: jax.Array,
    positions: jax.Array,
    is_token_BT: jax.Array | None = None,
) -> Mask:
    """Returns the mask of new tokens over a cache into which they will be written.

    Args:
      places_BT: the places of the new tokens.
      indices_BT: their indices in their rows.
    """
    if not cache.n_places:
        return Mask(jnp.zeros((1, 1, 1, 1)), positions, is_token_BT, causal=True)
    indices_BC = cache.token_indices()
    key_positions = token_positions(config, indices_BC, cache.positions)
    key_positions = attention_positions(config, key_positions, cache.walks_BMCJ)
    biases = _biases(config, positions, key_positions, (indices_BT, indices_BC))
    bias, global_bias = jax.tree.map(cache.hide_unread, biases)
    if _overwrites(config) and is_token_BT is not None:
        bias = _hide_overwritten(bias, key_positions, indices_BT)
    elif _overwrites(config):
        distances_BHTC = of_queries(positions) - of_keys(key_positions)
        bias = _last_of_each_position(bias, distances_BHTC, indices_BC, config.window)
    return Mask(bias, positions, is_token_BT, places_BT, causal=True, global_bias=global_bias)


def cross_mask(is_token_BS: jax.Array) -> Mask:
    """Returns the mask of cross-attention: every query sees the tokens of the other sequence and not its padding."""
    seen_BS = _seen_somewhere(is_token_BS)
    return Mask(jnp.where(seen_BS[:, None, None], 0.0, -jnp.inf), is_token=seen_BS)


def _seen_somewhere(is_token_BC: jax.Array) -> jax.Array:
    """Returns the mask of tokens, in which a row without any is all tokens: attention to nothing is NaN."""
    is_token_BC = jnp.asarray(is_token_BC, bool)
    return is_token_BC | ~is_token_BC.any(axis=1, keepdims=True)


def _biases(
    config: TransformerConfig,
    queries: jax.Array,
    keys: jax.Array,
    indices: tuple[jax.Array, jax.Array] | None,
) -> tuple[jax.Array, jax.Array | None]:
    """Returns two biases: of positions and window, and of positions alone for global blocks (None without such blocks).

    If `indices` of queries and keys are given, both include the causal mask. It compares indices, not positions: XLA
    may round a computed position in two ways.
    """
    bias = POSITIONS[config.positions].bias
    bias_BHTC = jnp.zeros((1, 1, 1, 1)) if bias is None else bias(config.n_heads, queries, keys)
    if indices is not None:
        indices_BT, indices_BC = indices
        bias_BHTC = jnp.where((indices_BT[..., None] >= indices_BC[:, None])[:, None], bias_BHTC, -jnp.inf)
    if not config.window:
        return bias_BHTC, None
    distances_BHTC = of_queries(queries) - of_keys(keys)
    local_BHTC = jnp.where(jnp.abs(distances_BHTC) < config.window, bias_BHTC, -jnp.inf)
    return local_BHTC, bias_BHTC if config.global_every else None


def _overwrites(config: TransformerConfig) -> bool:
    return config.window > 0 and POSITIONS[config.positions].overwrites


def _hide_overwritten(bias_BHTC: jax.Array, keys_BHC: jax.Array, indices_BT: jax.Array) -> jax.Array:
    """Returns the bias of whole rows with -inf for keys at the position of a later key that the query sees."""
    order_BHC = jnp.argsort(keys_BHC, axis=-1, stable=True)
    sorted_BHC = jnp.take_along_axis(keys_BHC, order_BHC, axis=-1)
    is_followed_BHC = sorted_BHC[..., 1:] == sorted_BHC[..., :-1]
    never = jnp.iinfo(order_BHC.dtype).max
    followers_BHC = jnp.where(is_followed_BHC, order_BHC[..., 1:], never)
    followers_BHC = jnp.pad(followers_BHC, ((0, 0), (0, 0), (0, 1)), constant_values=never)
    next_BHC = jnp.take_along_axis(followers_BHC, jnp.argsort(order_BHC, axis=-1), axis=-1)
    return jnp.where(next_BHC[:, :, None] > indices_BT[:, None, :, None], bias_BHTC, -jnp.inf)


def _last_of_each_position(
    bias_BHTC: jax.Array, distances_BHTC: jax.Array, indices_BC: jax.Array, window: int
) -> jax.Array:
    """Returns the bias of single queries, as `_hide_overwritten` has it.

    It goes through the positions of the window, because each hypothesis of a beam has last keys of its own.
    """
    indices_B11C, last_BHTC = indices_BC[:, None, None], jnp.zeros((1, 1, 1, 1), bool)
    for distance in range(1 - window, window):
        there_BHTC = (bias_BHTC > -jnp.inf) & (distances_BHTC == distance)
        latest_BHT1 = jnp.where(there_BHTC, indices_B11C, -1).max(axis=-1, keepdims=True)
        last_BHTC |= there_BHTC & (indices_B11C == latest_BHT1)
    return jnp.where(last_BHTC, bias_BHTC, -jnp.inf)

"""Assertions for your own tests: they find silent mistakes of a new layer, kind of attention or model.

    model = fxf.model("transformer_lm", vocab_size=11, n_layers=2, attention="mine:Sigmoid")
    assert_consistent(model, fxf.initialize(model), {"inputs": tokens_BT})

The bound is measured. Two programs for one function differ by rounding, about as much as one program does when its
weights are rounded differently. Several times as much is allowed.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.models.model import Model

# Programs differ by 0.2 to 0.6 of the change from rounding the weights; with a mistake by thousands of times as much.
ALLOWED = 8
DRAWS = 3
# Each mask of a batch, and the tokens that it masks.
MASKS = {"input_mask": "inputs", "source_mask": "source"}


def assert_consistent(model: Model, params: Params, batch: Mapping[str, Any]) -> None:
    """Asserts everything below that applies to the model.

    Args:
      params: weights that are not zero; a zero weight hides the mistakes of its layer.
      batch: `inputs` int32 [B, T], of at least 2 rows and 4 tokens, and the other arrays that the model reads.
        With `documents` [B, T] of packed rows, documents must not read each other; other assertions drop `documents`.

    Raises:
      AssertionError: names the logits that differ, where, by how much, and how much rounding explains.
    """
    assert np.ptp(batch["inputs"], axis=0).any(), "inputs: all rows are the same, which hides what mixes them"
    params, model = model.to_plain(params), model.plain
    if "documents" in batch:
        assert_documents_apart(model, params, batch)
        batch = {name: value for name, value in batch.items() if name != "documents"}
    assert_rows_independent(model, params, batch)
    assert_padding_unread(model, params, batch)
    if model.step is not None:
        assert_causal(model, params, batch)
        assert_cached_equals_full(model, params, batch)


def assert_cached_equals_full(
    model: Model, params: Params, batch: Mapping[str, Any], *, capacities: Sequence[int] = (), n_hypotheses: int = 2
) -> None:
    """Asserts that decoding with a cache gives the logits of the full forward pass.

    Each row's prompt has another length, from no token to half of the row. Several hypotheses with different tokens
    read the rest token by token. They share the prompt's slots, as in a beam search. Half-way all continue the first:
    new tokens then take the free slots of the others, before older tokens. Use two blocks or more, because with one
    block the logits do not show what the tokens of a prompt saw. Decoding has no padding after a row's tokens, so an
    `input_mask` is ignored.

    Args:
      capacities: numbers of tokens that the cache has room for, T or more; by default T and 2 T + 3.
      n_hypotheses: hypotheses of each prompt; 1 shares nothing.
    """
    assert model.prefill is not None and model.step is not None, "the model does not generate"
    batch = {name: value for name, value in batch.items() if name != "input_mask"}
    n_rows, n_tokens = np.shape(batch["inputs"])
    max_length = n_tokens // 2
    lengths_B = np.arange(n_rows) * max_length // max(n_rows - 1, 1)
    prompts = {**batch, "inputs": np.asarray(batch["inputs"])[:, :max_length], "lengths": lengths_B.astype(np.int32)}

    texts = {name: np.repeat(np.asarray(value), n_hypotheses, axis=0) for name, value in batch.items()}
    lengths_R = np.repeat(lengths_B, n_hypotheses)
    first_R1 = (np.arange(len(lengths_R)) % n_hypotheses == 0)[:, None]
    n_steps = n_tokens - max_length
    half = n_steps // 2 if n_hypotheses > 1 else 0
    others_RT = _others(texts["inputs"])
    shared_RT = np.arange(n_tokens)[None] < lengths_R[:, None] + half
    texts["inputs"] = np.where(first_R1 | shared_RT, texts["inputs"], others_RT)
    _, full_RTV, bound = _full_forward(model, params, texts)

    prefill, step = jax.jit(model.prefill, static_argnums=2), jax.jit(model.step)
    from_first = jax.jit(lambda cache: cache.select(jnp.zeros((n_rows, n_hypotheses), jnp.int32)))
    for capacity in capacities or (n_tokens, 2 * n_tokens + 3):
        cache = prefill(params, prompts, capacity)
        for i in range(n_steps):
            if n_hypotheses > 1 and i in (0, half):
                cache = from_first(cache)
            at = (np.arange(len(lengths_R)), lengths_R + i)
            continues_R = first_R1[:, 0] | (i >= half)
            logits_RV, cache = step(params, cache, np.where(continues_R, texts["inputs"][at], others_RT[at]))
            of = f" in each of {n_hypotheses} hypotheses" if n_hypotheses > 1 else ""
            read = f"{i + 1} tokens{of} after prompts of {lengths_B.tolist()} tokens"
            actual_RV, expected_RV = np.asarray(logits_RV)[continues_R], full_RTV[at][continues_R]
            _assert_close(f"with a cache for {capacity} tokens, {read}", actual_RV, expected_RV, bound)


def assert_causal(model: Model, params: Params, batch: Mapping[str, Any]) -> None:
    """Asserts that no logit depends on a later token of `inputs`."""
    tokens_BT = np.asarray(batch["inputs"])
    apply, full_BTV, bound = _full_forward(model, params, batch)
    for n in range(1, tokens_BT.shape[1]):
        changed = {**batch, "inputs": np.concatenate([tokens_BT[:, :n], _others(tokens_BT[:, n:])], axis=1)}
        actual_BTV = apply(params, changed)
        _assert_close(f"with other tokens from position {n} on", actual_BTV[:, :n], full_BTV[:, :n], bound)


def assert_documents_apart(model: Model, params: Params, batch: Mapping[str, Any]) -> None:
    """Asserts that no logit depends on a token of another document, unless the model refuses `documents`."""
    documents_BT, tokens_BT = np.asarray(batch["documents"]), np.asarray(batch["inputs"])
    try:
        apply, full_BTV, bound = _full_forward(model, params, batch)
    except UserError:
        return
    for document in np.unique(documents_BT):
        inside_BT = documents_BT == document
        actual_BTV = apply(params, {**batch, "inputs": np.where(inside_BT, tokens_BT, _others(tokens_BT))})
        what = f"of document {document} with other tokens in the others"
        _assert_close(what, actual_BTV[inside_BT], full_BTV[inside_BT], bound)


def assert_rows_independent(model: Model, params: Params, batch: Mapping[str, Any]) -> None:
    """Asserts that each row alone has the logits that it has in its batch."""
    apply, full_BTV, bound = _full_forward(model, params, batch)
    for b in range(len(full_BTV)):
        alone = {name: np.asarray(value)[b : b + 1] for name, value in batch.items()}
        _assert_close(f"of row {b} alone", apply(params, alone), full_BTV[b : b + 1], bound)


def assert_padding_unread(model: Model, params: Params, batch: Mapping[str, Any]) -> None:
    """Asserts that tokens masked by `input_mask` or `source_mask` of the batch change no logit."""
    apply, full_BTV, bound = _full_forward(model, params, batch)
    for mask, name in MASKS.items():
        if mask in batch:
            is_token, tokens = np.asarray(batch[mask], bool), np.asarray(batch[name])
            actual_BTV = apply(params, {**batch, name: np.where(is_token, tokens, _others(tokens))})
            read = is_token if name == "inputs" else np.ones(full_BTV.shape[:2], bool)
            _assert_close(f"with other padding in {name}", actual_BTV[read], full_BTV[read], bound)


def _full_forward(
    model: Model, params: Params, batch: Mapping[str, Any]
) -> tuple[Callable[..., np.ndarray], np.ndarray, float]:
    """Returns the full forward pass, its logits [B, T, V], and a bound on their difference from another program's."""
    compiled = _compiled(model.features, model.readout)

    def apply(params: Params, batch: Mapping[str, Any]) -> np.ndarray:
        return np.asarray(compiled(params, batch), np.float64)

    unit = float(jnp.finfo(jax.eval_shape(model.features, params, batch).dtype).eps)
    full = apply(params, batch)
    moved = float(np.spacing(np.float32(np.abs(full).max())))
    rng = np.random.default_rng(0)

    def rounded(w: Any) -> Any:  # numbers of 8 bits are exact
        is_float = jnp.issubdtype(w.dtype, jnp.floating)
        return w * (1 + unit * rng.choice([-1, 1], w.shape)).astype(w.dtype) if is_float else w

    for _ in range(DRAWS):
        moved = max(moved, float(np.abs(apply(jax.tree.map(rounded, params), batch) - full).max()))
    return apply, full, ALLOWED * moved


@functools.lru_cache(maxsize=8)
def _compiled(features: Callable[..., jax.Array], readout: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns a model's compiled forward pass, which its assertions share."""
    return jax.jit(lambda params, batch: readout(params, features(params, batch)))


def _others(tokens: np.ndarray) -> np.ndarray:
    """Returns the tokens, each replaced by the next one in their range, so that all change unless all are equal."""
    low, high = tokens.min(), tokens.max()
    return low + (tokens - low + 1) % (high - low + 1)


def _assert_close(what: str, actual: Any, expected: np.ndarray, bound: float) -> None:
    difference = np.abs(np.asarray(actual, np.float64) - expected)
    if not (difference <= bound).all():  # NaN fails too
        differ = f"logits {what} differ from those of the full forward pass by {difference.max():.2g}"
        raise AssertionError(f"{differ}; rounding explains {bound:.2g}")

"""The contract between a model and the code that trains it or decodes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.base.weights import Params, Spec
from fxf.layers.cache import Cache
from fxf.layers.loss import CROSS_ENTROPY, Loss

Batch = dict[str, jax.Array]


def carried(batch: Batch) -> Batch:
    """Returns the arrays `carry/NAME` of a batch by NAME: the initial carry of a decoder's blocks."""
    return {name.removeprefix("carry/"): x for name, x in batch.items() if name.startswith("carry/")}


def as_they_are(params: Params) -> Params:
    """Returns the params unchanged: the `to_plain` of a model that computes with the weights that it trains."""
    return params


class Model(NamedTuple):
    """Pure functions from a tree of weights to logits, in the manner of optax's `GradientTransformation`.

    `features`, `readout`, `prefill`, `step` and `penalty` take plain params, which `to_plain` returns.

    Attributes:
      spec: the table of the weights that are trained and saved.
      features: `features(params, batch, *, rng=None)` returns the residual stream after the last block, [B, T, D];
        `rng=None` means no dropout.
      readout: `readout(params, features)` returns logits [..., V] of features [..., D], each row alone, by the last
        norm and the final layer.
      prefill: `prefill(params, batch, length)` returns a cache with room for `length` tokens in each row, after reading
        the prompts `batch['inputs']` [B, T]. Row b has `batch['lengths'][b]` tokens before its padding. The batch may
        have `positions` [B, T] of all tokens of the rows, also of those that decoding adds.
      step: `step(params, cache, tokens)` reads one token of each row, int32 [R], and returns logits [R, V] and the
        cache. The rows are the prompts, or, after `Cache.select`, the hypotheses of the first prompt, the second, and
        so on. With a cache that `can_rewind` it also reads several, [R, T], with logits [R, T, V]. A model that does
        not generate has neither prefill nor step.
      loss: the loss that trains the model; it says whether the outputs are logits. Evaluation uses that of `scored`.
      penalty: `penalty(params, step)` returns a scalar that training adds to the mean loss; None for no penalty.
      max_len: the maximum number of tokens in a row when decoding; None for no maximum.
      rolls: whether decoding may go beyond `max_len`. Each new token then sees only the newest `max_len` tokens, except
        through the states of recurrent layers.
      dtype: the type of products with weights.
      width: the size D of the residual stream, if rows of a batch are independent. A CPU may then compute the gradient
        of a large batch in parts, and each device the user's loss of its own rows. None: rows are not independent.
      to_plain: `to_plain(params)` returns the plain params for those of `spec`; see `reparametrized`. It is called once
        for a loss, for an evaluation, and when a run is loaded.
      plain_spec: the table of plain weights; None if it is `spec`.
    """

    spec: Spec
    features: Callable[..., jax.Array]
    readout: Callable[[Any, jax.Array], jax.Array]
    prefill: Callable[[Any, Batch, int], Cache] | None = None
    step: Callable[[Any, Cache, jax.Array], tuple[jax.Array, Cache]] | None = None
    loss: Loss = CROSS_ENTROPY
    penalty: Callable[[Any, jax.Array], jax.Array] | None = None
    max_len: int | None = None
    rolls: bool = False
    dtype: str = "float32"
    width: int | None = None
    to_plain: Callable[[Params], Params] = as_they_are
    plain_spec: Spec | None = None

    @property
    def plain(self) -> "Model":
        """The model whose weights are the plain ones: itself, if it computes with the weights that it trains."""
        if self.to_plain is as_they_are:
            return self
        return self._replace(spec=self.plain_spec or self.spec, to_plain=as_they_are, plain_spec=None)

    @property
    def scored(self) -> "Model":
        """The model with the loss of evaluation: cross-entropy if the outputs are logits, else its own loss."""
        return self._replace(loss=CROSS_ENTROPY) if self.loss.of_logits else self

    @property
    def weights_dtype(self) -> str:
        """The type of the weights, and of their updates."""
        return "float64" if self.dtype == "float64" else "float32"

    def apply(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        """Returns the logits of a batch, [B, T, V]; the params are those of `spec`."""
        plain = self.to_plain(params)
        return self.readout(plain, self.features(plain, batch, rng=rng))


def reparametrized(model: Model, spec: Spec, to_plain: Callable[[Params], Params]) -> Model:
    """Returns the model with the weights of `spec`, which computes what `model` does with `to_plain(params)`.

    Training, saving and resuming use the weights of `spec`. All else uses the plain ones, which are computed once.

    Args:
      to_plain: a pure, differentiable function from params of `spec` to params of `model`.
    """
    return model._replace(spec=spec, to_plain=lambda own: model.to_plain(to_plain(own)), plain_spec=model.plain.spec)


class WholeSequences:
    """`prefill` and `step` of a model without a cache of its own: each step reads the whole sequence."""

    def __init__(self, features: Any, readout: Any) -> None:
        self.features, self.readout = features, readout

    def prefill(self, params: Params, batch: Batch, length: int) -> Cache:
        del params
        tokens_BT = batch["inputs"]
        n_rows, n_tokens = tokens_BT.shape
        # Tokens that are added to a full row are dropped.
        inputs_RT = jnp.zeros((n_rows, max(length, n_tokens)), tokens_BT.dtype).at[:, :n_tokens].set(tokens_BT)
        kept = {name: value for name, value in batch.items() if name not in ("inputs", "lengths")}
        return Cache({"inputs": inputs_RT, **kept}, batch["lengths"])

    def step(self, params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        rows_R = jnp.arange(tokens_R.shape[0])
        inputs_RT = cache.layers["inputs"].at[rows_R, cache.lengths].set(tokens_R)
        layers = {**cache.layers, "inputs": inputs_RT}
        is_token_RT = jnp.arange(inputs_RT.shape[1])[None] <= cache.lengths[:, None]
        x_RTD = self.features(params, {**layers, "input_mask": is_token_RT})
        x_RD = x_RTD[rows_R, cache.lengths]
        return self.readout(params, x_RD), cache.replace(layers=layers, lengths=cache.lengths + 1)

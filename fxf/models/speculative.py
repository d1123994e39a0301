"""Speculative decoding: a smaller model drafts tokens, and one step of the model checks several of them.

A draft t that was drawn from q is accepted with probability min(1, p(t) / q(t)), where p is the model's distribution.
The first rejected draft is replaced by a token drawn from max(p - q, 0), normalized. If all are accepted, a token drawn
from p follows. So answers have the distribution of the model alone (Leviathan et al. 2022, arXiv 2211.17192; Chen et
al. 2023, arXiv 2302.01318). Greedy decoding is the case of distributions with one token.

Letters: I tokens that the model reads in a step, one more than the drafts that it checks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.layers.cache import Cache
from fxf.models.decoder import Decoded, Decoder, Progress
from fxf.models.model import Batch, Model
from fxf.models.sampling import probabilities
from fxf.models.steps import PromptGroup, Prompts, where_prompts


class Speculative(Decoder):
    """A decoder with the answers of `Decoder`, up to rounding, or samples from the same distribution.

    Its programs read the params and the cache of both models, by name.
    """

    def __init__(self, draft: Sequence[Any], model: Model, end_token: Any, **options: Any) -> None:
        """Makes the decoder; other arguments as those of `Decoder`.

        Args:
          draft: the smaller model, its params, and how many tokens it drafts at a time; by default 4.

        Raises:
          UserError: `draft` is malformed, a model does not generate, or the config asks for a beam search.
        """
        smaller, params, self.n_drafts = (*draft, 4)[:3] if len(draft) in (2, 3) else (None, None, 0)
        if not isinstance(self.n_drafts, int) or self.n_drafts < 1:
            raise UserError("draft: expected a model, its params, and, if not 4, how many tokens it drafts, 1 or more")
        self.models, self.drafting = {"model": model, "draft": smaller.plain}, smaller.to_plain(params)
        spec = {name: each.spec for name, each in self.models.items()}
        super().__init__(model._replace(spec=spec, prefill=self.prefill, rolls=False), end_token, **options)
        if not (model.prefill and smaller.prefill) or self.config.beam_width > 1:
            raise UserError("draft: expected two models that generate, without a beam: set decode.beam_width to 1")

    def groups(self, params: Params, groups: Sequence[PromptGroup]) -> list[Decoded]:
        return super().groups({"model": params, "draft": self.drafting}, groups)

    def stream(self, params: Params, group: PromptGroup) -> Iterator[list[int]]:
        """Yields all tokens so far of the group's only prompt, after each step of the model."""
        return super().stream({"model": params, "draft": self.drafting}, group)

    def prefill(self, params: Params, batch: Batch, length: int) -> Cache:
        """Returns the cache of both models after the prompts. Raises a UserError if a model cannot be used this way."""
        layers = {}
        for name, model in self.models.items():
            cache = model.prefill(params[name], batch, length)
            layers[name] = cache.layers
            if not cache.can_rewind:
                raise UserError(f"draft: the {name} cannot remove tokens: it keeps states, or decodes whole sequences")
            if model.max_len and length > model.max_len:
                raise UserError(f"draft: texts of {length} tokens pass model.max_len {model.max_len} of the {name}")
        return cache.replace(layers=layers)

    def stepping(self, params: Params, whole: Params, cache: Cache, tokens: jax.Array, model: Any = None) -> Any:
        """Returns `cast` and the steps of both models."""
        casts, steps = {}, []
        for name, each in self.models.items():
            read = tokens if name == "draft" else jnp.tile(tokens[:, None], self.n_drafts + 1)
            arguments = params[name], whole[name], cache.replace(layers=cache.layers[name]), read
            casts[name], step = super().stepping(*arguments, each)
            steps.append(step)
        return lambda params: [cast(params[name]) for name, cast in casts.items()], tuple(steps)

    def go_on(self, step: Any, weights: Any, prompts: Prompts, key: jax.Array, progress: Progress) -> Progress:
        """Returns the progress after one to I more tokens of each answer."""
        (state, cache, last_B1), (check, guess) = progress, step
        method = self._method(prompts, key)
        n_B, rows_B, indices_I = state.n_tokens_B, jnp.arange(len(last_B1)), jnp.arange(self.n_drafts + 1)

        def keys(use: Any) -> jax.Array:
            return jax.vmap(lambda *of: jax.random.fold_in(method.key_of(*of), use))(state.number_B, n_B)

        def drafted(before: Any, i: jax.Array) -> Any:
            token_B, tokens_BU, cache = before
            logits_BV, cache = guess(weights[1], cache, token_B)
            q_BV = probabilities(self.config, method.rules.applied(logits_BV, tokens_BU, n_B + i))
            token_B = jax.vmap(jax.random.categorical)(keys(i), jnp.log(q_BV)).astype(jnp.int32)
            return (token_B, tokens_BU.at[rows_B, n_B + i].set(token_B), cache), (token_B, q_BV)

        # The last draft is not checked. Its step puts the draft before it into the cache.
        before = last_B1[:, 0], state.tokens_BU, cache.replace(layers=cache.layers["draft"])
        (_, tokens_BU, of_draft), drafts = jax.lax.scan(drafted, before, indices_I)
        drafts_BI, q_BIV = (jnp.moveaxis(x, 0, 1) for x in drafts)
        read_BI = jnp.concatenate([last_B1, drafts_BI[:, :-1]], axis=1)
        logits_BIV, of_model = check(weights[0], cache.replace(layers=cache.layers["model"]), read_BI)
        if logits_BIV.shape != q_BIV.shape:
            raise UserError(f"draft: expected {logits_BIV.shape[2]} tokens as the model has, got {q_BIV.shape[2]}")
        so_far = jnp.repeat(tokens_BU, len(indices_I), axis=0), (n_B[:, None] + indices_I[None]).reshape(-1)
        logits_RV = method.rules.applied(logits_BIV.reshape(-1, logits_BIV.shape[2]), *so_far)
        p_BIV = probabilities(self.config, logits_RV).reshape(q_BIV.shape)
        chances_BI = jax.vmap(lambda key: jax.random.uniform(key, indices_I.shape))(keys(len(indices_I)))
        n_accepted_B, rest_BV = accepted(drafts_BI, p_BIV, q_BIV, chances_BI)
        own_B = jax.vmap(jax.random.categorical)(keys(len(indices_I) + 1), jnp.log(rest_BV)).astype(jnp.int32)
        new_BI = jnp.where(indices_I[None] < n_accepted_B[:, None], drafts_BI, own_B[:, None])
        # Where the rules allow no token, the answer ends.
        new_BI = jnp.where(jnp.isneginf(logits_RV).all(1).reshape(new_BI.shape), self.ends[0], new_BI)
        new, n_new_B = method.with_tokens(state, new_BI, n_accepted_B + 1)
        layers = {"model": of_model.layers, "draft": of_draft.layers}
        cache = cache.replace(layers=layers, lengths=cache.lengths + n_new_B)
        return where_prompts(state.is_finished_B, state, new), cache, new_BI[rows_B, n_new_B - 1][:, None]


def accepted(drafts_BI: jax.Array, p_BIV: jax.Array, q_BIV: jax.Array, chances_BI: jax.Array) -> tuple[Any, Any]:
    """Returns how many drafts are accepted, of all but the last, [B], and the weights of the token after them, [B, V].

    Args:
      p_BIV, q_BIV: the probabilities of tokens by the model, and those from which the drafts were drawn.
      chances_BI: random numbers, uniform in [0, 1).
    """
    p_BI, q_BI = (jnp.take_along_axis(x_BIV, drafts_BI[..., None], 2)[..., 0] for x_BIV in (p_BIV, q_BIV))
    n_accepted_B = jnp.cumprod((chances_BI * q_BI < p_BI)[:, :-1], axis=1).sum(1)
    rows_B, all_accepted_B1 = jnp.arange(len(n_accepted_B)), n_accepted_B[:, None] == drafts_BI.shape[1] - 1
    p_BV, q_BV = p_BIV[rows_B, n_accepted_B], jnp.where(all_accepted_B1, 0, q_BIV[rows_B, n_accepted_B])
    rest_BV = jnp.maximum(p_BV - q_BV, 0)
    # Between two equal distributions, rounding may leave a difference of 0 everywhere.
    return n_accepted_B, jnp.where(rest_BV.sum(1, keepdims=True) > 0, rest_BV, p_BV)

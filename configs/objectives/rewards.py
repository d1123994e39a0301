"""Group relative policy optimization (GRPO, Shao et al. 2024, arXiv 2402.03300) of a run that reverses sequences.

fxf train --config=objectives/rewards:RUN --workdir=runs/rewarded

Each prompt has several sampled answers. The reward of an answer is its share of right tokens, compared with the other
answers to the prompt. Each batch is used for one step only, so no ratio of probabilities is clipped. Nothing keeps the
model near the run that it starts from: the paper's term with the KL divergence is left out.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params
from fxf.layers.cache import Cache
from fxf.layers.loss import Loss
from fxf.layers.named import figure, named, term
from fxf.models import RegisteredModel
from fxf.models.model import Batch, Model
from fxf.models.transformer_lm import TransformerLM, TransformerLMConfig, transformer_lm


@dataclasses.dataclass(frozen=True)
class RewardedConfig(TransformerLMConfig):
    answers: int = key(8, "sampled answers to a prompt", minimum=2)


class Rewarded(TransformerLM):
    """A model that samples answers in training, and whose only objective is the term of their rewards."""

    config: RewardedConfig

    def sampled(self, params: Params, rows: Batch, lengths_R: jax.Array, rng: jax.Array) -> jax.Array:
        """Returns the sampled tokens [R, T] that follow the first `lengths_R + 1` inputs of each row."""
        params, inputs_RT = jax.lax.stop_gradient(params), rows["inputs"]
        n_tokens = inputs_RT.shape[1]
        model: Any = self.model()  # it decodes by the whole sequence if a layer has no cache

        def one(carry: tuple[Cache, jax.Array], rng: jax.Array) -> tuple[Any, jax.Array]:
            cache, last_R = carry
            logits_RV, cache = model.step(params, cache, last_R)
            token_R = jax.random.categorical(rng, logits_RV)
            return (cache, token_R), token_R

        cache = model.prefill(params, {**rows, "lengths": lengths_R}, n_tokens)
        last_R = jnp.take_along_axis(inputs_RT, lengths_R[:, None], axis=1)[:, 0]
        return jax.lax.scan(one, (cache, last_R), jax.random.split(rng, n_tokens))[1].T

    def features(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        if rng is None:  # not in training
            return super().features(params, batch)
        rows = {name: jnp.repeat(x, self.config.answers, axis=0) for name, x in batch.items()}
        targets_RT, is_answer_RT = rows["targets"], rows["weights"] > 0
        n_R, first_R = jnp.maximum(is_answer_RT.sum(1), 1), is_answer_RT.argmax(1)
        place_RT = jnp.arange(targets_RT.shape[1])[None] - first_R[:, None]
        new_RT = jnp.take_along_axis(self.sampled(params, rows, first_R, rng), jnp.maximum(place_RT, 0), 1)
        tokens_RT = named("answers", jnp.where(place_RT < 0, targets_RT, new_RT))
        right_RT = is_answer_RT & (tokens_RT == targets_RT)
        rewards_BN = (right_RT.sum(1) / n_R).reshape(-1, self.config.answers)
        better_BN = (rewards_BN - rewards_BN.mean(1, keepdims=True)) / (rewards_BN.std(1, keepdims=True) + 1e-4)
        read_RT = jnp.concatenate([rows["inputs"][:, :1], tokens_RT[:, :-1]], axis=1)
        logits_RTV = self.readout(params, super().features(params, {**rows, "inputs": read_RT}, rng=rng))
        log_p_RT = jnp.take_along_axis(jax.nn.log_softmax(logits_RTV), tokens_RT[..., None], axis=-1)[..., 0]
        term("policy", -(better_BN.ravel() * (is_answer_RT * log_p_RT).sum(1) / n_R).sum(), len(n_R))
        figure("reward", rewards_BN.mean())
        return super().features(params, batch)  # for the loss, which trains nothing


def nothing(readout: Any, x_BTD: Any, targets_BT: Any, weights_BT: Any, *_: Any, **options: Any) -> Any:
    return jnp.zeros(()), weights_BT.sum()


def rewarded(config: RewardedConfig, vocab_size: int) -> Model:
    return transformer_lm(config, vocab_size, Rewarded)._replace(loss=Loss(nothing, of_logits=True))


REWARDED = RegisteredModel(RewardedConfig, rewarded, in_place_of="transformer_lm")


def get_config(run: str) -> ConfigDict:
    config = ConfigDict(fxf.load(run).config)
    with config.unlocked():
        config.model.update(name="rewards:REWARDED", answers=8)
    config.start.update(path=str(Path(run).resolve()), weights="*", adapters="")  # all weights
    config.optimizer.learning_rate /= 10
    return config

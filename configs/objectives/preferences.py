"""Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290) of a run that reverses sequences.

fxf train --config=objectives/preferences:RUN --workdir=runs/preferring

The two rows of a pair have the same prompt: first the right answer, then one with another symbol in each place. Each
part of a batch (a microbatch, or a device of pmap) needs an even number of rows.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params
from fxf.layers.loss import Loss
from fxf.layers.named import figure, term
from fxf.models import RegisteredModel
from fxf.models.model import Batch, Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.tasks import RegisteredTask
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo, language_model_batch

loaded = functools.cache(fxf.load)


@dataclasses.dataclass(frozen=True)
class PreferringConfig(TransformerLMConfig):
    before: str = key("", "the run folder whose weights training starts from")
    beta: float = key(0.1, "factor of the difference of log-probabilities", above=0)


class Pairs(Reversal):
    def __init__(self, config: ReversalConfig, run: RunInfo) -> None:
        super().__init__(config, run)
        self.batch_size //= 2

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        right = super().batch(key, step)
        targets_BT, weights_BT = right["targets"], right["weights"]
        others_BT = jnp.where((weights_BT > 0) & (targets_BT > 0), targets_BT % self.config.n_tokens + 1, targets_BT)
        others = right | language_model_batch(others_BT, weights_BT)
        return jax.tree.map(lambda a, b: jnp.stack([a, b], axis=1).reshape(-1, a.shape[-1]), right, others)


def preferring(config: PreferringConfig, vocab_size: int) -> Model:
    model, before = transformer_lm(config, vocab_size), loaded(config.before)

    def log_probability(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
        log_p_BTV = jax.nn.log_softmax(logits_BTV.astype(jnp.float32))
        return (batch["weights"] * jnp.take_along_axis(log_p_BTV, batch["targets"][..., None], -1)[..., 0]).sum(1)

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        x_BTD = model.features(params, batch, rng=rng)
        if rng is not None:  # in training
            before_B = log_probability(before.experiment.model.apply(before.params, batch), batch)
            gain_B = log_probability(model.readout(params, x_BTD), batch) - before_B
            margin_N, is_real_N = gain_B[::2] - gain_B[1::2], (batch["weights"] > 0).any(1)[::2]  # others fill a batch
            loss_N = jnp.where(is_real_N, -jax.nn.log_sigmoid(config.beta * margin_N), 0)
            term("preference", loss_N.sum(), is_real_N.sum())
            figure("margin", margin_N.sum() / jnp.maximum(is_real_N.sum(), 1))
        return x_BTD

    # Only the term is learned. It compares rows, so `width` is None, and a CPU does not split the batch.
    nothing = Loss(lambda readout, x, targets, weights, *_, **options: (jnp.zeros(()), weights.sum()), of_logits=True)
    return model._replace(features=features, width=None, loss=nothing)


PAIRS = RegisteredTask({"task": ReversalConfig}, Pairs, ("transformer_lm",))
PREFERRING = RegisteredModel(PreferringConfig, preferring, in_place_of="transformer_lm")


def get_config(run: str) -> ConfigDict:
    run = str(Path(run).resolve())
    config = ConfigDict(fxf.load(run).config)
    with config.unlocked():
        config.task.name = "preferences:PAIRS"
        config.model.update(name="preferences:PREFERRING", before=run, beta=0.1)
    config.start.update(path=run, weights="*", adapters="")  # all weights, whatever the run itself started from
    config.optimizer.learning_rate /= 10
    return config

"""Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290) of a run that reverses sequences.

fxf train --config=objectives/preferences:RUN --workdir=runs/preferring

A pair of rows has the same prompt. The right answer comes first, then one with another symbol in each place.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.errors import UserError
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
    beta: float = key(0.1, "how much the difference of the log-probabilities counts", above=0)


class Pairs(Reversal):
    def __init__(self, config: ReversalConfig, run: RunInfo) -> None:
        super().__init__(config, run)
        if self.batch_size % (2 * run.train.microbatches):
            rows = f"{self.batch_size} / train.microbatches {run.train.microbatches}"
            raise UserError(f"train.batch_size: a pair is two rows of one part; expected an even number, got {rows}")
        self.batch_size //= 2

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        right, n_tokens = super().batch(key, step), self.config.n_tokens
        targets_BT, weights_BT = right["targets"], right["weights"]
        others_BT = jnp.where((weights_BT > 0) & (targets_BT > 0), targets_BT % n_tokens + 1, targets_BT)
        others = right | language_model_batch(others_BT, weights_BT)
        pairs = jax.tree.map(lambda *x: jnp.stack(x, axis=1), right, others)
        return jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), pairs)


def preferring(config: PreferringConfig, vocab_size: int) -> Model:
    model, before = transformer_lm(config, vocab_size), loaded(config.before)

    def log_probability(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
        log_p_BTV = jax.nn.log_softmax(logits_BTV.astype(jnp.float32))
        return (batch["weights"] * jnp.take_along_axis(log_p_BTV, batch["targets"][..., None], -1)[..., 0]).sum(1)

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        x_BTD = model.features(params, batch, rng=rng)
        if rng is not None:  # in training
            if len(x_BTD) % 2:  # of a device under pmap
                raise UserError("train.batch_size: a pair is two rows of one part, but each device has an odd number")
            earlier_B = log_probability(before.experiment.model.apply(before.params, batch), batch)
            better_N, worse_N = (log_probability(model.readout(params, x_BTD), batch) - earlier_B).reshape(-1, 2).T
            term("preference", -jax.nn.log_sigmoid(config.beta * (better_N - worse_N)).sum(), len(better_N))
            figure("margin", (better_N - worse_N).mean())
        return x_BTD

    # Nothing but the term is learned, which compares rows: without a width a CPU does not cut the batch.
    return model._replace(features=features, width=None, loss=Loss(nothing, of_logits=True))


def nothing(readout: Any, x_BTD: Any, targets_BT: Any, weights_BT: Any, *_: Any, **options: Any) -> Any:
    return jnp.zeros(()), weights_BT.sum()


PAIRS = RegisteredTask({"task": ReversalConfig}, Pairs, ("transformer_lm",))
PREFERRING = RegisteredModel(PreferringConfig, preferring, in_place_of="transformer_lm")


def get_config(run: str) -> ConfigDict:
    run = str(Path(run).resolve())
    config = ConfigDict(fxf.load(run).config)
    with config.unlocked():
        config.task.name = "preferences:PAIRS"
        config.model.update(name="preferences:PREFERRING", before=run, beta=0.1)
    config.start.update(path=run, weights="*", adapters="")  # all of the run, whatever it took of another one
    config.optimizer.learning_rate /= 10
    return config

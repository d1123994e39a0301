"""A model that also learns the probabilities of a trained run, its teacher (Hinton et al. 2015, arXiv 1503.02531).

fxf train --config=objectives/teacher:RUN --workdir=runs/student
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
from fxf.layers.named import term
from fxf.models import RegisteredModel
from fxf.models.model import Batch, Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm

loaded = functools.cache(fxf.load)


@dataclasses.dataclass(frozen=True)
class StudentConfig(TransformerLMConfig):
    teacher: str = key("", "the run folder of the teacher")
    temperature: float = key(2.0, "the logits of both are divided by this", above=0)


def student(config: StudentConfig, vocab_size: int) -> Model:
    model, teacher = transformer_lm(config, vocab_size), loaded(config.teacher)

    def log_probabilities(logits_BTV: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(logits_BTV.astype(jnp.float32) / config.temperature)

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        x_BTD = model.features(params, batch, rng=rng)
        if rng is not None:  # in training
            theirs_BTV = log_probabilities(teacher.experiment.model.apply(teacher.params, batch))
            mine_BTV = log_probabilities(model.readout(params, x_BTD))
            divergence_BT = (jnp.exp(theirs_BTV) * (theirs_BTV - mine_BTV)).sum(-1)
            # The square keeps the gradient as large as that of the loss.
            term("teacher", config.temperature**2 * (batch["weights"] * divergence_BT).sum(), batch["weights"].sum())
        return x_BTD

    return model._replace(features=features)


STUDENT = RegisteredModel(StudentConfig, student, in_place_of="transformer_lm")


def get_config(run: str) -> ConfigDict:
    run = str(Path(run).resolve())
    config = ConfigDict(fxf.load(run).config)
    with config.unlocked():
        config.model.update(name="teacher:STUDENT", teacher=run, temperature=2.0)
    return config

"""Multi-token prediction: in training, more heads on the same trunk predict the tokens after the next one.

Gloeckle et al. 2024, "Better & Faster Large Language Models via Multi-token Prediction", arXiv 2404.19737. A head is a
block; the head of the next token is the model's last block, and the only one outside training. All share the final
layer.

fxf train --config=ideas/multi_token --workdir=runs/multi_token

test_loss 1.34, without the second head 1.35. metrics.jsonl has term/multi_token/2, the loss of the token after the
next one. It takes about a minute.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec
from fxf.layers.dropout import split
from fxf.layers.layer import Context
from fxf.layers.loss import cross_entropy
from fxf.layers.named import term
from fxf.layers.positions import places_of
from fxf.models import RegisteredModel
from fxf.models.model import Batch
from fxf.models.transformer_lm import TransformerLM, TransformerLMConfig, transformer_lm


@dataclasses.dataclass(frozen=True)
class MultiTokenConfig(TransformerLMConfig):
    """The `model` section of a transformer with heads for later tokens."""

    ahead: int = key(2, "number of tokens that training predicts after each token, including the next", minimum=1)
    ahead_weight: float = key(1.0, "factor of the losses of the tokens after the next one", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_layers < 2:
            raise UserError("model.n_layers: expected at least 2, because the last block is a head; got 1")


class MultiToken(TransformerLM):
    """A model whose training adds the losses of later tokens, Σ_i -log p(x_{t+i} | x_1 … x_t), as terms."""

    config: MultiTokenConfig

    def spec(self) -> Spec:
        head = self.decoder.blocks[-1].spec()
        return {**super().spec(), "heads": {str(i): head for i in range(self.config.ahead - 1)}}

    def features(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        if rng is None:
            return super().features(params, batch)
        x_BTD, arrays = fxf.edited(super().features, read="residual")(params, batch, rng=rng)
        places = places_of(self.config, batch, split(rng, 3)[2], causal=True)
        keys, head = jax.random.split(jax.random.fold_in(rng, 1), self.config.ahead), self.decoder.blocks[-1]
        for i in range(1, self.config.ahead):
            context = Context(places, batch["inputs"], rng=keys[i])
            y, _ = head.apply(params["heads"][f"{i - 1}"], arrays["residual"][-2], context)
            later = {name: jnp.roll(batch[name], -i, 1).at[:, -i:].set(0) for name in TOKENS if name in batch}
            same = later["documents"] == batch["documents"] if "documents" in batch else 1
            tokens, read = (later["targets"], later["weights"] * same), functools.partial(self.readout, params)
            total, weight = cross_entropy(read, self.decoder.finish(y), *tokens, vocab_size=self.vocab_size)
            term(f"multi_token/{i + 1}", self.config.ahead_weight * total, weight)
        return x_BTD


TOKENS = ("targets", "weights", "documents")
MODEL = RegisteredModel(MultiTokenConfig, functools.partial(transformer_lm, kind=MultiToken), "transformer_lm")


def get_config() -> ConfigDict:
    config = fxf.read_config("characters")
    with config.unlocked():
        config.model.update(name="multi_token:MODEL", d_model=64, d_ff=256, max_len=64, ahead=2, ahead_weight=1.0)
    config.task.length, config.train.steps = 64, 400
    return config

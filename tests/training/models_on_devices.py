"""Trains models with modules of Flax, with adapters, with experts and with terms on one and on eight devices.

It prints the differences as JSON; tests/training/test_sharding.py runs this in a new process.
"""

import json

import eight_devices
import flax.linen as nn
import jax
import optax
from eight_devices import ADAM, KEEP, LAYOUTS, MODEL, PMAP, SIZES, VOCAB_SIZE, compare
from flax import nnx
from terms_model import model_of

from fxf.layers.kinds import LAYERS
from fxf.layers.loss import Loss
from fxf.models.lora import LoraConfig, lora
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs.in_memory import fit, initialize, language_model_batch
from fxf.training.fine_tuning import freeze, without_frozen_gradient


def named(*axes):
    return nn.with_partitioning(nn.initializers.lecun_normal(), axes)


class Mlp(nn.Module):
    cached = True
    d_model: int
    d_ff: int

    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(self.d_ff, kernel_init=named("embed", "mlp"))(x))
        return nn.Dense(self.d_model, kernel_init=named("mlp", "embed"))(x)


class Gate(nnx.Module):
    cached = True

    def __init__(self, d_model: int, *, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "mlp"))
        self.gate = nnx.Linear(d_model, d_model, kernel_init=init, rngs=rngs)

    def __call__(self, x):
        return x * nnx.sigmoid(self.gate(x))


if __name__ == "__main__":
    eight_devices.start_jax(8)
    jax.config.update("jax_numpy_rank_promotion", "allow")  # as in Flax
    LAYERS["Mlp"], LAYERS["Gate"] = Mlp, Gate
    layers = transformer_lm(TransformerLMConfig(**SIZES, blocks="attention+Gate+Mlp"), VOCAB_SIZE)
    adapters = without_frozen_gradient(lora(MODEL, LoraConfig(rank=3, weights="*/query,*/output,*/up")), "")
    experts = {"n_experts": 8, "top_k": 3, "d_shared": 4, "bias_rate": 0.01, "balance": 0.1}
    mixture = {"blocks": "attention+moe", "gated": True, "activation": "silu", "layers": {"moe": experts}}
    adam = optax.chain(KEEP, freeze(optax.adam(1e-2, **ADAM), adapters.spec, ""))
    # Each row must be distinguished from all others of the batch.
    contrast = Loss(lambda _, x, *__: (-jax.numpy.trace(jax.nn.log_softmax(x[:, 0] @ x[:, 1].T)), len(x)), False)
    rows = {"data 2, fsdp 2, tensor 2": ({"fsdp": 2, "tensor": 2}, 2)}
    over_experts = {
        "data 2, expert 4": ({"expert": 4}, 1),
        "expert 2, sequence 2, tensor 2": ({"expert": 2, "sequence": 2, "tensor": 2}, 1),
    }
    found = {
        "experts": compare(over_experts, model=transformer_lm(TransformerLMConfig(**SIZES, **mixture), VOCAB_SIZE)),
        "layers": compare(rows, model=layers),
        "rows": compare({"data 8": ({}, 1)}, model=MODEL._replace(width=None, loss=contrast)),
        "adapters": compare({**LAYOUTS, **PMAP}, model=adapters, optimizer=adam),
        "terms": compare({**rows, **PMAP}, model=model_of()),
    }
    elsewhere = jax.device_put(initialize(MODEL), jax.devices()[3])
    fit(MODEL, lambda *_: language_model_batch(jax.numpy.ones((2, 6), int)), steps=1, params=elsewhere)
    print(json.dumps(found))

"""Trains models with modules of Flax on one and on four devices, and prints how far apart they are, as JSON.

tests/training/test_sharding.py runs this in a process of its own.
"""

import json
import sys
from pathlib import Path

import eight_devices
import flax.linen as nn
import jax
from flax import nnx

from fxf.layers.kinds import LAYERS
from fxf.models.flax_model import of_module
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm

LAYOUTS = {"fsdp 2, tensor 2": ({"fsdp": 2, "tensor": 2}, 2)}


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


class Whole(nn.Module):
    @nn.compact
    def __call__(self, tokens, documents=None):
        mask = nn.make_causal_mask(tokens)
        if documents is not None:
            mask = mask * nn.make_attention_mask(documents, documents, jax.numpy.equal)
        x = nn.Embed(eight_devices.VOCAB_SIZE, 8, embedding_init=named("vocabulary", "embed"))(tokens)
        x = x + Mlp(8, 12)(nn.MultiHeadDotProductAttention(2)(x, mask=mask))
        return nn.Dense(eight_devices.VOCAB_SIZE, kernel_init=named("embed", "vocabulary"))(x)


if __name__ == "__main__":
    eight_devices.start_jax(4)
    jax.config.update("jax_numpy_rank_promotion", "allow")  # as Flax does
    LAYERS["Mlp"], LAYERS["Gate"] = Mlp, Gate
    config = TransformerLMConfig(**eight_devices.SIZES, blocks="attention+Gate+Mlp")
    models = {
        "layers": transformer_lm(config, eight_devices.VOCAB_SIZE),
        "model": of_module(Whole(), eight_devices.VOCAB_SIZE),
    }
    found = {}
    for name, eight_devices.MODEL in models.items():
        eight_devices.start.cache_clear()
        found[name] = eight_devices.compare(Path(sys.argv[1]), LAYOUTS)
    print(json.dumps(found))

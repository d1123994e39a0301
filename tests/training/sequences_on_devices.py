"""Computes attention on one device and where eight share the sequences; prints how far apart they are, as JSON.

tests/training/test_sharding.py runs this in a process of its own; eight_devices.py takes `parts`. With `more`, models
are those of `MODELS`. A plain function stands in for a part of cuDNN's attention, and JAX interprets that of TPUs.
"""

import functools
import json
import sys
from types import SimpleNamespace

import eight_devices
import jax
import jax.numpy as jnp
import numpy as np

from flash_models import MODELS as MAKE
from flash_models import a_batch
from fxf.base.devices import over_mesh
from fxf.layers import chunked_attention, context_parallel, cudnn_attention, flash_attention, splash_attention
from fxf.layers.config import TransformerConfig
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig
from fxf.training.gradient import loss_and_gradient
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from helpers import VOCAB_SIZE, random_params, small

LENGTH = 24
LAYOUTS = ({"data": 1, "sequence": 8}, {"data": 1, "fsdp": 3, "sequence": 2}, {"data": 1, "sequence": 4, "tensor": 2})
MODELS = {
    "three heads": (TransformerLMConfig, {}),
    "a window and all": (
        TransformerLMConfig,
        {"n_heads": 4, "head_dim": 2, "n_kv_heads": 2, "positions": "rotary", "window": 7, "n_layers": 2, "global_every": 2},
    ),
    "padding": (MaskedLMConfig, {"positions": "alibi", "window": 2, "n_kv_heads": 1}),
    "source": (EncoderDecoderConfig, {"positions": "learned", "n_layers": 1}),
    "documents": (TransformerLMConfig, {"positions": "none"}),
}


def scores_of(scale, q_BTHK, k_BSGK, causal, window=0):
    q_BTGEK = q_BTHK.reshape(*q_BTHK.shape[:2], k_BSGK.shape[2], -1, q_BTHK.shape[-1])
    scores = scale * jnp.einsum("BTGEK,BSGK->BGETS", q_BTGEK, k_BSGK)
    queries, keys = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
    seen = ((queries >= keys) | (not causal)) & ((queries - keys < window) | (not window))
    return jnp.where(seen.reshape(1, 1, 1, *seen.shape), scores, -jnp.inf)


def part(scale, q_BTHK, k_BSGK, v_BSGK, causal, window=0):
    """Returns what queries read of some keys, and the logarithms of the sums of exponentials."""
    scores = scores_of(scale, q_BTHK, k_BSGK, causal, window)
    read = jnp.einsum("BGETS,BSGK->BTGEK", jax.nn.softmax(scores), v_BSGK).reshape(q_BTHK.shape)
    return read, jax.nn.logsumexp(scores, -1).reshape(len(read), -1, read.shape[1])


def gradients_of_part(scale, q_BTHK, k_BSGK, v_BSGK, read, logarithms, of_read, causal):
    """Returns gradients by the rule for softmax: weight · (gradient by the weight - their mean by weight)."""
    scores, back = jax.vjp(lambda q, k: scores_of(scale, q, k, causal), q_BTHK, k_BSGK)
    weights = jnp.exp(scores - logarithms.reshape(*scores.shape[:-1], 1))
    of_read_BTGEK = of_read.reshape(*of_read.shape[:2], k_BSGK.shape[2], -1, of_read.shape[-1])
    of_weights = jnp.einsum("BTGEK,BSGK->BGETS", of_read_BTGEK, v_BSGK)
    mean = (read * of_read).sum(-1).swapaxes(1, 2).reshape(*scores.shape[:-1], 1)
    return *back(weights * (of_weights - mean)), jnp.einsum("BGETS,BTGEK->BSGK", weights, of_read_BTGEK)


def parts():
    """Returns how far attention of sequences in parts is from that of whole ones."""
    scale, found = 0.7, []
    kernel = context_parallel.Kernel(functools.partial(part, scale), functools.partial(gradients_of_part, scale))

    def whole(window, *arrays):
        return part(scale, *arrays, True, window)[0]

    cases = [
        ({"data": 1, "sequence": 4, "tensor": 2}, (1, 27, 4, 2), 0),
        ({"fsdp": 2, "sequence": 4}, (3, 13, 3, 3), 6),  # keys of two devices before a query's
    ]
    for parallel, (n_rows, length, n_heads, n_groups), window in cases:
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=(n_rows, length, n, 3)).astype(np.float32) for n in (n_heads, n_groups, n_groups)]
        in_parts = functools.partial(context_parallel.causal, kernel)
        if window:
            in_parts = functools.partial(context_parallel.windowed, functools.partial(whole, window), window)

        def learn(read):
            total = lambda *arrays: (read(*arrays) * np.cos(np.arange(arrays[0].size)).reshape(arrays[0].shape)).sum()
            return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))(*arrays)

        expected = learn(functools.partial(whole, window))
        with over_mesh(make_layout(ParallelConfig(**parallel), jax.devices()).mesh):
            found.append(eight_devices.distance(learn(in_parts), expected))
    return found


def take(kernel):
    """Lets this CPU take a kernel in float32."""
    TransformerConfig.FLASH = {}
    flash_attention.KERNELS["cpu"] = kernel
    kernel.require = lambda *_: None
    cudnn_attention.IMPLEMENTATION = "xla"
    cudnn_attention.part, cudnn_attention.gradients_of_part = part, gradients_of_part
    chunked_attention.CHUNK = 2
    splash_attention.BLOCKS = (128,)


def of_models(implementation, cases):
    """Returns how far losses and gradients of models on eight devices are from those of the default on one."""
    found = {}
    for name, parallel in cases:
        config_class, changes = MODELS[name]
        config = small(config_class, **{"max_len": LENGTH, **changes})
        batch = a_batch(config_class, LENGTH)
        if name == "documents":
            batch["documents"] = np.sort(np.random.default_rng(0).integers(1, 5, batch["inputs"].shape)).astype(np.int32)
        model = MAKE[config_class](config, VOCAB_SIZE)
        params = random_params(model.spec)
        learn = lambda model, params, batch: loss_and_gradient(model, params, batch, jax.random.key(0))
        expected = jax.jit(functools.partial(learn, model))(params, batch)
        layout = make_layout(ParallelConfig(**parallel), jax.devices())
        in_parts = layout.with_mesh(MAKE[config_class](eight_devices.changed(config, implementation), VOCAB_SIZE))
        placed = jax.device_put(batch, jax.tree.map(lambda x: layout.tokens if x.shape[1] == LENGTH else layout.rows, batch))
        got = jax.jit(functools.partial(learn, in_parts))(params, placed)
        found[f"{implementation}: {name}, {parallel}"] = eight_devices.distance(jax.device_get(got), jax.device_get(expected))
        print(found, file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    import dataclasses
    eight_devices.changed = lambda c, i: dataclasses.replace(c, attention_implementation=i)
    eight_devices.start_jax(8)
    if sys.argv[1:]==["parts"]:
        print(parts())
    else:
        take(cudnn_attention)
        every=[(n,l) for l in LAYOUTS for n in MODELS]
        print(json.dumps(of_models("flash", every)))
        print(json.dumps(of_models("chunked", every)))

"""Computes attention on one device and with sequences over eight; prints the differences as JSON.

tests/training/test_sharding.py runs this in a new process; eight_devices.py takes `parts`. Plain functions replace
cuDNN's kernel, and JAX interprets the TPU kernel.
"""

import functools
import json

import eight_devices
import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

from flash_models import MODELS as MAKE
from flash_models import a_batch, gradients_of_part, part, with_gradients
from fxf.base.devices import over_mesh
from fxf.layers import chunked_attention, context_parallel, cudnn_attention, flash_attention, splash_attention
from fxf.layers.config import TransformerConfig
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from helpers import VOCAB_SIZE, attention_of, loss_and_gradient, places, random_params, small, table

LENGTH = 24
WINDOWS = {"positions": "rotary", "window": 7, "n_layers": 2, "global_every": 2}
MODELS = {
    "three heads": (TransformerLMConfig, {}),
    "windows": (TransformerLMConfig, {**WINDOWS, "n_heads": 4, "head_dim": 2, "n_kv_heads": 2}),
    "padding": (MaskedLMConfig, {"positions": "alibi", "window": 2, "n_kv_heads": 1}),
    "source": (EncoderDecoderConfig, {"positions": "learned"}),
    "documents": (TransformerLMConfig, {"positions": "none"}),
}


def parts():
    """Returns the distance of attention over sharded sequences from that over whole ones."""
    scale, found = 0.7, []
    kernel = context_parallel.Kernel(functools.partial(part, scale), functools.partial(gradients_of_part, scale))

    def whole(window, *arrays):
        return part(scale, *arrays, causal=True, window=window)[0]

    cases = [
        ({"data": 1, "sequence": 4, "tensor": 2}, (1, 27, 4, 2), 0),
        ({"fsdp": 2, "sequence": 4}, (3, 13, 3, 3), 11),
    ]
    for parallel, (n_rows, length, n_heads, n_groups), window in cases:
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=(n_rows, length, n, 3)).astype(np.float32) for n in (n_heads, n_groups, n_groups)]
        in_parts = functools.partial(context_parallel.causal, kernel, window)

        expected = with_gradients(functools.partial(whole, window), *arrays)
        with over_mesh(make_layout(ParallelConfig(**parallel), jax.devices()).mesh):
            found.append(eight_devices.distance(with_gradients(in_parts, *arrays), expected))
    return [*found, sums_of_turns()]


def sums_of_turns():
    """Returns the distance of bfloat16 queries' gradients from sums that keep small parts beside a large one."""
    kernel = context_parallel.Kernel(
        lambda q, *_, **__: (q, q[..., 0].astype("f4")),
        lambda *given, causal, window: [jax.numpy.full_like(x, 1 if causal else 2**-9) for x in given[:3]],
    )
    q = np.zeros((1, 16, 1, 1), "bfloat16")
    with over_mesh(make_layout(ParallelConfig(data=1, sequence=4), jax.devices()).mesh):
        read = functools.partial(context_parallel.causal, kernel, 0)
        (gradient, *_) = jax.jit(lambda *given: jax.vjp(read, *given)[1](given[0]))(q, q, q)
    earlier = np.arange(16) // 2  # pieces of two tokens, each seen whole by a query's pieces
    return eight_devices.distance(gradient.ravel().astype("f4"), (1 + earlier * 2**-9).astype("bfloat16").astype("f4"))


def replace_kernels():
    """Replaces cuDNN's kernel on this CPU by functions that compute the same, in float32."""
    TransformerConfig.FLASH = {}
    flash_attention.KERNELS["cpu"] = cudnn_attention
    cudnn_attention.IMPLEMENTATION = "xla"
    cudnn_attention.part, cudnn_attention.gradients_of_part = part, gradients_of_part
    chunked_attention.CHUNK = 2


def learned(name, implementation="xla", parallel=None):
    """Returns a model's loss, weight and gradient on one device, or on eight."""
    config_class, changes = MODELS[name]
    config = small(config_class, attention_implementation=implementation, **{"max_len": LENGTH, **changes})
    batch, model = a_batch(config_class, LENGTH), MAKE[config_class](config, VOCAB_SIZE)
    if name == "documents":
        batch["documents"] = np.sort(np.random.default_rng(0).integers(1, 5, (len(batch["inputs"]), LENGTH)))
    if parallel:
        layout = make_layout(ParallelConfig(**parallel), jax.devices())
        model = layout.with_mesh(model)
        batch = {
            name: jax.device_put(x, layout.tokens if x.shape[1] == LENGTH else layout.rows) for name, x in batch.items()
        }
    step = jax.jit(lambda params, batch: loss_and_gradient(model, params, batch, jax.random.key(0)))
    return jax.device_get(step(random_params(model.spec), batch))


def of_models():
    """Returns the distances of models on eight devices from the default on one, by name."""
    expected, found = functools.cache(learned), {}
    for case, name in table("sequences on eight devices"):
        implementation = case.pop("implementation")
        found[f"{name}, {implementation}, {case}"] = eight_devices.distance(
            learned(name, implementation, {"data": 1, **case}), expected(name)
        )
    return found


def of_tpus():
    """Returns the distance of the TPU kernel, which JAX interprets, from the default, by case."""
    interpreted = functools.partial(splash_attention_kernel.make_splash_mha, interpret=True)
    splash_attention_kernel.make_splash_mha, splash_attention.BLOCKS = interpreted, (128,)
    documents = np.sort(np.random.default_rng(0).integers(1, 5, (1, 250)))
    cases = {
        "documents": (2, 250, {}, {"documents": documents}),
        "window": (3, 384, {"window": 150}, {}),
        "window that is filled up": (4, 250, {"window": 100}, {}),
        "all": (2, 260, {}, {"causal": False}),
    }
    found = {}
    for name, (n, length, changes, options) in cases.items():
        layer, where = attention_of(small(**changes)), places(length, **options)
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=(1, 3, length, 2)).astype(np.float32) for _ in range(3)]

        default = lambda q, *memory: layer.read({}, q, memory, layer.mask({}, where, where))  # noqa: B023, E731
        kernel = lambda q, *memory: splash_attention.attend(layer, {}, q, memory, where, where)  # noqa: B023, E731
        expected = with_gradients(default, *arrays)
        with over_mesh(make_layout(ParallelConfig(data=1, sequence=n), jax.devices()).mesh):
            got = with_gradients(kernel, *arrays)
        found[f"a TPU's, {name}"] = eight_devices.distance(got, expected)
    return found


if __name__ == "__main__":
    eight_devices.start_jax(8)
    replace_kernels()
    print(json.dumps({**of_models(), **of_tpus()}))

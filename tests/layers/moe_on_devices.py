"""Trains a model with a mixture of experts on one device and on eight, and prints how far apart they are, as JSON.

JAX takes its number of devices when it starts: tests/layers/test_moe.py runs this in a process of its own.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import jax
import numpy as np
import optax

from closeness import largest_of
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from fxf.training.state import hyperparameters, init_state, state_shardings
from fxf.training.step import TrainConfig, Trainer, jit_step, make_step

LAYOUTS = {
    "data 2, expert 4": {"expert": 4},
    "expert 2, sequence 2, tensor 2": {"expert": 2, "sequence": 2, "tensor": 2},
}
ROWS, LENGTH, VOCAB_SIZE = 8, 6, 11
KEYS = {"n_experts": 8, "top_k": 3, "d_shared": 4, "bias_rate": 0.01, "balance": 0.1}
SIZES = {"n_layers": 1, "d_model": 8, "d_ff": 10, "n_heads": 2, "max_len": LENGTH}
MODEL = transformer_lm(
    TransformerLMConfig(**SIZES, blocks="attention+moe", gated=True, activation="silu", layers={"moe": KEYS}),
    VOCAB_SIZE,
)


def batch():
    """Returns rows of which some end in padding."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(0, VOCAB_SIZE, (2, ROWS, LENGTH)).astype(np.int32)
    mask = np.arange(LENGTH)[None] < rng.integers(2, LENGTH + 1, (ROWS, 1))
    return {"inputs": inputs, "targets": targets, "weights": mask.astype(np.float32), "input_mask": mask}


def after_a_step(parallel, microbatches=1):
    """Returns the loss, the terms and the params after a step, and the experts' part that one device holds."""
    optimizer, config = optax.sgd(1.0), TrainConfig(batch_size=ROWS, microbatches=microbatches)
    layout = make_layout(ParallelConfig(**parallel), jax.devices())
    trainer = Trainer(MODEL, optimizer, config, layout)
    shardings = state_shardings(MODEL, optimizer, layout)
    state = jax.jit(lambda: init_state(MODEL, optimizer, jax.random.key(0)), out_shardings=shardings)()
    after, metrics = jit_step(make_step(trainer), trainer)(
        state, layout.put(batch(), layout.parts), hyperparameters(0, config)
    )
    up = after.params["blocks"]["0"]["moe"]["experts"]["up"]
    return jax.device_get((after.params, metrics)), up.addressable_shards[0].data.size / up.size


def main():
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_default_matmul_precision", "highest")
    one, _ = after_a_step({"data": 1})
    found = {}
    for name, parallel in LAYOUTS.items():
        other, share = after_a_step(parallel)
        apart = jax.tree.map(lambda a, b: np.abs(np.asarray(a, np.float64) - np.asarray(b)).max(), other, one)
        found[name] = {"apart": largest_of(apart), "largest": largest_of(one), "share": share}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

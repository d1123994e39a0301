"""Prints, as JSON, the differences of loss and gradient between one and four devices for each idea.

JAX reads its number of devices at start-up, so test_ideas_in_runs.py runs this in a new process.
"""

import functools
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import jax
import numpy as np
from test_ideas_in_runs import config_of

from closeness import largest_of
from fxf.base.weights import initialize
from fxf.runs.experiment import build
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout
from helpers import loss_and_gradient
from small_runs import new_process

LAYOUTS = {"data 4": {}, "fsdp 2, tensor 2": {"fsdp": 2, "tensor": 2}}


def main():
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_default_matmul_precision", "highest")
    found = {}
    for name in sys.argv[1:]:
        with new_process():
            experiment = build(config_of(name))
            model, key = experiment.model, jax.random.key(1)
            params = jax.device_get(initialize(model.spec, key))
            batch = jax.device_get(experiment.task.batch(key, 0))
            on_one = jax.jit(functools.partial(loss_and_gradient, model))
            loss, _, expected = jax.device_get(on_one(params, batch))
            found[name] = {}
            for title, parallel in LAYOUTS.items():
                layout = make_layout(ParallelConfig(**parallel), jax.devices())
                placed = jax.device_put(params, layout.weights(model.spec))
                on_four = jax.jit(functools.partial(loss_and_gradient, model, layout=layout))
                total, _, gradient = jax.device_get(on_four(placed, layout.put(batch, layout.parts)))
                apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), gradient, expected)
                sharded = sum(not x.sharding.is_fully_replicated for x in jax.tree.leaves(placed))
                found[name][title] = {
                    "loss": abs(float(total) - float(loss)) / float(loss),
                    "gradient": float(np.max(jax.tree.leaves(apart)) / largest_of(expected)),
                    "sharded": sharded,
                }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

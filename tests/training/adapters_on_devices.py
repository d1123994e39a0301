"""Trains adapters on one and on eight devices, and prints how far apart they are, for each layout.

tests/training/test_sharding.py runs this in a process of its own.
"""

import json
import sys
from pathlib import Path

import eight_devices
import optax

from fxf.models.lora import LoraConfig, lora
from fxf.training.fine_tuning import freeze, without_frozen_gradient

if __name__ == "__main__":
    eight_devices.start_jax(8)
    model = without_frozen_gradient(lora(eight_devices.MODEL, LoraConfig(rank=3, weights="*/query,*/output,*/up")), "")
    adam = freeze(optax.adam(1e-2, **eight_devices.ADAM), model.spec, "")
    eight_devices.MODEL, eight_devices.OPTIMIZER = model, optax.chain(eight_devices.KEEP, adam)
    print(json.dumps(eight_devices.compare(Path(sys.argv[1]))))

"""Trains models whose tokens make the positions on one and on eight devices, and prints how far apart they are.

tests/training/test_sharding.py runs this in a process of its own.
"""

import json
import sys
from pathlib import Path

import eight_devices

from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm

KINDS = {"turns": {"window": 3}, "walks": {"window": 3, "n_walks": 23}}


def batches(index=0, count=1, packed=eight_devices.batches):
    """Yields the batches of eight_devices.py as rows of one document each."""
    for batch in packed(index, count):
        del batch["documents"]
        yield batch


if __name__ == "__main__":
    eight_devices.start_jax(8)
    eight_devices.batches, found = batches, {}
    for kind, keys in KINDS.items():
        config = TransformerLMConfig(**eight_devices.SIZES, positions=kind, **keys)
        eight_devices.MODEL = transformer_lm(config, eight_devices.VOCAB_SIZE)
        eight_devices.start.cache_clear()
        layouts = eight_devices.LAYOUTS | eight_devices.MORE_LAYOUTS
        found[kind] = eight_devices.compare(Path(sys.argv[1]), layouts)
    print(json.dumps(found))

"""Makes many small programs quick to build: the processes of a test session share compiled ones.

It imports JAX, which then reads its environment, so conftest.py sets that first.
"""

import functools
import gc
import os
import tempfile

from jax._src.interpreters import mlir
from jax._src.lru_cache import LRUCache


def put(cache, key, program):
    """Writes an entry of the compilation cache atomically: with JAX's own way, other processes may read half of one."""
    number, part = tempfile.mkstemp(dir=cache.path)
    with open(number, "wb") as file:
        file.write(program)
    os.replace(part, cache.path / f"{key}-cache")


LRUCache.put = put
# Each program would load all dialects again, which is most of the time of lowering a small one.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)

# Tracing makes many small objects that live on. Collecting garbage among them takes a tenth of the time.
gc.set_threshold(200_000, 20, 100)

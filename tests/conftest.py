import atexit
import os
import shutil
import tempfile

# Tests compare numbers: fix the platform before JAX starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Nearly all their time goes into compiling, half of it into this part of XLA, which makes programs a tenth faster.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import hypothesis
import jax

# Many tests build the same small programs: compile each once a process, and quickly. JAX does not write entries
# atomically, so processes do not share a cache.
CACHE = tempfile.mkdtemp(prefix="fxf-tests-")
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_disable_most_optimizations", True)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

hypothesis.settings.register_profile("fxf", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.load_profile("fxf")

# Files of few and long tests, which would otherwise come last, when the other workers have nothing left to do.
FIRST = ("test_sharding.py", "test_run_translation.py", "test_kill.py", "test_run.py", "test_points.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in FIRST)

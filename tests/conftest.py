import atexit
import os
import shutil
import tempfile

# Tests compare numbers: fix the platform before JAX starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The same small programs come up in many tests: compile each once a session, for all its processes.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="fxf-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax

jax.config.update("jax_disable_most_optimizations", True)  # each program runs once or twice
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

hypothesis.settings.register_profile("fxf", deadline=None, derandomize=True, max_examples=15)
hypothesis.settings.load_profile("fxf")

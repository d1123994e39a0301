import os

# Tests compare numbers: fix the platform before JAX starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax

jax.config.update("jax_disable_most_optimizations", True)  # each program runs once or twice
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")

hypothesis.settings.register_profile("fxf", deadline=None, derandomize=True, max_examples=15)
hypothesis.settings.load_profile("fxf")

"""model.remat: the same numbers in less memory."""

import jax
import numpy as np

from closeness import assert_close, largest_of
from fxf.base.operations import operations
from fxf.training.gradient import batch_loss
from helpers import random_tokens, small_model


def test_the_gradient_is_the_one_without_and_more_is_computed_for_it():
    batch = {name: random_tokens((3, 11), seed=i) for i, name in enumerate(("inputs", "targets"))}
    batch["weights"] = np.ones((3, 11), np.float32)

    def gradient(**changes):
        model, params = small_model(scan_blocks=True, dropout=0.3, **changes)
        compute = jax.jit(jax.grad(lambda p: batch_loss(model, p, batch, jax.random.key(0))[0]))
        return operations(compute.trace(params).jaxpr.jaxpr).flops, compute(params)

    (plain, expected), (recomputed, found) = gradient(), gradient(remat="full")
    assert_close(found, expected, largest=largest_of(expected))
    assert recomputed > plain

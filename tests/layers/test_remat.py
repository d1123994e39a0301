"""model.remat: the same numbers in less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.base.operations import operations
from fxf.base.weights import shapes
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
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


def temporary_memory(remat):
    """Returns the memory of the gradient of a deep model, for which no array is allocated."""
    length, sizes = 512, {"n_layers": 8, "d_model": 16, "d_ff": 32, "n_heads": 1, "max_len": 512}
    model = transformer_lm(TransformerLMConfig(**sizes, scan_blocks=True, remat=remat), 11)
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    batch = {"inputs": tokens, "targets": tokens, "weights": jax.ShapeDtypeStruct((1, length), jnp.float32)}
    compute = jax.jit(jax.grad(lambda p, b: batch_loss(model, p, b)[0]))
    return compute.lower(shapes(model.spec), batch).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.thorough
def test_computing_blocks_again_takes_a_third_of_the_memory_and_keeping_products_little_more():
    none, dots, full = map(temporary_memory, ("none", "dots", "full"))
    assert full < dots <= none / 3

"""model.remat: the same numbers in less memory; and what a loop over blocks costs to compile."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.layers.block import block_spec
from fxf.machine.operations import operations
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.training.gradient import batch_loss
from fxf.weights import shapes
from helpers import random_tokens, small_model


@pytest.mark.parametrize(
    ("remat", "scan_blocks"), [("full", True), pytest.param("dots", False, marks=pytest.mark.thorough)]
)
def test_the_gradient_is_the_one_without_and_more_is_computed_for_it(remat, scan_blocks):
    batch = {name: random_tokens((3, 11), seed=i) for i, name in enumerate(("inputs", "targets"))}
    batch["weights"] = np.ones((3, 11), np.float32)

    def gradient(**changes):
        model, params = small_model(scan_blocks=scan_blocks, dropout=0.3, **changes)
        compute = jax.jit(jax.grad(lambda p: batch_loss(model, p, batch, jax.random.key(0))[0]))
        return operations(compute.trace(params).jaxpr.jaxpr).flops, compute(params)

    (plain, expected), (recomputed, found) = gradient(), gradient(remat=remat)
    assert_close(found, expected, largest=largest_of(expected))
    assert recomputed > plain


def compiled(n_layers, length=16, width=16, **changes):
    """Returns the compiled gradient of a deep model, for which no array is allocated."""
    config = TransformerLMConfig(
        n_layers=n_layers, d_model=width, d_ff=2 * width, n_heads=1, max_len=length, **{"scan_blocks": True, **changes}
    )
    model = transformer_lm(config, 11)
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    batch = {"inputs": tokens, "targets": tokens, "weights": jax.ShapeDtypeStruct((1, length), jnp.float32)}
    compute = jax.grad(lambda p, b: batch_loss(model, p, b)[0])
    return jax.jit(compute).lower(shapes(model.spec), batch)


@functools.cache
def temporary_memory(remat):
    return compiled(12, length=2048, remat=remat).compile().memory_analysis().temp_size_in_bytes


def test_computing_blocks_again_takes_a_quarter_of_the_memory_or_less():
    assert temporary_memory("full") <= temporary_memory("none") / 4


def test_keeping_the_products_with_weights_takes_memory_between():
    assert temporary_memory("full") < temporary_memory("dots") <= temporary_memory("none") / 4


def test_a_loop_over_blocks_has_the_products_of_one_block_and_only_moves_the_weights_of_the_others():
    few, many = (compiled(n).as_text() for n in (6, 32))
    assert many.count("dot_general") == few.count("dot_general")
    # A block's weight is reshaped into its stack, and its gradient is sliced and reshaped out of one. JAX concatenates
    # sixteen arrays at a time.
    n_weights = len(jax.tree.leaves(shapes(block_spec(TransformerLMConfig()))))
    assert many.count("\n") - few.count("\n") <= n_weights * (3 * (32 - 6) + 32 // 16)

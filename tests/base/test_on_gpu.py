"""Programs for a GPU compute the same values in other ways, with a fixed order of sums."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AbstractMesh

import helpers
import oracle
from closeness import assert_close, largest_of
from flash_models import a_batch
from fxf.base.devices import AXES, compiling_for, over_mesh
from fxf.base.on_gpu import deterministic_options, embedding_lookup, norm_of, recomputed
from fxf.layers import loss_kernel
from fxf.layers.linear import linear
from fxf.layers.loss import cross_entropy
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.quantized import stored_as
from fxf.models.transformer_lm import TransformerLMConfig
from helpers import VOCAB_SIZE, random_params, random_tokens, scaled, small, small_model, table

GPU = SimpleNamespace(platform="gpu")


def traced_for(device, function, *arguments):
    """Returns the program of a function, traced for another device."""
    with compiling_for([device]):
        return jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments)  # a lambda has no cached trace


@pytest.mark.parametrize("indices", [[[3, 0, 3], [1, 3, 1]], [[4, 4, 4, 4]], [[6, 0, 5], [-1, -5, 4]]])
def test_a_gpu_sums_the_gradients_of_rows_like_additions_one_by_one(indices):
    indices = np.array(indices)
    table, change = (np.random.default_rng(0).normal(size=(*n, 2)).astype("f4") for n in ((5,), indices.shape))

    def gradient(table, change):
        return jax.vjp(lambda table: embedding_lookup(table, indices, beyond=0.0), table)[1](change)[0]

    program = traced_for(GPU, gradient, table, change)
    expected = np.zeros((7, 2))
    np.add.at(expected, np.where(indices < 0, indices + 5, indices), change)
    assert_close(jax.jit(jaxpr_as_fun(program))(table, change)[0], expected[:5], largest=largest_of(change) * 4)


def test_a_gpus_program_decodes_the_tokens_of_a_cpus():
    plain, params = small_model(tied_embeddings=True)
    model, narrow = stored_as("int8", plain)
    params, decoder = jax.jit(narrow)(scaled(params, 2)), Decoder(model, -1)
    prompts = {"tokens": random_tokens((1, 4)), "lengths": np.full(1, 4, np.int32)}
    search = functools.partial(decoder.search, max_tokens=5)
    program = traced_for(GPU, search, params, prompts, decoder.key)
    (tokens,) = jax.jit(jaxpr_as_fun(program))(*jax.tree.leaves((params, prompts, decoder.key)))
    np.testing.assert_array_equal(tokens, decoder(params, prompts, 5)[0])
    assert len(np.unique(tokens)) > 1


@pytest.mark.parametrize("shape", [(1, 7), (1, 1, 7)])
def test_a_vector_times_a_matrix_on_a_gpu_is_their_product(shape):
    x, w = (np.random.default_rng(size).normal(size=size).astype("f4") for size in (shape, (7, 5)))
    (found,) = jax.jit(jaxpr_as_fun(traced_for(GPU, linear, x, w)))(x, w)
    assert_close(found, np.float64(x) @ np.float64(w), operations=9)


# Programs for a GPU differ in embedding lookups, logits, norms and activations.
OTHERWISE = {"positions": "learned", "norm": "rms", "norm_epsilon_in": "variance", "activation": "gelu"}


def test_a_gpus_step_has_the_losses_and_gradients_of_a_cpus_and_sums_in_a_fixed_order():
    # One model per device, because JAX caches traces of a model for all devices.
    of_cpu, of_gpu = (small_model(tied_embeddings=True, **OTHERWISE)[0] for _ in range(2))
    two_sided = encoder_decoder(small(EncoderDecoderConfig, **OTHERWISE), VOCAB_SIZE)

    def learn(model, config_class=TransformerLMConfig):
        batch = a_batch(config_class)
        return lambda params: helpers.loss_and_gradient(model, params, batch)

    params = random_params(of_cpu.spec)
    expected, program = jax.tree.leaves(jax.jit(learn(of_cpu))(params)), traced_for(GPU, learn(of_gpu), params)
    found = jax.jit(jaxpr_as_fun(program))(*jax.tree.leaves(params))
    assert_close(found, expected, largest=largest_of(expected))
    other = traced_for(GPU, learn(two_sided, EncoderDecoderConfig), random_params(two_sided.spec))
    added = [e for each in (program, other) for e in helpers.equations(each.jaxpr) if e.primitive.name == "scatter-add"]
    assert all(e.params["unique_indices"] for e in added), added


@pytest.mark.parametrize(("of", "order"), table("options of a gpu's compiler"))
def test_a_gpus_compiler_must_be_deterministic_except_with_flash_attention(of, order):
    with compiling_for([SimpleNamespace(platform=of["platform"])]):
        options = deterministic_options(SimpleNamespace(as_text=lambda: of["text"]))
    assert options == ({"xla_gpu_exclude_nondeterministic_ops": True} if order == "in a fixed order" else None)


def test_a_gpu_stores_only_the_input_of_an_activation():
    x = np.linspace(-1, 1, 5, dtype="f4")
    with compiling_for([GPU]):
        gradient = jax.vjp(recomputed(lambda x: jnp.tanh(x) * jnp.exp(x)), x)[1]
    (only,) = [leaf for leaf in jax.tree.leaves(gradient) if np.shape(leaf) == x.shape]
    np.testing.assert_array_equal(only, x)


def test_a_gpu_takes_the_norm_of_arrays_of_any_size_like_that_of_one():
    arrays = [np.asarray(np.random.default_rng(0).normal(size=n), "f4") for n in ((300, 7, 33), (3, 5), ())]
    (found,) = jax.jit(jaxpr_as_fun(traced_for(GPU, norm_of, arrays)))(*arrays)
    assert_close(found, np.sqrt(sum((x.astype("f8") ** 2).sum() for x in arrays)))


@pytest.mark.parametrize(("vocab_size", "n_columns", "smoothing"), [(127, 130, None), (257, 501, 0.1)])
def test_the_loss_and_the_gradient_of_a_kernel_are_those_of_the_formula(vocab_size, n_columns, smoothing, monkeypatch):
    monkeypatch.setattr(loss_kernel, "MOST_THREADS", 32)  # the second has two chunks
    monkeypatch.setattr(pallas, "pallas_call", functools.partial(pallas.pallas_call, interpret=True))
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(5, n_columns)) * np.array([[1], [9], [1], [0], [1]])).astype("bfloat16")
    x[:, vocab_size:] = 99  # padding
    x[4, 3] = np.nan
    targets, weights = rng.integers(0, vocab_size, 5), rng.uniform(1, 2, 5).astype("f4")
    targets[2], weights[2] = -100, 0  # without weight

    loss_of = functools.partial(loss_kernel.loss_by_kernel, None, vocab_size, smoothing)
    learn = jax.jit(jax.value_and_grad(loss_of))
    loss, gradient = jax.device_get(learn(x[:4], targets[:4], weights[:4]))
    assert np.isnan(learn(x[1:], targets[1:], weights[1:])[0])
    exact, share = x[:4, :vocab_size].astype("f8"), smoothing or 0
    expected = oracle.smoothed_cross_entropy(exact, targets[:4], weights[:4], share)
    assert_close(loss, expected, largest=100)
    wanted = (1 - share) * np.eye(vocab_size)[targets[:4]] + share / vocab_size
    slope = weights[:4, None] * (np.exp(exact) / np.exp(exact).sum(1, keepdims=True) - wanted)
    np.testing.assert_allclose(gradient[:, :vocab_size].astype("f8"), slope, rtol=2**-8, atol=1e-6)
    assert (gradient[:, vocab_size:] == 0).all()


@pytest.mark.parametrize(("of", "n_kernels"), table("loss kernels"))
def test_the_loss_kernel_is_for_bfloat16_logits_that_each_gpu_has_whole(of, n_kernels):
    dtype, tensor = of["dtype"], of["tensor"]
    x, targets, weights = np.ones((1, 5, 3), dtype), np.ones((1, 5), "i4"), np.ones((1, 5), "f4")

    def learn(x):
        return jax.value_and_grad(lambda x: cross_entropy(lambda x: x.astype("f4"), x, targets, weights)[0])(x)

    mesh = tensor and AbstractMesh((1, 1, 1, 1, tensor), AXES)
    with over_mesh(mesh):
        program = traced_for(GPU, learn, x)
    primitives = [equation.primitive.name for equation in helpers.equations(program.jaxpr)]
    assert primitives.count("pallas_call") == int(n_kernels)

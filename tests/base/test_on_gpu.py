"""What programs for a GPU compute in another way has the same values, and a fixed order of sums."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from closeness import assert_close, largest_of
from flash_models import MODELS, a_batch
from fxf.base.devices import compiling_for
from fxf.base.on_gpu import options_in_order, recomputed, rows_of
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig
from fxf.training.gradient import loss_and_gradient
from helpers import VOCAB_SIZE, equations, random_params, small

GPU = SimpleNamespace(platform="gpu")


def traced_for(device, function, *arguments):
    """Returns the program of a function on another device, which is called here."""
    with compiling_for([device]):
        return jax.make_jaxpr(lambda *arguments: function(*arguments))(*arguments)  # not what JAX keeps for this one


@pytest.mark.parametrize("indices", [[[3, 0, 3], [1, 3, 1]], [[4, 4, 4, 4]], [[6, 0, 5], [-1, -5, 4]]])
def test_a_gpu_sums_the_gradient_of_rows_like_additions_one_by_one(indices):
    indices = np.array(indices)
    table, change = (np.random.default_rng(0).normal(size=(*n, 2)).astype("f4") for n in ((5,), indices.shape))

    def gradient(table, change):
        return jax.vjp(lambda table: rows_of(table, indices, beyond=0.0), table)[1](change)[0]

    program = traced_for(GPU, gradient, table, change)
    expected = np.zeros((7, 2))
    np.add.at(expected, np.where(indices < 0, indices + 5, indices), change)
    assert_close(jax.jit(jaxpr_as_fun(program))(table, change)[0], expected[:5], largest=largest_of(change) * 4)


def test_rows_on_a_gpu_are_those_of_the_table_also_for_several_tables():
    tables = np.arange(24, dtype="f4").reshape(2, 4, 3)
    indices = np.array([[3, 0], [1, 1]])

    def loss(table, indices):
        return (rows_of(table, indices) * jnp.arange(3.0)[None]).sum()

    program = traced_for(GPU, jax.vmap(jax.value_and_grad(loss)), tables, indices)
    values, gradients = jax.jit(jaxpr_as_fun(program))(tables, indices)
    np.testing.assert_array_equal(values, [(tables[i, indices[i]] * np.arange(3)).sum() for i in range(2)])
    counts = np.array([[1, 0, 0, 1], [0, 2, 0, 0]])
    np.testing.assert_array_equal(gradients, counts[..., None] * np.arange(3.0)[None, None])


CASES = [
    (TransformerLMConfig, {"n_layers": 2, "remat": "full", "scan_blocks": True, "norm_epsilon_in": "variance"}),
    (
        MaskedLMConfig,
        {"positions": "rotary", "norm": "rms", "norm_epsilon_in": "variance", "gated": True, "d_model": 12},
    ),
    (EncoderDecoderConfig, {"positions": "learned", "norm_epsilon_in": "variance", "activation": "gelu"}),
]


@pytest.mark.parametrize(("config_class", "changes"), CASES)
def test_losses_and_gradients_of_a_gpus_program_are_those_of_a_cpus(config_class, changes):
    model, batch = MODELS[config_class](small(config_class, **changes), VOCAB_SIZE), a_batch(config_class)
    params = random_params(model.spec)

    def learn(params):
        return loss_and_gradient(model, params, batch)

    expected = jax.tree.leaves(jax.jit(learn)(params))
    found = jax.jit(jaxpr_as_fun(traced_for(GPU, learn, params)))(*jax.tree.leaves(params))
    assert_close(found, expected, largest=largest_of(expected))


@pytest.mark.parametrize(("config_class", "changes"), CASES)
def test_nothing_in_a_gpus_step_adds_to_one_place_in_any_order(config_class, changes):
    model, batch = MODELS[config_class](small(config_class, **changes), VOCAB_SIZE), a_batch(config_class)
    program = traced_for(GPU, lambda params: loss_and_gradient(model, params, batch), random_params(model.spec))
    added = [e for e in equations(program.jaxpr) if e.primitive.name == "scatter-add"]
    assert all(e.params["unique_indices"] for e in added), added


@pytest.mark.parametrize(
    ("platform", "text", "asked"),
    [
        ("gpu", "call @cublas", True),
        ("gpu", "call @__cudnn$fmhaSoftmaxBackward", False),
        ("gpu", "call @__cudnn$fmhaScaleBiasSoftmaxBackward", False),
        ("gpu", "call @CustomSPMDPartitioning", False),
        ("cpu", "", False),
    ],
)
def test_a_gpus_compiler_is_asked_for_a_fixed_order_except_with_flash_attention(platform, text, asked):
    with compiling_for([SimpleNamespace(platform=platform)]):
        options = options_in_order(SimpleNamespace(as_text=lambda: text))
    assert options == ({"xla_gpu_exclude_nondeterministic_ops": True} if asked else None)


def test_a_gpu_keeps_only_what_an_activation_reads():
    x = np.linspace(-1, 1, 5, dtype="f4")

    def kept(device):
        with compiling_for([device]):
            gradient = jax.vjp(recomputed(lambda x: jnp.tanh(x) * jnp.exp(x)), x)[1]
        return [leaf for leaf in jax.tree.leaves(gradient) if np.shape(leaf) == x.shape]

    assert len(kept(SimpleNamespace(platform="cpu"))) > 1
    (only,) = kept(GPU)
    np.testing.assert_array_equal(only, x)

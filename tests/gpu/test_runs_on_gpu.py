"""On a GPU a run has the same bits each time, also if interrupted, and nearly a CPU's numbers."""

import shutil

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close, largest_of
from flash_models import MODELS, a_batch
from fxf.base.devices import compiling_for
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig
from fxf.runs import run
from helpers import VOCAB_SIZE, loss_and_gradient, random_params, small
from small_runs import tiny_config

pytestmark = pytest.mark.gpu


def params_of(folder, **sections):
    """Trains a run unless it is finished, and returns its weights."""
    run.train(tiny_config(**sections), folder, {"config_file": "test", "overrides": {}})
    return fxf.load(folder).params


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(dtype, tmp_path, capsys):
    sizes = {"d_model": 64, "d_ff": 128, "dtype": dtype}
    sections = {"model": sizes, "task": {"max_length": 20}, "train": {"batch_size": 128, "steps": 40}}
    sections |= {"model": {**sizes, "max_len": 64, "dropout": 0.1}, "checkpoint": {"every": 20}}
    whole = params_of(tmp_path / "whole", **sections)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    (tmp_path / "parts" / "result.json").unlink()
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "40")
    parts = params_of(tmp_path / "parts", **sections)
    assert "resuming at step 20" in capsys.readouterr().err
    jax.tree.map(np.testing.assert_array_equal, parts, whole)
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path / "again", **sections), whole)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])  # without and with a bias, which has its own kernel
def test_a_run_with_several_layers_of_flash_attention_trains_to_its_end(positions, tmp_path):
    sizes = {"d_model": 64, "n_layers": 3, "dtype": "bfloat16", "attention_implementation": "flash"}
    params = params_of(tmp_path / "flash", model={**sizes, "positions": positions, "max_len": 64})
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("config_class", [TransformerLMConfig, MaskedLMConfig, EncoderDecoderConfig])
def test_losses_and_gradients_are_those_of_a_cpu(config_class):
    """Everything is in float32, products too, with each device's formulas."""
    model, batch = MODELS[config_class](small(config_class), VOCAB_SIZE), a_batch(config_class)

    def on(platform):
        device = jax.devices(platform)[0]
        with jax.default_device(device), compiling_for([device]):
            compute = jax.jit(lambda params: loss_and_gradient(model, params, batch))
            return jax.device_get(compute(random_params(model.spec)))

    expected = on("cpu")
    assert_close(on("gpu"), expected, largest=largest_of(expected))

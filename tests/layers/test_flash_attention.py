"""model.attention_implementation=flash takes the kernel of the devices, and refuses what none or this one can do."""

from contextlib import nullcontext

import jax
import numpy as np
import pytest

from fxf.base.devices import compiling_for
from fxf.base.errors import UserError
from fxf.layers.attention import Attention
from fxf.layers.flash_attention import kernel_of
from fxf.layers.layer import whole_rows
from fxf.runs.experiment import build, default_config
from helpers import random_params, random_tokens, refused, small

FLASH = {"d_model": 24, "dtype": "bfloat16", "positions": "rotary", "attention_implementation": "flash"}


class Device:
    """A device, as JAX describes it."""

    def __init__(self, platform, kind="", capability=""):
        self.platform, self.device_kind, self.compute_capability = platform, kind or platform, capability


@pytest.mark.parametrize(("case", "message"), refused("flash attention on devices"))
def test_what_the_devices_that_a_program_is_compiled_for_cannot_do_is_named(case, message):
    device = Device(*case.pop("device").split(", "))
    with compiling_for([device]), pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        kernel_of(small(**{**FLASH, **case}))


class OfOnesOwn(Attention):
    def seen(self, queries, keys, reads=None):
        return None


def test_a_kind_with_weights_of_its_own_is_refused_where_only_the_pattern_of_blocks_names_it():
    layer = OfOnesOwn(small(**FLASH))
    with (
        compiling_for([Device("gpu", "NVIDIA H100", "9.0")]),
        pytest.raises(UserError, match=r"kernel of 'flash' has no OfOnesOwn\.seen; set it to"),
    ):
        layer.apply(random_params(layer.spec()), np.ones((2, 5, 24), "bfloat16"), whole_rows(5))


def test_training_on_another_device_is_refused_and_the_weights_are_read_by_xla():
    config = default_config("reversal")
    config.model.update(n_layers=1, d_model=24, d_ff=8, n_heads=3, dtype="bfloat16", attention_implementation="flash")
    experiment = build(config.to_dict())
    with pytest.raises(UserError, match="flash needs an NVIDIA GPU or a TPU"):
        experiment.layout()
    params, batch = random_params(experiment.model.spec), {"inputs": random_tokens((2, 5))}
    with pytest.raises(UserError, match="flash needs an NVIDIA GPU or a TPU"):
        jax.eval_shape(experiment.model.apply, params, batch)
    by_xla = experiment.with_model(attention_implementation="xla").model
    assert jax.eval_shape(by_xla.apply, params, batch).shape == (2, 5, experiment.task.vocab_size)

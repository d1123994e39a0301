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
from helpers import random_params, random_tokens, small

FLASH = {"d_model": 24, "dtype": "bfloat16", "positions": "rotary", "attention_implementation": "flash"}


class Device:
    """A device, as JAX describes it."""

    def __init__(self, platform, kind="", capability=""):
        self.platform, self.device_kind, self.compute_capability = platform, kind or platform, capability


CPU, TPU, H100 = Device("cpu"), Device("tpu", "TPU v5 lite"), Device("gpu", "NVIDIA H100", "9.0")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float32"}, "model.dtype: .* leave it at 'bfloat16'"),
        ({"attention": "linear"}, "model.attention: .* leave it at 'softmax'"),
        ({"attention": "expressive"}, "model.attention: .* leave it at 'softmax'"),
        ({"attention_dropout": 0.1}, "model.attention_dropout: .* leave it at 0"),
    ],
)
def test_what_no_kernel_has_is_named(changes, message):
    with pytest.raises(UserError, match=f"^{message}"):
        small(**{**FLASH, **changes})


IMPLEMENTATION = "model.attention_implementation: flash needs"


@pytest.mark.parametrize(
    ("device", "changes", "message"),
    [
        (CPU, {}, f"{IMPLEMENTATION} an NVIDIA GPU or a TPU; the device here is cpu; elsewhere set it to 'xla'$"),
        (Device("gpu", "AMD", "gfx90a"), {}, f"{IMPLEMENTATION} an NVIDIA GPU or a TPU; the device here is AMD; "),
        (Device("gpu", "Tesla", "7.0"), {}, f"{IMPLEMENTATION} an NVIDIA GPU of compute capability 8.0 or more; Tesla"),
        (H100, {"n_heads": 2}, f"{IMPLEMENTATION} heads whose width .* a multiple of 8 and at most 128 on .*, got 12$"),
        (H100, {"d_model": 136, "n_heads": 1}, f"{IMPLEMENTATION} heads whose width .*, got 136$"),
        (H100, {"attention_softcap": 3.0}, f"{IMPLEMENTATION} model.attention_softcap 0.0 on an NVIDIA GPU, got 3.0"),
        (
            TPU,
            {"positions": "alibi"},
            "model.positions: 'alibi' adds a bias .* on a TPU; it can with none, sinusoidal_trained",
        ),
        (H100, {"positions": "alibi"}, ""),
        (Device("gpu", "B200", "12.0"), {"window": 2}, ""),
        (TPU, {"n_heads": 2, "attention_softcap": 3.0, "window": 2}, ""),
    ],
)
def test_what_the_devices_that_a_program_is_compiled_for_cannot_do_is_named(device, changes, message):
    config = small(**{**FLASH, **changes})
    with compiling_for([device]), pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        kernel_of(config)


class OfOnesOwn(Attention):
    def seen(self, queries, keys, reads=None):
        return None


def test_a_kind_with_weights_of_its_own_is_refused_where_only_the_pattern_of_blocks_names_it():
    layer = OfOnesOwn(small(**FLASH))
    with compiling_for([H100]), pytest.raises(UserError, match=r"kernel of 'flash' has no OfOnesOwn\.seen; set it to"):
        layer.apply(random_params(layer.spec()), np.ones((2, 5, 24), "bfloat16"), whole_rows(5))


def test_training_on_another_device_is_refused_and_the_weights_are_read_by_xla():
    config = default_config("reversal")
    config.model.update(n_layers=1, d_model=16, d_ff=8, n_heads=2, dtype="bfloat16", attention_implementation="flash")
    experiment = build(config.to_dict())
    with pytest.raises(UserError, match="flash needs an NVIDIA GPU or a TPU"):
        experiment.layout()
    params, batch = random_params(experiment.model.spec), {"inputs": random_tokens((2, 5))}
    with pytest.raises(UserError, match="flash needs an NVIDIA GPU or a TPU"):
        experiment.model.apply(params, batch)
    assert np.isfinite(jax.jit(experiment.with_model(attention_implementation="xla").model.apply)(params, batch)).all()

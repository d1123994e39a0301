"""The operations of a model, counted by hand, and the time that they take a device at its peak."""

import contextlib
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.machine.hardware import hardware_of
from fxf.runs import flops
from fxf.runs.experiment import build
from fxf.runs.flops import flops_per_token, matrix_flops, seconds_at_peak
from small_runs import tiny_config


def test_flops_of_a_product_are_twice_its_multiplications_and_loops_count_each_turn():
    a, b = jnp.zeros((3, 5)), jnp.zeros((5, 7))

    def looped(a, b):
        return jax.lax.scan(lambda x, _: (x @ b @ b.T, None), a, length=11)[0]

    assert matrix_flops(jax.make_jaxpr(jnp.matmul)(a, b).jaxpr) == 2 * 3 * 5 * 7
    assert matrix_flops(jax.make_jaxpr(jax.jit(jnp.matmul))(a, b).jaxpr) == 2 * 3 * 5 * 7
    assert matrix_flops(jax.make_jaxpr(looped)(a, b).jaxpr) == 11 * 2 * 2 * 3 * 5 * 7


@pytest.mark.parametrize("scan_blocks", [False, True])
def test_flops_a_token_are_those_of_the_formula(scan_blocks):
    d, f, n_layers, vocabulary, t = 6, 7, 3, 4, 2 * 2 + 2
    forward, training = flops_per_token(build(tiny_config(model={"n_layers": n_layers, "scan_blocks": scan_blocks})))
    attention = 2 * t * d + 2 * t * d  # every query with every key, and every weight with every value
    assert forward == n_layers * (2 * 4 * d * d + attention + 2 * 2 * d * f) + 2 * d * vocabulary
    assert training == pytest.approx(3 * forward)


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H200", 989.4e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12),
        ("TPU v6 lite", 918e12),
    ],
)
def test_the_peak_of_a_device_follows_from_its_kind(kind, peak):
    assert hardware_of(SimpleNamespace(device_kind=kind)).flops == peak


@pytest.mark.parametrize("kind", ["cpu", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "TPU v4"])
def test_another_device_has_no_peak(kind):
    assert hardware_of(SimpleNamespace(device_kind=kind)) is None


def layout_of(kind, n):
    return SimpleNamespace(mesh=SimpleNamespace(devices=np.array([SimpleNamespace(device_kind=kind)] * n), size=n))


def test_without_a_peak_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(flops, "model_flops", None)
    assert seconds_at_peak(None, layout_of("cpu", 3), contextlib.nullcontext) is None


def test_a_step_at_the_peak_takes_its_operations_by_those_that_all_devices_do_in_a_second():
    """By the formula above. Each shape of batch is counted once, and its time is that of compiling."""
    entered = []

    @contextlib.contextmanager
    def compiling():
        entered.append("traced")
        yield

    d, f, vocabulary = 6, 7, 4
    # What remat repeats counts once.
    experiment = build(tiny_config(model={"remat": "full"}))
    seconds = seconds_at_peak(experiment, layout_of("TPU v5e", 3), compiling)
    for rows, t in ((5, 6), (5, 4), (5, 6)):
        batch = {name: np.ones((rows, t), np.int32) for name in ("inputs", "targets")}
        per_token = 2 * 4 * d * d + 4 * t * d + 2 * 2 * d * f + 2 * d * vocabulary
        found = seconds(batch | {"weights": np.ones((rows, t), np.float32)})
        assert math.isclose(found, 3 * per_token * rows * t / (3 * 197e12))
    assert entered == ["traced"] * 2

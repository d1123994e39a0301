"""The operations of a model, counted by hand, and the time that they take a device at its peak."""

import contextlib
import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.hardware import hardware_of
from fxf.compile.describe import describe
from fxf.models import MODELS
from fxf.models.transformer_lm import transformer_lm
from fxf.runs.experiment import build
from fxf.runs.flops import flops_per_token, model_flops, seconds_at_peak
from small_runs import tiny_config


def test_flops_a_token_are_those_of_the_formula():
    d, f, n_layers, vocabulary, t = 6, 7, 3, 4, 2 * 2 + 2
    forward, training, uncounted = flops_per_token(
        build(tiny_config(model={"n_layers": n_layers, "scan_blocks": True}))
    )
    attention = 2 * t * d + 2 * t * d  # every query with every key, and every weight with every value
    assert forward == n_layers * (2 * 4 * d * d + attention + 2 * 2 * d * f) + 2 * d * vocabulary
    assert training == pytest.approx(3 * forward)
    assert not uncounted


def unlike(config, vocab_size):
    """A model whose third block and those after it have one more product, of vectors with a matrix of ones."""
    model = transformer_lm(config, vocab_size)

    def features(params, batch, *, rng=None):
        x_BTD = model.features(params, batch, rng=rng)
        for _ in range(config.n_layers - 2):
            x_BTD = x_BTD @ jnp.ones((config.d_model, config.d_model))
        return x_BTD

    return model._replace(features=features)


def test_blocks_of_a_users_model_may_be_unlike(monkeypatch):
    config = tiny_config(model={"n_layers": 5})
    alike = flops_per_token(build(config)).forward
    monkeypatch.setitem(MODELS, "transformer_lm", MODELS["transformer_lm"]._replace(make=unlike))
    experiment = build(config)
    assert flops_per_token(experiment).forward == alike + 3 * 2 * 6 * 6


def test_frozen_weights_need_no_gradient():
    """Of blocks that are frozen with all below them a step computes the forward pass alone, beside the loss's gradient.

    The loss computes the gradients of its weights and of its vectors together.
    """
    config = tiny_config(model={"n_layers": 3, "remat": "full", "scan_blocks": True})
    whole = build(config)
    batch = whole.task.largest_batch()
    tuned = build({**config, "optimizer": {**config["optimizer"], "frozen": "*,!final/*"}})
    d, vocabulary, tokens = 6, 4, math.prod(batch["weights"].shape)
    forward, of_logits = flops_per_token(whole).forward * tokens, 2 * d * vocabulary * tokens
    assert model_flops(whole, batch).flops == 3 * forward
    assert model_flops(tuned, batch).flops == forward + 2 * of_logits


def kernel(config, vocab_size):
    model = transformer_lm(config, vocab_size)

    def features(params, batch, *, rng=None):
        x_BTD = model.features(params, batch, rng=rng)
        return x_BTD * jnp.linalg.svd(jnp.ones((3, 3)))[1].sum()

    return model._replace(features=features)


def test_what_is_not_counted_is_said_of_every_figure(monkeypatch, caplog):
    monkeypatch.setitem(MODELS, "transformer_lm", MODELS["transformer_lm"]._replace(make=kernel))
    experiment = build(tiny_config())
    assert flops_per_token(experiment).uncounted == {"svd"}
    seconds = seconds_at_peak(experiment, layout_of("TPU v5e", 3), contextlib.nullcontext)
    for rows in (5, 7):
        seconds({name: np.ones((rows, 6), np.int32) for name in ("inputs", "targets", "weights")})
    assert caplog.messages == ["warning: mfu is too low: it does not count svd"]
    assert [line.split()[-1] for line in describe(experiment).splitlines() if "not counted" in line] == ["svd"]


PEAKS = {"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12, "TPU v5 lite": 197e12, "TPU v6 lite": 918e12}


def test_the_peak_of_a_device_follows_from_its_kind_and_another_one_has_none():
    found = {kind: hardware_of(SimpleNamespace(device_kind=kind)).flops for kind in PEAKS}
    assert found == PEAKS
    others = ("cpu", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "TPU v4")
    assert [hardware_of(SimpleNamespace(device_kind=kind)) for kind in others] == [None] * 4


def layout_of(kind, n):
    return SimpleNamespace(mesh=SimpleNamespace(devices=np.array([SimpleNamespace(device_kind=kind)] * n), size=n))


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

"""A model's operations against counts by hand, their time at peak, and work that a layout multiplies."""

import contextlib
import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fxf.base.devices import AXES, compiling_for
from fxf.base.weights import Weight
from fxf.compile.describe import describe
from fxf.models import MODELS
from fxf.models.transformer_lm import transformer_lm
from fxf.runs import flops
from fxf.runs.experiment import build
from fxf.runs.flops import flops_per_token, model_flops, seconds_at_peak
from fxf.training.sharding import Layout
from small_runs import tiny_config

D, F, VOCABULARY = 6, 7, 4  # of the tiny config


def per_token(n_layers, t):
    attention = 2 * t * D + 2 * t * D  # every query with every key, and every weight with every value
    return n_layers * (2 * 4 * D * D + attention + 2 * 2 * D * F) + 2 * D * VOCABULARY


def test_flops_a_token_are_those_of_the_formula_and_of_the_optimizers_gradients():
    experiment = build(tiny_config(model={"n_layers": 3, "scan_blocks": True}))
    twice = optax.GradientTransformationExtraArgs(lambda params: (), lambda g, s, p, *, grad_fn, **_: (grad_fn(p), s))
    for optimizer, n_gradients in ((experiment.optimizer, 1), (twice, 2)):
        found = flops_per_token(experiment._replace(optimizer=optimizer))
        assert found.forward == per_token(3, t=2 * 2 + 2)
        assert found.training == pytest.approx(3 * n_gradients * found.forward)
        assert not found.uncounted


def test_frozen_weights_need_no_gradient():
    """Blocks that are frozen with all below them need only the forward pass, beside the unembedding's gradient.

    Gradients of vectors pass through frozen maps between others.
    """
    config = tiny_config(model={"n_layers": 3, "remat": "full", "scan_blocks": True})
    whole = build(config)
    batch = whole.task.largest_batch()
    tuned = build({**config, "optimizer": {**config["optimizer"], "frozen": "*,!final/*"}})
    tokens = math.prod(batch["weights"].shape)
    forward, of_logits = per_token(3, t=6) * tokens, 2 * D * VOCABULARY * tokens
    assert model_flops(whole, batch).flops == 3 * forward
    assert model_flops(tuned, batch).flops == forward + of_logits
    maps = build({**config, "optimizer": {**config["optimizer"], "frozen": "blocks/*/feed_forward/*"}})
    assert model_flops(maps, batch).flops == 3 * forward - 3 * 4 * D * F * tokens


def with_a_product_and_a_kernel(config, vocab_size):
    model = transformer_lm(config, vocab_size)

    def features(params, batch, *, rng=None):  # one more product in training
        x_BTD = model.features(params, batch, rng=rng) @ jnp.linalg.matrix_power(jnp.eye(D), 1 + (rng is not None))
        return x_BTD * jnp.linalg.svd(jnp.ones((3, 3)))[1].sum()

    return model._replace(features=features)


def test_a_users_operations_are_counted_and_uncounted_ones_are_named(monkeypatch, caplog):
    monkeypatch.setitem(MODELS, "transformer_lm", MODELS["transformer_lm"]._replace(make=with_a_product_and_a_kernel))
    monkeypatch.setattr("fxf.compile.describe.memory", lambda program: {})  # would compile a step
    experiment = build(tiny_config())
    found = flops_per_token(experiment)
    assert (found.forward, found.uncounted) == (per_token(1, t=6) + 2 * D * D, {"svd"})
    layout = SimpleNamespace(mesh=SimpleNamespace(devices=np.array([SimpleNamespace(device_kind="TPU v5e")]), size=3))
    seconds = seconds_at_peak(experiment, layout, contextlib.nullcontext)
    for rows in (5, 7):
        batch = {name: np.ones((rows, 6), np.int32) for name in ("inputs", "targets", "weights")}
        assert seconds(batch) == pytest.approx(3 * (found.forward * rows * 6 + 2 * D**3) / (3 * 197e12))
    assert caplog.messages == ["warning: mfu is too low: it does not count svd"]
    assert [line.split()[-1] for line in describe(experiment).splitlines() if "not counted" in line] == ["svd"]


def layout(**sizes):
    """Returns a layout with only the mesh's sizes."""
    devices = np.array([SimpleNamespace(platform="cpu")])
    return Layout(SimpleNamespace(shape=dict.fromkeys(AXES, 1) | sizes, devices=devices))


def test_a_weight_that_a_mesh_axis_cannot_shard_is_named_with_the_factor():
    spec = {
        "table": Weight((7, 2**20), ("vocabulary", "embed"), None),
        "up": Weight((8, 12), ("embed", "mlp"), None),
        "scale": Weight((8,), ("embed",), None),
        "bias": Weight((7,), ("vocabulary",), None),
    }
    line = "parallel.tensor 2 shards no axis of table 7 x 1048576, bias 7: each of its devices holds 2 times 3.5 MiB"
    assert [*flops.whole_weights(spec, layout(fsdp=4, tensor=2))] == [line]
    assert not [*flops.whole_weights(spec, layout(data=8))]
    (line,) = flops.wasted(build(tiny_config(model={"d_ff": 12, "n_heads": 2})), layout(tensor=4))
    assert "query 6 x 2 x 3" in line and "feed_forward" not in line and line.endswith("and computes 4 times the work")


def test_batches_that_a_task_pads_for_the_parts_of_a_layout_are_named_with_the_factor():
    whole = build(tiny_config(train={"batch_size": 6, "microbatches": 3}))
    task = SimpleNamespace(has=lambda name: True, largest_batch=whole.task.largest_batch)
    assert "6 rows are padded for 9 parts: 1.5 times" in flops.wasted(whole._replace(task=task), layout(data=3))[0]


def test_a_gpu_that_shares_experts_makes_room_for_the_rows_of_all_their_devices():
    wasted = compiling_for([SimpleNamespace(platform="gpu")])(flops.wasted)
    assert wasted(build(tiny_config(model={"feed_forward": "moe"})), layout(expert=2))[0].endswith("2 times their work")

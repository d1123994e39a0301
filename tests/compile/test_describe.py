import math

import pytest

from fxf.base.weights import count
from fxf.compile.describe import describe, memory
from fxf.compile.roofline import training
from fxf.runs.experiment import build, default_config
from fxf.runs.flops import flops_per_token
from small_runs import tiny_config


@pytest.fixture
def no_memory(monkeypatch):
    """Compiles no step for a test of the other figures."""
    monkeypatch.setattr("fxf.compile.describe.training", lambda experiment: None)
    monkeypatch.setattr("fxf.compile.describe.memory", lambda program: {})


def test_every_weight_stands_in_the_table_with_its_shape_axes_and_count(no_memory):
    experiment = build(tiny_config(model={"n_layers": 3, "scan_blocks": True}))
    rows = {line.split()[0]: line.split() for line in describe(experiment).splitlines() if line}
    query = " ".join(rows["blocks/attention/query"])
    assert query == "blocks/attention/query 3 x 6 x 2 x 3 embed heads head_dim 108"
    assert rows["final/bias"][1:] == ["4", "vocabulary", "4"]
    assert rows["total"][1:] == [f"{count(experiment.model.spec):,}"]


def test_learning_rates_stand_in_the_table_where_they_differ(no_memory):
    config = tiny_config(model={"d_model": 12, "d_ff": 14, "n_heads": 4, "head_dim": 3, "base_width": 6})
    rows = {line.split()[0]: line.split() for line in describe(build(config)).splitlines() if line}
    assert rows["weight"][-1] == "rate"
    assert (rows["blocks/feed_forward/up"][-1], rows["final/kernel"][-1]) == ("0.5", "1")


def translation_config():
    """Returns a config with few weights, on the six pairs of the built-in corpus."""
    config = default_config("translation").to_dict()
    config["data"] |= {"name": "six", "tokenizer": "word", "shapes": 2}
    config["model"] |= {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 128}
    return config


def test_fed_batches_are_described_by_the_largest(no_memory):
    d, f, experiment = 6, 7, build(translation_config())
    shape = experiment.task.largest_batch()
    (rows, s), (_, t) = shape["source"].shape, shape["targets"].shape
    assert max(batch["source"].size + batch["targets"].size for batch in first(experiment.task.batches(), 7)) == (
        rows * (s + t)
    )
    encoder = 2 * 4 * d * d * s + 2 * 2 * s * s * d + 2 * 2 * d * f * s
    cross = 2 * (2 * d * d * t + 2 * d * d * s) + 2 * 2 * t * s * d  # queries and outputs, keys and values
    decoder = 2 * 4 * d * d * t + 2 * 2 * t * t * d + cross + 2 * 2 * d * f * t
    vocabulary = experiment.task.vocab_size
    forward = flops_per_token(experiment).forward
    assert forward == pytest.approx((encoder + decoder + 2 * d * vocabulary * t) / t)
    assert "decoder/blocks/cross_attention/query" in describe(experiment)


def first(iterator, n):
    return [next(iterator) for _ in range(n)]


def test_memory_is_that_of_the_state():
    experiment = build(tiny_config())
    figures = memory(training(experiment))
    n_bytes = 4 * count(experiment.model.spec)
    assert figures["weights"] == n_bytes
    assert figures["optimizer state"] == 2 * n_bytes + math.prod((2, 4))  # two moments and two int32 counts
    assert figures["activations and temporaries"] > n_bytes

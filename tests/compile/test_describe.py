from itertools import islice
from types import SimpleNamespace

import pytest

from fxf.base.weights import count
from fxf.compile.describe import describe
from fxf.compile.roofline import Program
from fxf.runs.experiment import build, default_config
from fxf.runs.flops import PerToken, flops_per_token
from small_runs import tiny_config


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """Fakes the memory plan of a step, which test_roofline.py compiles."""
    compiled = SimpleNamespace(memory_analysis=lambda: SimpleNamespace(temp_size_in_bytes=3 * 2**20))
    lowered = SimpleNamespace(compile=lambda options: compiled)
    monkeypatch.setattr("fxf.compile.describe.training", lambda e: Program(lowered, e.layout(), {"weights": 2**19}))


def described(experiment):
    """Returns the words of each line by its first one."""
    return {line.split()[0]: line.split() for line in describe(experiment).splitlines() if line}


def test_the_table_has_every_weights_shape_axes_and_count_and_then_the_memory():
    experiment = build(tiny_config(model={"n_layers": 3, "scan_blocks": True}))
    rows = described(experiment)
    query = " ".join(rows["blocks/*/attention/query"])
    assert query == "blocks/*/attention/query 3 of 6 x 2 x 3 embed heads head_dim 108"
    assert rows["final/bias"][1:] == ["4", "vocabulary", "4"]
    assert rows["total"][1:] == [f"{count(experiment.model.spec):,}"]
    assert [rows["weights"], rows["activations"][-2:]] == [["weights", "0.5", "MiB"], ["3.0", "MiB"]]


def test_the_table_has_learning_rates_if_they_differ(monkeypatch):
    monkeypatch.setattr("fxf.compile.describe.flops_per_token", lambda _: PerToken(1, 3, frozenset()))
    model = {"d_model": 12, "d_ff": 14, "n_heads": 4, "head_dim": 3, "base_width": 6}
    rows = described(build(tiny_config(model=model)))
    assert rows["weight"][-1] == "rate"
    assert (rows["blocks/*/feed_forward/up"][-1], rows["final/kernel"][-1]) == ("0.5", "1")


def test_batches_from_the_host_are_described_by_the_largest():
    d, f, config = 6, 7, default_config("translation").to_dict()
    config["data"] |= {"name": "six", "tokenizer": "word", "shapes": 2}
    config["model"] |= {"n_layers": 1, "d_model": d, "d_ff": f, "n_heads": 2, "max_len": 128}
    experiment = build(config)
    shape = experiment.task.largest_batch()
    (rows, s), (_, t) = shape["source"].shape, shape["targets"].shape
    sizes = [batch["source"].size + batch["targets"].size for batch in islice(experiment.task.batches(), 7)]
    assert max(sizes) == rows * (s + t)
    encoder = 2 * 4 * d * d * s + 2 * 2 * s * s * d + 2 * 2 * d * f * s
    cross = 2 * (2 * d * d * t + 2 * d * d * s) + 2 * 2 * t * s * d  # queries and outputs, keys and values
    decoder = 2 * 4 * d * d * t + 2 * 2 * t * t * d + cross + 2 * 2 * d * f * t
    forward = encoder + decoder + 2 * d * experiment.task.vocab_size * t
    assert flops_per_token(experiment).forward == pytest.approx(forward / t)

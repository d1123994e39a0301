"""What a layout multiplies is said before anything is compiled."""

from types import SimpleNamespace

import numpy as np
import pytest

from fxf.base.weights import Weight
from fxf.runs import flops
from fxf.runs.experiment import build
from fxf.tasks.task import Task
from fxf.training.sharding import Layout
from small_runs import tiny_config


def layout(**sizes):
    """Returns a layout where only the mesh's sizes are read."""
    shape = {"data": 1, "fsdp": 1, "expert": 1, "sequence": 1, "tensor": 1} | sizes
    return Layout(SimpleNamespace(shape=shape, devices=np.array([SimpleNamespace(platform="cpu")])))


def test_a_weight_that_an_axis_of_the_mesh_cannot_cut_is_named_with_what_it_multiplies():
    spec = {
        "table": Weight((7, 2**20), ("vocabulary", "embed"), None),
        "up": Weight((8, 12), ("embed", "mlp"), None),
        "scale": Weight((8,), ("embed",), None),
        "bias": Weight((7,), ("vocabulary",), None),
    }
    assert list(flops.whole_weights(spec, layout(fsdp=4, tensor=2))) == [
        "parallel.tensor 2 divides no axis of table 7 x 1048576, bias 7: each of its devices holds all of that, "
        "2 times 14.0 MiB and computes 2 times the work",
        "parallel.fsdp 4 divides no axis of bias 7: each of its devices holds all of that, 4 times 0.0 MiB",
    ]
    assert list(flops.whole_weights(spec, layout(data=8))) == []


def test_heads_that_tensor_does_not_divide_are_whole_on_each_of_its_devices():
    (line,) = flops.wasted(build(tiny_config(model={"d_ff": 12, "n_heads": 2})), layout(tensor=4))
    assert "query 6 x 2 x 3" in line and "feed_forward" not in line
    assert line.endswith("and computes 4 times the work")


@pytest.mark.parametrize(("n_rows", "parts", "said"), [(10, 5, []), (6, 4, ["1.3 times the work"])])
def test_rows_that_fill_up_a_batch_are_said(n_rows, parts, said):
    batch = {"weights": np.ones((n_rows, 3))}
    task = SimpleNamespace(has=lambda name: True, largest_batch=lambda: batch)
    model = SimpleNamespace(spec={})
    experiment = SimpleNamespace(task=task, model=model, train=SimpleNamespace(microbatches=1))
    lines = flops.wasted(experiment, layout(data=parts))
    assert lines == [f"batches of {n_rows} rows are filled up for {parts} parts: {each}" for each in said]


@pytest.mark.parametrize(("attention", "holds"), [("xla", True), ("chunked", False)])
def test_an_array_of_all_pairs_of_long_rows_is_said(attention, holds, monkeypatch):
    sizes = {"max_len": 1024, "attention_implementation": attention}
    experiment = build(tiny_config(task={"n_tokens": 3, "min_length": 500, "max_length": 511}, model=sizes))
    length = experiment.task.largest_batch()["weights"].shape[1]
    assert flops.wasted(experiment, layout(data=5)) == []
    monkeypatch.setattr(flops, "LONG", 1000)
    held = f"attention holds 5 x 2 x {length} x {length} pairs of tokens, "
    assert [line.startswith(held) for line in flops.wasted(experiment, layout(data=5))] == [True] * holds


def test_a_task_that_only_iterates_over_its_batches_need_not_say_their_shapes():
    class Iterates(Task):
        def batches(self):
            raise AssertionError

    experiment = SimpleNamespace(task=object.__new__(Iterates), model=SimpleNamespace(spec={}))
    assert flops.wasted(experiment, layout(data=8)) == []

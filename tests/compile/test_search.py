"""The search for a mesh, recomputation and batch size, with made-up measurements."""

import pytest

from fxf.base.errors import UserError
from fxf.compile import search
from small_runs import tiny_config


def measure(config):
    """Is fastest with fsdp 4; batches above 10 fit only with recomputation, which is slower; refuses tensor 8."""
    parallel, batch_size, full = config["parallel"], config["train"]["batch_size"], config["model"]["remat"] == "full"
    if parallel["tensor"] == 8:
        raise UserError("model.n_heads: too few")
    fits = batch_size <= (10 if parallel["data"] == 8 or not full else 20)
    seconds = batch_size * (1.3 if full else 1) / (2 if parallel["fsdp"] == 4 else 1) + 1
    known = {"attainable": None, "share_of_peak": 0.5, "bytes": {"total": 3 * 2**30}}
    return {"fits": fits, "ideal": seconds, "sequences": batch_size, **known}


@pytest.fixture(scope="module")
def trials():
    return list(search.search(tiny_config(), 8, measure))


def test_every_mesh_of_all_devices_is_tried(trials):
    found = {tuple(trial.changes.values())[:3] for trial in trials}
    assert len(found) == 10 and all(data * fsdp * tensor == 8 for data, fsdp, tensor in found)


def test_recomputation_is_tried_only_if_a_batch_does_not_fit_and_then_no_larger_one_and_lines_say_so(trials):
    def tried(*mesh):
        return [(*list(t.changes.values())[3:], t.rate > 0) for t in trials if tuple(t.changes.values())[:3] == mesh]

    fit = [("none", 5, True), ("none", 10, True)]
    assert tried(4, 2, 1) == [*fit, ("none", 20, False), ("dots", 20, False), ("full", 20, True)]
    assert tried(8, 1, 1) == [*fit, *((remat, 20, False) for remat in ("none", "dots", "full"))]
    assert tried(1, 1, 8) == [("none", 5, False)]
    refused = "data=1 fsdp=1 tensor=8 remat=none batch_size=5: model.n_heads: too few"
    told = "data=2 fsdp=4 tensor=1 remat=none batch_size=10: 1.7 sequences a second, 50.0 % of peak, 3.0 GiB"
    assert refused in map(search.line, trials) and search.line(max(trials, key=lambda trial: trial.rate)) == told

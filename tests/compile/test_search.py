"""The search for a mesh, recomputation and batch size, with figures that are made up."""

import pytest

from fxf.base.errors import UserError
from fxf.compile import search
from small_runs import tiny_config


def figures(seconds, fits=True):
    found = {"fits": fits, "attainable": None, "ideal": seconds, "share_of_peak": 0.5, "bytes": {"total": 3 * 2**30}}
    return found


def measure(config):
    """Fastest with fsdp 4; a batch above 10 fits only with recomputation, which takes longer; tensor 8 is refused."""
    parallel, batch_size, full = config["parallel"], config["train"]["batch_size"], config["model"]["remat"] == "full"
    if parallel["tensor"] == 8:
        raise UserError("model.n_heads: too few")
    fits = batch_size <= (20 if full else 10)
    return figures(batch_size * (1.3 if full else 1) / (2 if parallel["fsdp"] == 4 else 1) + 1, fits)


@pytest.fixture(scope="module")
def trials():
    return list(search.search(tiny_config(), 8, measure))


def test_every_mesh_of_all_devices_is_tried_with_and_without_recomputation(trials):
    found = {tuple(trial.changes.values())[:4] for trial in trials}
    assert len(found) == 10 * 2
    assert all(data * fsdp * tensor == 8 for data, fsdp, tensor, _ in found)


def test_a_larger_batch_is_tried_only_if_a_smaller_one_fits(trials):
    of_one = [t for t in trials if tuple(t.changes.values())[:4] == (8, 1, 1, "none")]
    assert [trial.changes["train.batch_size"] for trial in of_one] == [5, 10, 20]
    assert [trial.rate > 0 for trial in of_one] == [True, True, False]
    refused = [trial for trial in trials if trial.changes["parallel.tensor"] == 8]
    assert len(refused) == 2 and all(search.line(trial).endswith(": model.n_heads: too few") for trial in refused)


def test_the_best_is_a_command_with_the_users_own_changes(trials):
    best = max(trials, key=lambda trial: trial.rate)
    assert search.line(best) == (
        "data=2 fsdp=4 tensor=1 remat=none batch_size=10: 1.7 sequences a second, 50.0 % of peak, 3.0 GiB"
    )
    assert search.command("reversal", {"model.n_layers": 3, "train.batch_size": 5}, best) == (
        "fxf train --config=reversal --config.model.n_layers=3 --config.train.batch_size=10 --config.parallel.data=2 "
        "--config.parallel.fsdp=4 --config.parallel.tensor=1 --config.model.remat=none"
    )

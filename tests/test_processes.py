"""What one process can show; tests/training/test_sharding.py trains in two, tests/cluster/run.sh under launchers."""

import dataclasses
import re

import jax
import pytest

from fxf import processes
from fxf.config import ParallelConfig
from fxf.errors import PeerLost
from runs import ROOT


def raises(message):
    with processes.together():
        raise jax.errors.JaxRuntimeError(message)


def test_the_loss_of_another_process_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    with pytest.raises(PeerLost) as lost:
        raises("UNKNOWN: Gloo AllGather failed: Connection closed by peer\nand more")
    assert str(lost.value) == (
        "process 0 of 3: lost another one; the same command goes on from the newest checkpoint "
        "(UNKNOWN: Gloo AllGather failed: Connection closed by peer)"
    )


@pytest.mark.parametrize(
    ("count", "message"), [(1, "UNKNOWN: anything"), (3, "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")]
)
def test_what_no_other_process_is_the_cause_of_stays_what_it_is(count, message, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: count)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        raises(message)


def test_one_process_agrees_with_itself():
    assert processes.first()
    assert [processes.any_of(told) for told in (True, False)] == [True, False]
    assert processes.first_says(7) == 7
    processes.wait()


@pytest.mark.parametrize("path", ["slurm/train.sbatch", "kubernetes/train.yaml"])
def test_what_launches_them_sets_keys_that_there_are(path):
    text = (ROOT / "experiments" / path).read_text()
    keys = re.findall(r"--config\.parallel\.(\w+)=", text)
    assert "processes" in keys
    assert {*keys} <= {field.name for field in dataclasses.fields(ParallelConfig)}

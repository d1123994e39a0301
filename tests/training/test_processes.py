"""What one process can show; tests/training/test_sharding.py trains in two, tests/cluster/run.sh under launchers."""

import sys

import jax
import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.training import processes


def raises(error):
    with processes.ending_with_the_others():
        raise error


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError, TimeoutError])
def test_the_loss_of_another_process_ends_this_one_in_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(processes.os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="75"):
        raises(error("UNKNOWN: Gloo AllGather failed: Connection closed by peer\nand more"))
    assert capsys.readouterr().err == (
        "error: process 0 of 3: lost another one; the same command resumes from the newest checkpoint "
        "(UNKNOWN: Gloo AllGather failed: Connection closed by peer)\n"
    )


@pytest.mark.parametrize(
    ("count", "message"), [(1, "UNKNOWN: anything"), (3, "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")]
)
def test_what_no_other_process_is_the_cause_of_stays_what_it_is(count, message, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: count)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        raises(jax.errors.JaxRuntimeError(message))


def test_processes_with_other_configs_are_refused(monkeypatch):
    """A gather that adds what another process has sent."""
    sent = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", lambda x: sent.append(x) or np.stack(sent))
    processes.require_same_config({"seed": 0, "parallel": {"processes": 2, "process": 0}})
    processes.require_same_config({"seed": 0, "parallel": {"processes": 2, "process": 1}})
    with pytest.raises(UserError, match=r"^process 0 of 2: another process has another config, data or code"):
        processes.require_same_config({"seed": 3, "parallel": {"processes": 2, "process": 1}})


def test_one_process_agrees_with_itself():
    assert processes.is_first()
    assert [processes.any_of(told) for told in (True, False)] == [True, False]
    assert processes.of_first(7) == 7
    processes.barrier()

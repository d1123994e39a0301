"""Runs whose tokens make the positions go on to the same bits, as every time those of test_run.py do."""

import shutil
import time

import jax
import numpy as np
import pytest

import fxf
from fxf.runs import run
from fxf.tasks.reversal import Reversal
from fxf.training.log import Clock
from small_runs import tiny_config

KINDS = {
    "turns": {"positions": "turns", "turns_settle_at": 5, "d_model": 8, "window": 3},
    "walks": {"positions": "walks", "n_walks": 9, "d_model": 8, "window": 3},
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_has_the_bits_of_the_run_that_never_stopped(kind, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Reversal, "validate", lambda *_: {"exact_match": 0.0})  # answers are tested elsewhere
    kept = {}

    def params_of(folder):
        config, origin = tiny_config(model=KINDS[kind]), {"config_file": "test", "overrides": {}}
        run.train(config, folder, Clock(time.perf_counter()), origin, kept=kept)
        return fxf.load(folder).params

    whole = params_of(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    (tmp_path / "parts" / "result.json").unlink()
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "6")
    parts = params_of(tmp_path / "parts")
    assert "resuming at step 4" in capsys.readouterr().err
    jax.tree.map(np.testing.assert_array_equal, parts, whole)

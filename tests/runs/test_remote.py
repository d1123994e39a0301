"""A run folder in a bucket. `epath.Path` on a local folder stands in for it: the same code runs, without a network."""

import json

import jax
import numpy as np
import pytest
from etils import epath

from fxf.base.errors import UserError
from fxf.base.files import is_remote
from fxf.runs import run
from fxf.tasks.reversal import Reversal
from small_runs import KEPT, tiny_config, trained


def train(workdir, shown=True, **sections):
    log = {"tensorboard": shown, "report": shown, "every": 2}
    config = tiny_config(log=log, checkpoint={"every": 2, "keep": 2}, **sections)
    return trained(config, workdir, kept=KEPT)


def test_a_run_in_a_bucket_is_the_run_in_a_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Reversal, "validate", lambda *_: {"exact_match": 0.0})  # answers are tested elsewhere
    there, here = epath.Path(tmp_path / "there"), tmp_path / "here"
    assert is_remote(there) and not is_remote(here)
    result = train(there)
    assert {k: v for k, v in result.items() if "second" not in k and k != "goodput"} == {
        k: v for k, v in train(here, shown=False).items() if "second" not in k and k != "goodput"
    }
    jax.tree.map(np.testing.assert_array_equal, run.load(there)[2], run.load(here)[2])
    assert sorted(path.name for path in (tmp_path / "there" / "checkpoints").iterdir()) == ["4", "6"]
    assert train(there) == result
    assert "finished already" in capsys.readouterr().out
    # A checkpoint whose save was cut short has no digests: it is passed over, and its step is saved again.
    for name in ("result.json", "checkpoints/6/digests.json"):
        (tmp_path / "there" / name).unlink()
    train(there)
    jax.tree.map(np.testing.assert_array_equal, run.load(there)[2], run.load(here)[2])
    records = (tmp_path / "there" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in records] == [2, 4, 6]
    assert len(list((tmp_path / "there" / "tensorboard").iterdir())) == 2
    assert "report.html" in [path.name for path in (tmp_path / "there").iterdir()]
    with pytest.raises(UserError, match="holds another run: seed"):
        train(there, seed=1)

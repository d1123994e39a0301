"""The files that a run is exported to."""

import json

import jax
import numpy as np
import pytest

from fxf.base.weights import flatten
from fxf.interop import huggingface
from fxf.interop.weights_file import read_weights
from fxf.runs import run
from small_runs import command, overrides

pytest.importorskip("safetensors")


def test_a_run_is_exported_in_every_format(tmp_path):
    choices = {"norm_epsilon_in": "variance", "positions": "learned", "attention_bias": "all", "tied_embeddings": True}
    workdir, found = tmp_path / "run", []
    command("train", *overrides(model=choices), f"--workdir={workdir}")
    for kind in ("safetensors", "huggingface"):
        finished = command("export", f"--workdir={workdir}", f"--format={kind}")
        assert finished.returncode == 0, finished.stderr
        found.append(finished.stdout.strip())
    assert found == [str(workdir / "params.safetensors"), str(workdir / "huggingface")]
    params = run.load(workdir)[2]
    for loaded in (read_weights(workdir / "params.safetensors"), flatten(huggingface.load(found[1]).params)):
        jax.tree.map(np.testing.assert_array_equal, dict(loaded), dict(flatten(params)))
    config = json.loads((workdir / "huggingface" / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"]
    assert [config[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [0, 0, 0]

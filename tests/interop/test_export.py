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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("export") / "run"
    choices = {"norm_epsilon_in": "variance", "positions": "learned", "attention_bias": "all", "tied_embeddings": True}
    finished = command("train", *overrides(model=choices), f"--workdir={workdir}")
    assert finished.returncode == 0, finished.stderr
    return workdir


def exported(trained, *flags):
    finished = command("export", f"--workdir={trained}", *flags)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_a_run_is_exported_in_every_format(trained):
    assert exported(trained, "--format=safetensors") == str(trained / "params.safetensors")
    assert exported(trained, "--format=huggingface") == str(trained / "huggingface")
    params = run.load(trained)[2]
    for loaded in (
        read_weights(trained / "params.safetensors"),
        flatten(huggingface.load(trained / "huggingface").params),
    ):
        jax.tree.map(np.testing.assert_array_equal, dict(loaded), dict(flatten(params)))
    config = json.loads((trained / "huggingface" / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"]
    assert [config[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [0, 0, 0]

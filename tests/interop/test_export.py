"""What an exported file does is run by a Python that never imports fxf."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import flatten
from fxf.interop import huggingface
from fxf.interop.export import export_model
from fxf.interop.weights_file import read_weights
from fxf.models import MODELS
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs import run
from helpers import VOCAB_SIZE, random_params, random_tokens, small
from small_runs import command, overrides

pytest.importorskip("flatbuffers")
pytest.importorskip("safetensors")

MAX_TOKENS = 5

# Reads model.npz and batch.npz; writes logits, and the greedy continuation of the prompts token by token.
PROGRAM = """
import sys
import jax.export
import numpy as np
file, batch = np.load("model.npz"), dict(np.load("batch.npz"))
tokens, lengths = batch.pop("tokens"), batch.pop("lengths")
weights = {name.removeprefix("weights/"): file[name] for name in file.files if name.startswith("weights/")}
programs = {name: jax.export.deserialize(file[name].tobytes()) for name in ("forward", "prefill", "step")}
logits = programs["forward"].call(weights, batch)
before = np.pad(tokens, ((0, 0), (1, 0)))
last = np.take_along_axis(before, lengths[:, None], axis=1)[:, 0]
cache = programs["prefill"].call(weights, {**batch, "inputs": before[:, :-1], "lengths": lengths})
continued = []
for _ in range(5):
    step_logits, cache = programs["step"].call(weights, cache, last)
    last = np.asarray(step_logits).argmax(-1).astype(np.int32)
    continued.append(last)
np.savez("output.npz", logits=logits, continued=np.stack(continued, axis=1))
assert not {"fxf", "flax", "optax"} & {name.split(".")[0] for name in sys.modules}, "not without fxf"
"""


def run_elsewhere(folder):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, "JAX_PLATFORMS": "cpu", "JAX_DEFAULT_MATMUL_PRECISION": "highest"},
    )
    assert finished.returncode == 0, finished.stderr
    return arrays_of(folder / "output.npz")


def arrays_of(path):
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize(
    ("name", "config_class", "changes"),
    [
        pytest.param("encoder_decoder", EncoderDecoderConfig, {"scan_blocks": True}, marks=pytest.mark.thorough),
        ("transformer_lm", TransformerLMConfig, {"positions": "rotary", "d_model": 12, "window": 3}),
    ],
)
def test_the_file_gives_the_logits_and_the_greedy_tokens_of_the_model(name, config_class, changes, tmp_path):
    model = MODELS[name][1](small(config_class, **changes), VOCAB_SIZE)
    params = random_params(model.spec)
    source = {"source": random_tokens((1, 1)), "source_mask": np.ones((1, 1), bool)} if "encoder" in name else {}
    export_model(tmp_path / "model.npz", model, params, {"inputs": random_tokens((1, 1)), **source}, 13)

    # Other sizes than those above.
    if source:
        mask = np.arange(4)[None] < np.array([[4], [1], [3]])
        source = {"source": random_tokens((3, 4), seed=1), "source_mask": mask}
    batch = {"inputs": random_tokens((3, 7)), **source}
    prompts = {"tokens": random_tokens((3, 2), seed=2), "lengths": np.array([2, 0, 1], np.int32)}
    np.savez(tmp_path / "batch.npz", **batch, **prompts)
    output, apply = run_elsewhere(tmp_path), jax.jit(model.apply)
    assert_close(output["logits"], apply(params, batch))
    inputs = np.zeros((3, 8), np.int32)
    inputs[:, 1:3] = prompts["tokens"]
    for i in range(MAX_TOKENS):
        at = np.arange(3), prompts["lengths"] + i
        found = np.asarray(apply(params, {**batch, "inputs": inputs[:, :7]}))[at].argmax(-1)
        np.testing.assert_array_equal(output["continued"][:, i], found)
        inputs[at[0], at[1] + 1] = found


def test_more_tokens_than_positions_are_refused(tmp_path):
    model = MODELS["transformer_lm"][1](small(), VOCAB_SIZE)._replace(prefill=None, step=None)
    params = random_params(model.spec)
    export_model(tmp_path / "model.npz", model, params, {"inputs": random_tokens((1, 1))}, 13)
    file = arrays_of(tmp_path / "model.npz")
    weights = {name.removeprefix("weights/"): file[name] for name in file if name.startswith("weights/")}
    forward = jax.export.deserialize(file["forward"].tobytes())
    assert set(forward.platforms) == {"cpu", "cuda", "tpu"}
    assert forward.call(weights, {"inputs": random_tokens((2, 13))}).shape == (2, 13, VOCAB_SIZE)
    with pytest.raises(ValueError, match="shapes"):
        forward.call(weights, {"inputs": random_tokens((2, 14))})


def test_a_model_whose_program_depends_on_the_length_is_one_line(tmp_path):
    config = small(max_len=131, attention="linear")  # which goes through a sequence in chunks
    model = MODELS["transformer_lm"][1](config, VOCAB_SIZE)
    with pytest.raises(UserError, match=r"model.npz: the number of tokens decides what this model does"):
        export_model(tmp_path / "model.npz", model, random_params(model.spec), {"inputs": random_tokens((1, 1))}, 131)


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


def test_a_run_is_exported_in_every_format(trained, tmp_path):
    assert exported(trained, "--format=safetensors") == str(trained / "params.safetensors")
    assert exported(trained, "--format=jax", f"--output={tmp_path / 'model.npz'}") == str(tmp_path / "model.npz")
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
    file = arrays_of(tmp_path / "model.npz")
    np.testing.assert_array_equal(file["weights/embedding/table"], params["embedding"]["table"])

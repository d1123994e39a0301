"""Runs that start from weights that exist: of a run, a file or a folder of transformers."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tokenizers

import fxf
from closeness import assert_close
from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.weights import flatten, leaves
from fxf.interop import huggingface, weights_file
from fxf.models import MODELS, RegisteredModel
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs import run
from fxf.runs.experiment import build, default_config
from fxf.runs.source import StartConfig
from fxf.runs.warm_start import Start, chosen, config_from, start_of
from fxf.training.gradient import batch_loss
from fxf.training.state import run_keys
from helpers import one_device, random_params
from small_runs import KEPT, tiny_config, trained

ONE_STEP = {"train": {"steps": 1, "batch_size": 4}, "log": {"every": 1, "tensorboard": False}}
TINY_MODEL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 17}
ROTARY = TransformerLMConfig(
    **TINY_MODEL | {"n_heads": 1, "max_len": 9},
    positions="rotary",
    norm="rms",
    norm_epsilon_in="variance",
    gated=True,
    activation="silu",
    attention_bias="none",
    feed_forward_bias=False,
    final_bias=False,
)


def train(workdir, config):
    return trained(config, workdir, kept=KEPT)


def changed(config, **sections):
    return {name: {**value, **sections.get(name, {})} if name != "seed" else value for name, value in config.items()}


def first_loss(workdir):
    return json.loads((workdir / "metrics.jsonl").read_text().splitlines()[0])["loss"]


def loss_of(model, params, batch):
    loss_sum, weight_sum = jax.jit(lambda p: batch_loss(model, p, batch))(params)
    return loss_sum / weight_sum


def started(config, workdir):
    """Returns the experiment of a config, and what its run starts from."""
    experiment = build(config, workdir)
    return experiment, start_of(experiment, one_device(), workdir)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with checkpoints of steps 2, 4 and 6."""
    workdir = tmp_path_factory.mktemp("start") / "source"
    trained(tiny_config(), workdir, kept=KEPT)
    return workdir


def test_the_first_loss_is_that_of_the_source_which_a_begun_run_no_longer_needs(source, tmp_path):
    copy, workdir = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(source, copy)
    plain = tiny_config(seed=3, optimizer={"learning_rate": 1e-30})  # the first record has the mean of two steps
    config = config_from(plain, f"{copy}:4", workdir)
    result = train(workdir, config)
    experiment, _, params = run.load(copy, step=4)
    data, batch = run_keys(3).data, jax.jit(build(config).task.batch)
    batches = [batch(jax.random.fold_in(data, step), step) for step in range(2)]
    both = jax.tree.map(lambda *rows: np.concatenate(rows), *batches)
    assert_close(first_loss(workdir), loss_of(experiment.model, params, both))
    record = json.loads((workdir / "config.json").read_text())
    assert record["start"] == {"path": str(copy), "step": 4} and len(record["digests"]["start.path"]) == 32
    shutil.rmtree(copy)
    assert config_from(plain, f"{copy}:4", workdir) == config
    assert train(workdir, config) == result
    (workdir / "result.json").unlink()
    assert started(config, workdir)[1] == Start(digests={"start.path": record["digests"]["start.path"]})


@dataclasses.dataclass(frozen=True)
class WithRank(TransformerLMConfig):
    name: str = "ranked"
    rank: int = key(4, "a key of its own", minimum=1)


@pytest.fixture
def ranked(monkeypatch):
    registered = RegisteredModel(WithRank, MODELS["transformer_lm"].make, in_place_of="transformer_lm")
    monkeypatch.setitem(MODELS, "ranked", registered)


NAMED = {"model.name"}


@pytest.mark.parametrize(
    ("model", "changes", "overridden", "rank"),
    [
        ("ranked", {"rank": 7}, NAMED | {"model.rank"}, 7),
        ("transformer_lm", {"name": "ranked"}, NAMED, 4),  # the config has the keys of another model
    ],
)
@pytest.mark.usefixtures("ranked")
def test_a_model_that_adds_a_key_starts_from_a_run_with_the_given_value_or_the_default(
    model, changes, overridden, rank, source, tmp_path
):
    begun = changed(default_config("reversal", model=model).to_dict(), model=changes)
    config = config_from(begun, str(source), tmp_path, overridden)
    assert config["model"] == {**tiny_config()["model"], "name": "ranked", "rank": rank}


def test_a_safetensors_file_gives_its_weights(source, tmp_path):
    _, _, params = run.load(source)
    weights_file.save_weights(tmp_path / "params.safetensors", params)
    config = tiny_config(start={"path": str(tmp_path / "params.safetensors")})
    experiment, start = started(config, tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, experiment.new_state(one_device(), start.given).params, params)


def test_patterns_choose_the_weights_and_the_others_are_drawn(source, tmp_path):
    start = {"path": str(source), "weights": "blocks/*,!*/bias"}
    experiment, begun = started(tiny_config(start=start, seed=5), tmp_path)
    fresh = flatten(build(tiny_config(seed=5)).new_state(one_device()).params)
    params, theirs = flatten(experiment.new_state(one_device(), begun.given).params), flatten(run.load(source)[2])
    taken = [path for path in params if path.startswith("blocks/") and not path.endswith("/bias")]
    assert begun.given.keys() == set(taken) and 0 < len(taken) < len(params)
    for path, value in params.items():
        np.testing.assert_array_equal(value, (theirs if path in taken else fresh)[path])
    assert "drawn at random: embedding/table" in begun.lines[1]


SPEC = {path: weight.shape for path, weight in leaves(fxf.model(vocab_size=5, **TINY_MODEL).spec)}


@pytest.mark.parametrize(
    ("keys", "change", "message"),
    [
        ({}, {"final/bias": None}, r"^start.path: there: final/bias is absent there; start.on_mismatch=draw"),
        ({}, {"final/bias": (6,)}, r"final/bias has shape \[6\] there, \[5\] here"),
        ({}, {"final/bias": (6,)}, r"start.on_mismatch=draw draws the whole of such weights at random"),
        ({}, {"final/scale": (6,)}, r"final/scale is not a weight of this model"),
        ({"weights": "block/*"}, {}, r"^start.weights: 'block/\*' matches no weight.*embedding/table"),
        ({"weights": ""}, {}, r"^start.weights: '' chooses no weight"),
        ({"weights": "final/bias", "on_mismatch": "draw"}, {"final/bias": None}, "none of its weights is taken"),
    ],
)
def test_what_does_not_fit_is_one_line(keys, change, message):
    shapes = {path: shape for path, shape in {**SPEC, **change}.items() if shape}
    found = {path: SimpleNamespace(shape=shape) for path, shape in shapes.items()}
    spec = fxf.model(vocab_size=5, **TINY_MODEL).spec
    with pytest.raises(UserError, match=message):
        chosen(StartConfig("there", **keys), spec, found)
    if "weights" not in keys:
        given, lines = chosen(StartConfig("there", on_mismatch="draw"), spec, found)
        assert given.keys() == SPEC.keys() - ({"final/bias"} & change.keys())
        assert any(next(iter(change)) in line for line in lines)


def save_llama(folder):
    """Writes a Llama whose table has more rows than its tokenizer has tokens."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate("abcde ")}, []))
    backend.add_special_tokens(["<|endoftext|>"])
    tokens = {"first": 6, "end": 6, "padding": 6, "tokenizer": backend.to_str()}
    huggingface.save(folder, ROTARY, random_params(fxf.model(vocab_size=11, **vars(ROTARY)).spec), **tokens)


def llama_config(folder):
    (folder / "text.txt").write_text("abc dea b cade" * 29)
    config = changed(default_config("language_model").to_dict(), **ONE_STEP, task={"length": 8})
    return changed(config, data={"path": str(folder / "text.txt")})


def test_a_llama_comes_with_its_model_and_tokenizer(tmp_path):
    save_llama(tmp_path / "llama")
    config = config_from(llama_config(tmp_path), str(tmp_path / "llama"), tmp_path / "run", ["model.dropout"])
    assert (config["model"]["positions"], config["data"]["vocab_size"]) == ("rotary", 8000)
    experiment, start = started(config, tmp_path / "run")
    assert experiment.task.vocab_size == 7 and experiment.task.tokenizer.encode("bad") == [1, 0, 3]
    theirs = flatten(huggingface.load(tmp_path / "llama").params)
    theirs |= {"embedding/table": theirs["embedding/table"][:7], "final/kernel": theirs["final/kernel"][:, :7]}
    jax.tree.map(np.testing.assert_array_equal, start.given, theirs)
    assert "7 weights and the tokenizer" in start.lines[0].replace(str(len(theirs)), "7") and len(start.lines) == 1

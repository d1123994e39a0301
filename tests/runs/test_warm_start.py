"""Runs that start from existing weights: of a run, a file or a folder of transformers; and runs with adapters."""

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
from fxf.base.weights import flatten, leaves, shapes
from fxf.interop import huggingface, peft, weights_file
from fxf.models import MODELS
from fxf.models.lora import LORA
from fxf.models.transformer_lm import TransformerLMConfig
from fxf.runs import run, run_folder
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import build, default_config
from fxf.runs.loading import plain_params
from fxf.runs.source import StartConfig
from fxf.runs.warm_start import Start, chosen, config_from, start_of
from fxf.training.gradient import batch_loss
from fxf.training.state import run_keys
from fxf.verbs.export import base_of
from helpers import one_device, random_params, table
from small_runs import KEPT, Shared, command, records, text_config, tiny_config, trained, with_sections

# A Llama, as in `transformers`.
LLAMA = {"positions": "rotary", "norm": "rms", "norm_epsilon_in": "variance", "gated": True, "activation": "silu",
         "attention_bias": "none", "feed_forward_bias": False, "final_bias": False, "n_heads": 1,
         "head_dim": 6}  # fmt: skip
PROGRAMS = Shared()  # runs of such a model that start from different weights
ADAPTERS = {"rank": 2, "alpha": 3.0}
ADAMW = {"name": "adamw", "weight_decay": 0.5, "clip_norm": 1.0, "ema_decay": 0.5, "learning_rate": 0.3}


def bits(params):
    return {path: np.asarray(value).tobytes() for path, value in flatten(params).items()}


def halved(params):
    return jax.tree.map(lambda x: x / 2, params)


def started(config, workdir):
    """Returns the experiment of a config, and its start."""
    experiment = build(config, workdir)
    return experiment, start_of(experiment, one_device(), workdir)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with checkpoints of steps 2, 4 and 6, which uses the mean of the last two."""
    workdir = tmp_path_factory.mktemp("start") / "source"
    trained(tiny_config(model=LLAMA, checkpoint={"average": 2}), workdir, kept=PROGRAMS)
    return workdir


@pytest.fixture(scope="module")
def tuned(source):
    """A run of adapters on `source`, with the same checkpoints."""
    workdir = source.parent / "tuned"
    trained(config_from(tiny_config(seed=3, lora=ADAPTERS, optimizer=ADAMW), str(source), workdir), workdir, kept=KEPT)
    return workdir


def test_the_first_loss_is_the_sources_which_a_started_run_no_longer_needs(source, tmp_path):
    copy, workdir = shutil.copytree(source, tmp_path / "copy"), tmp_path
    plain = tiny_config(seed=3, optimizer={"learning_rate": 1e-30})  # the first record is the mean of two steps
    config = config_from(plain, f"{copy}:4", workdir)
    failed = {**config, "model": {**config["model"], "dropout": 0.5}}  # before it began
    run_folder.open_for_training(run_folder.RunInputs(workdir, failed, {"start.path": ""}, {}), {})
    assert config_from(plain, f"{copy}:4", workdir) == config
    result = trained(config, workdir, kept=PROGRAMS)
    experiment, _, params = run.load(copy, step=4)
    data, batch = run_keys(3).data, jax.jit(build(config).task.batch)
    batches = [batch(jax.random.fold_in(data, step), step) for step in range(2)]
    both = jax.tree.map(lambda *rows: np.concatenate(rows), *batches)
    loss_sum, weight_sum = jax.jit(lambda p: batch_loss(experiment.model, p, both))(params)
    assert_close(records(workdir)[0]["loss"], loss_sum / weight_sum)
    record = json.loads((workdir / "config.json").read_text())
    assert record["start"] == {"path": str(copy), "step": 4} and len(record["digests"]["start.path"]) == 32
    shutil.rmtree(copy)
    assert config_from(plain, f"{copy}:4", workdir) == config
    assert trained(config, workdir, kept=PROGRAMS) == result
    (workdir / "result.json").unlink()
    assert started(config, workdir)[1] == Start(digests={"start.path": record["digests"]["start.path"]})


@dataclasses.dataclass(frozen=True)
class WithRank(TransformerLMConfig):
    rank: int = key(4, "a key of its own", minimum=1)


def test_a_model_of_ones_own_starts_from_a_run_with_its_own_keys_and_parts(source, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "own:MODEL", MODELS["transformer_lm"]._replace(config=WithRank))
    ours = {"name": "own:MODEL", "rank": 7, "attention": "own:Sigmoid", "layers": {"attention": {"slope": 2}}}
    begun = with_sections(default_config("reversal", model="own:MODEL").to_dict(), {"model": ours})
    assert config_from(begun, str(source), tmp_path)["model"] == tiny_config(model=LLAMA)["model"] | ours
    given = config_from(tiny_config(), str(source), tmp_path, {"model.layers.a.k": 3})
    assert given["model"] == tiny_config(model=LLAMA)["model"] | {"layers": {"a": {"k": 3}}}


def test_patterns_choose_weights_of_a_run_or_a_file_and_the_others_are_drawn(source, tmp_path):
    weights_file.save_weights(tmp_path / "params.safetensors", params := run.load(source)[2])
    for place in (source, tmp_path / "params.safetensors"):
        start = {"path": str(place), "weights": "blocks/*,!*/scale"}
        experiment, begun = started(tiny_config(model=LLAMA, start=start, seed=5), tmp_path)
        experiment = experiment.sharing(PROGRAMS)
        new, theirs = flatten(experiment.new_state(one_device(), begun.given).params), flatten(params)
        taken = [path for path in new if path.startswith("blocks/") and not path.endswith("/scale")]
        assert begun.given.keys() == set(taken) and 0 < len(taken) < len(new)
        assert "drawn at random: embedding/table" in begun.lines[1]
        assert begun.origin["start"]["step"] == (6 if place == source else None)
        fresh = flatten(experiment.new_state(one_device()).params)
        for path, value in new.items():
            np.testing.assert_array_equal(value, (theirs if path in taken else fresh)[path])


@pytest.mark.parametrize(("change", "said"), table("weights that do not fit"))
def test_weights_that_do_not_fit_are_drawn_or_left_out_on_request(change, said):
    spec = fxf.model(vocab_size=5, n_layers=1, d_model=6, n_heads=3).spec
    ours = {path: weight.shape for path, weight in leaves(spec)}
    name, shape = change["name"], change["shape"]
    theirs = {path: SimpleNamespace(shape=shape) for path, shape in {**ours, name: shape}.items() if shape}
    given, lines = chosen(StartConfig("there", on_mismatch="draw"), spec, theirs)
    assert given.keys() == ours.keys() - {name} and lines == (said,)
    assert chosen(StartConfig("there", f"*,!{name}"), spec, theirs)[0].keys() == given.keys()


def test_a_llama_comes_with_its_model_and_tokenizer(tmp_path):
    """The Llama's table has more rows than its tokenizer has tokens."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate("abcde ")}, []))
    backend.add_special_tokens(["<|endoftext|>"])
    llama = TransformerLMConfig(**LLAMA, n_layers=1, d_model=6, d_ff=7, max_len=9)
    params = random_params(fxf.model(vocab_size=12, **vars(llama)).spec)
    huggingface.save(tmp_path / "llama", llama, params, first=6, end=6, padding=6, tokenizer=backend.to_str())
    (tmp_path / "text.txt").write_text("abc dea b cade" * 29)
    of_text = text_config(tmp_path / "text.txt", task={"length": 8}, model={"dropout": 0.25})
    config = config_from(of_text, str(tmp_path / "llama"), tmp_path / "run", {"model.dropout": 0.25})
    with pytest.raises(UserError, match=r"^data\.tokenizer: a run that starts from .* has its tokenizer, here .*; got"):
        config_from(of_text, str(tmp_path / "llama"), tmp_path / "run", {"data.tokenizer": "character"})
    found = [config["model"][key] for key in ("positions", "max_len", "dropout")]
    assert (found, config["data"]["vocab_size"]) == (["rotary", 9, 0.25], 8000)
    experiment, start = started(config, tmp_path / "run")
    assert experiment.task.vocab_size == 7 and experiment.task.tokenizer.encode("bad") == [1, 0, 3]
    theirs = flatten(params)
    theirs |= {"embedding/table": theirs["embedding/table"][:7], "final/kernel": theirs["final/kernel"][:, :7]}
    jax.tree.map(np.testing.assert_array_equal, start.given, theirs)
    assert start.lines[0].endswith(f"{len(theirs)} weights and the tokenizer") and len(start.lines) == 1
    (tmp_path / "llama/tokenizer.json").unlink()  # tokens that a run learns are not those of the Llama's rows
    with pytest.raises(UserError, match=r"embedding/table has shape \[12, 6\] there, \[11, 6\] here"):
        started(config_from(of_text, str(tmp_path / "llama"), tmp_path / "new"), tmp_path / "new")


def test_training_adapters_keeps_the_bits_of_the_base_without_moments_and_resumes(source, tuned, tmp_path):
    experiment, _, params = run.load(tuned, as_trained=True)
    base, after = bits(run.load(source)[2]), bits(params)
    assert {path: value for path, value in after.items() if not path.startswith(LORA)} == base
    assert all(np.any(value) for value in jax.tree.leaves(params[LORA]))  # every adapter has changed
    state = experiment.state_shapes(one_device()).opt_state.inner
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert any("['mu']" in path or ".mu" in path for path in paths)
    assert not any("'blocks'" in path and "'lora'" not in path for path in paths)
    copy = shutil.copytree(tuned, tmp_path / "copy")
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "checkpoints" / "6")
    trained(json.loads((tuned / "config.json").read_text())["config"], copy, kept=KEPT)
    assert bits(run.load(copy, as_trained=True)[2]) == after


def test_a_loaded_run_of_adapters_has_plain_weights_and_a_plain_models_programs(source, tuned):
    (plain, *_), (loaded, _, params) = run.load(source), run.load(tuned)
    assert flatten(params).keys() == flatten(shapes(plain.model.spec)).keys() == flatten(fxf.load(tuned).params).keys()
    trains, _, adapted = run.load(tuned, as_trained=True)
    halving = plain._of_model(plain.model._replace(to_plain=halved))
    doubled = jax.tree.map(lambda x: 2 * x, params)
    assert bits(plain_params(halving, one_device(), doubled)) == bits(params)
    evaluators = [Evaluators(each, one_device()) for each in (plain, loaded, trains, halving)]
    prompts = {"tokens": np.zeros((5, 3), np.int32)} | dict.fromkeys(("lengths", "first"), np.ones(5, np.int32))
    texts = {
        each.decoder.jitted.lower(shapes(plain.model.spec), prompts, each.decoder.key, max_tokens=4).as_text()
        for each in evaluators
    }
    assert len(texts) == 1
    batch = jax.jit(loaded.task.batch)(jax.random.key(0), 0)
    assert evaluators[1](params).loss(batch) == evaluators[2](adapted).loss(batch) == evaluators[3](doubled).loss(batch)
    assert run.evaluate(tuned)["exact_match"] == json.loads((tuned / "result.json").read_text())["exact_match"]


def test_adapters_start_from_the_trained_weights_of_a_model_that_computes_with_others(source, tmp_path, monkeypatch):
    registered = MODELS["transformer_lm"]
    of_halves = lambda *given: registered.make(*given)._replace(to_plain=halved)  # noqa: E731
    monkeypatch.setitem(MODELS, "transformer_lm", registered._replace(make=of_halves))
    _, start = started(config_from(tiny_config(lora=ADAPTERS), str(source), tmp_path), tmp_path)
    assert bits(start.given) == bits(run.load(source, as_trained=True)[2])


def test_exports_hold_merged_weights_and_peft_the_adapters(source, tuned, tmp_path):
    def export(workdir, kind, name=None):
        return command("export", f"--workdir={workdir}", f"--format={kind}", f"--output={tmp_path / (name or kind)}")

    experiment, _, adapted = run.load(tuned, as_trained=True)
    names = {"safetensors": "params.safetensors", "huggingface": None, "peft": None}
    assert [export(tuned, kind, name).returncode for kind, name in names.items()] == [0] * 3
    merged = jax.device_get(flatten(run.load(tuned)[2]))
    np.testing.assert_equal(weights_file.read_weights(tmp_path / "params.safetensors"), merged)
    np.testing.assert_equal(jax.device_get(flatten(huggingface.load(tmp_path / "huggingface").params)), merged)
    found = peft.load(tmp_path / "peft", experiment.model_config, experiment.lora, experiment.model.spec)
    np.testing.assert_equal(found, jax.device_get(flatten({LORA: adapted[LORA]})))

    # A run starts from a folder of transformers, and from its adapters.
    assert export(source, "huggingface", "base").returncode == 0
    start = {"lora": ADAPTERS, "start": {"adapters": str(tmp_path / "peft")}}
    config = config_from(tiny_config(**start), str(tmp_path / "base"), tmp_path / "run")
    _, begun = started(config, tmp_path / "run")
    assert base_of(begun.origin) == str(tmp_path / "base") and base_of({"start": {"path": str(source)}}) is None
    assert bits(begun.given) == bits(adapted) and set(begun.digests) == {"start.path", "start.adapters"}
    with pytest.raises(UserError, match=r"no config\.json; start\.adapters names adapters of PEFT$"):
        config_from(config, str(tmp_path / "peft"), tmp_path / "other")


def test_a_run_starts_from_the_adapters_of_another_or_from_its_merged_weights(tuned, tmp_path):
    adapted, merged = bits(run.load(tuned, as_trained=True)[2]), bits(run.load(tuned)[2])
    for sections, expected in (({"lora": ADAPTERS}, adapted), ({}, merged), ({"lora": {"rank": 1}}, merged)):
        _, start = started(config_from(tiny_config(**sections), str(tuned), tmp_path), tmp_path)
        assert bits(start.given) == expected

"""Runs that train adapters: what they start from, what they keep, and what others see of them."""

import json
import shutil

import jax
import numpy as np
import pytest

import fxf
from fxf.base.errors import UserError
from fxf.base.weights import flatten, shapes
from fxf.interop import huggingface, peft
from fxf.interop.weights_file import read_weights
from fxf.models.lora import LORA
from fxf.runs import run
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import build
from fxf.runs.warm_start import config_from, start_of
from helpers import one_device
from small_runs import KEPT, command, tiny_config

ORIGIN = {"config_file": "test", "overrides": {}}
ADAMW = {"name": "adamw", "weight_decay": 0.5, "clip_norm": 1.0, "ema_decay": 0.5}
TUNED = {"lora": {"rank": 2, "alpha": 3.0}, "optimizer": {**ADAMW, "learning_rate": 0.3}}
# As a model of `transformers` is: a Llama.
LLAMA = {"positions": "rotary", "norm": "rms", "norm_epsilon_in": "variance", "gated": True, "activation": "silu",
         "attention_bias": "none", "feed_forward_bias": False, "final_bias": False, "n_heads": 1,
         "head_dim": 6}  # fmt: skip


def train(workdir, config):
    return run.train(config, workdir, ORIGIN, kept=KEPT)


def export(workdir, kind, output):
    return command("export", f"--workdir={workdir}", f"--format={kind}", f"--output={output}")


def bits(params):
    return {path: np.asarray(value).tobytes() for path, value in flatten(params).items()}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("base") / "base"
    train(workdir, tiny_config(model=LLAMA))
    return workdir


@pytest.fixture(scope="module")
def tuned(base):
    """A run of adapters on `base`, with checkpoints of steps 2, 4 and 6."""
    workdir = base.parent / "tuned"
    train(workdir, config_from(tiny_config(seed=3, **TUNED), str(base), workdir))
    return workdir


def test_the_base_keeps_its_bits_and_has_no_moments(base, tuned):
    experiment, _, params = run.load(tuned, as_trained=True)
    before, after = bits(run.load(base)[2]), bits(params)
    assert {path: value for path, value in after.items() if not path.startswith(LORA)} == before
    assert all(np.any(value) for value in jax.tree.leaves(params[LORA]))  # every adapter was moved
    state = experiment.state_shapes(one_device()).opt_state.inner
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert any("['mu']" in path or ".mu" in path for path in paths)
    assert not any("'blocks'" in path and "'lora'" not in path for path in paths)


def test_a_resumed_run_ends_with_the_same_bits(tuned, tmp_path):
    config = json.loads((tuned / "config.json").read_text())["config"]
    copy = tmp_path / "copy"
    shutil.copytree(tuned, copy)
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "checkpoints" / "6")
    train(copy, config)
    assert bits(run.load(copy, as_trained=True)[2]) == bits(run.load(tuned, as_trained=True)[2])


def test_what_loads_a_run_sees_plain_weights_and_the_programs_of_a_plain_model(base, tuned):
    experiment, _, params = run.load(tuned)
    plain = run.load(base)[0]
    assert flatten(params).keys() == flatten(shapes(plain.model.spec)).keys()
    other = build(json.loads((tuned / "config.json").read_text())["config"])  # as training has it
    texts = []
    for each in (plain, experiment, other):
        decoder = Evaluators(each, one_device()).decoder
        prompts = {"tokens": np.zeros((5, 3), np.int32)} | dict.fromkeys(("lengths", "first"), np.ones(5, np.int32))
        lowered = decoder.jitted.lower(shapes(plain.model.spec), prompts, decoder.key, max_tokens=4)
        texts.append(lowered.as_text())
    assert texts[0] == texts[1] == texts[2]


def test_scores_in_training_are_those_of_the_loaded_run(tuned):
    result = json.loads((tuned / "result.json").read_text())
    found = run.evaluate(tuned)
    assert found["exact_match"] == result["exact_match"]
    experiment, _, params = run.load(tuned)
    trained, _, adapted = run.load(tuned, as_trained=True)
    batch = jax.jit(experiment.task.batch)(jax.random.key(0), 0)
    one, other = (Evaluators(e, one_device()) for e in (experiment, trained))
    assert one(params).loss(batch) == other(adapted).loss(batch)
    assert len(fxf.load(tuned).generate(["1 2"])) == 1
    assert "blocks/0/attention/query" in flatten(fxf.load(tuned).params)


def test_exports_hold_merged_weights_and_peft_the_adapters(tuned, tmp_path):
    params = run.load(tuned)[2]
    for name in ("params.safetensors", "huggingface", "peft"):
        assert export(tuned, name.removeprefix("params."), tmp_path / name).returncode == 0
    np.testing.assert_equal(read_weights(tmp_path / "params.safetensors"), jax.device_get(flatten(params)))
    loaded = huggingface.load(tmp_path / "huggingface")
    np.testing.assert_equal(jax.device_get(flatten(loaded.params)), jax.device_get(flatten(params)))
    experiment, _, adapted = run.load(tuned, as_trained=True)
    found = peft.load(tmp_path / "peft", experiment.model_config, experiment.lora, experiment.model.spec)
    np.testing.assert_equal(found, jax.device_get(flatten({LORA: adapted[LORA]})))


def test_a_run_without_adapters_has_none_to_export_and_other_formats_have_names_of_their_own(base):
    finished = command("export", f"--workdir={base}", "--format=peft")
    assert finished.returncode == 2
    assert finished.stderr == f"error: --format: {base} has no adapters; with lora.rank training makes some\n"
    for kind, name in ("safetensors", "params.safetensors"), ("huggingface", "huggingface"):
        assert command("export", f"--workdir={base}", f"--format={kind}").stdout == f"{base / name}\n"


def started(config, workdir):
    experiment = build(config, workdir)
    return start_of(experiment, one_device(), workdir)


def test_a_run_starts_from_the_adapters_of_another_or_from_its_merged_weights(tuned, tmp_path):
    adapted, merged = bits(run.load(tuned, as_trained=True)[2]), bits(run.load(tuned)[2])
    same, plain, other = (
        started(config_from(tiny_config(**sections), str(tuned), tmp_path), tmp_path)
        for sections in ({"lora": TUNED["lora"]}, {}, {"lora": {"rank": 1}})
    )
    assert bits(same.given) == adapted
    assert bits(plain.given) == bits(other.given) == merged


@pytest.mark.thorough
def test_a_run_starts_from_a_folder_of_transformers_and_adapters_of_peft(base, tuned, tmp_path):
    export(base, "huggingface", tmp_path / "base")
    export(tuned, "peft", tmp_path / "peft")
    sections = {"lora": TUNED["lora"], "start": {"adapters": str(tmp_path / "peft")}}
    config = config_from(tiny_config(**sections), str(tmp_path / "base"), tmp_path / "run")
    start = started(config, tmp_path / "run")
    assert bits(start.given) == bits(run.load(tuned, as_trained=True)[2])
    assert set(start.digests) == {"start.path", "start.adapters"}
    train(tmp_path / "run", config)
    with pytest.raises(UserError, match=r"no config\.json; start\.adapters names adapters of PEFT$"):
        config_from(config, str(tmp_path / "peft"), tmp_path / "other")
    shutil.rmtree(tmp_path / "peft")  # a begun run no longer needs them
    train(tmp_path / "run", {**config, "train": {**config["train"], "steps": 7}})


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"start": {"adapters": "there"}}, "^start.adapters: without start.path nothing reads it"),
        ({"start": {"path": "BASE", "adapters": "there"}}, "^start.adapters: without lora.rank"),
        (
            {"start": {"path": "BASE", "adapters": "nowhere"}, "lora": {"rank": 2}},
            "nowhere/adapter_config.json: No such file",
        ),
        (
            {"lora": {"rank": 2}, "optimizer": {"frozen": "lora/*"}},
            r"^optimizer.frozen: 'lora/\*' .* rate 0; nothing is",
        ),
        ({"lora": {"rank": -1}}, "^lora.rank: expected"),
    ],
)
def test_keys_that_do_not_fit_are_one_line(base, sections, message, tmp_path):
    sections = json.loads(json.dumps(sections).replace("BASE", str(base)))
    with pytest.raises(UserError, match=message):
        started(tiny_config(model=LLAMA, **sections), tmp_path)

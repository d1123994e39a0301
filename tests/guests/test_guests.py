"""Parts that a config names by path go through every verb, as if in a new process and folder each."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.compile.describe import describe
from fxf.models import RegisteredModel
from fxf.runs import run
from fxf.runs.configs import read_config, read_sweep
from fxf.runs.experiment import build
from fxf.runs.guests import load, record
from fxf.sweeps.points import check, make_points
from fxf.training.gradient import objective_and_gradient
from fxf.verbs.export import section_of
from helpers import VOCAB_SIZE, lines_of, random_params, random_tokens, small, small_model, some, table
from small_runs import KEPT, assert_serves, assert_stops, new_process, records, sharing_programs, tiny_config, trained

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / "configs/objectives"
((LENGTHS, _),) = table("lines of guests")
# Guests that go through the verbs together: the first one's config, with the keys that choose the others.
TOGETHER = {name: keys for keys, name in table("guests together")}
COMBINED = (
    "from {} import get_config as of_one\n\ndef get_config():\n    config = of_one()\n"
    "    config.update_from_flattened_dict({})\n    return config\n\ndef sweep(add):\n    add(seed=0)\n"
)
((TINY, _),) = table("tiny guests")


def tiny(path):
    config = read_config(str(path)).to_dict()
    for (name, key), value in ((path.split("."), value) for path, value in TINY.items()):
        if key in config.get(name, {}):
            config[name][key] = value
    return {name: values for name, values in config.items() if values != {}}


def train(path, workdir):
    with new_process():
        return run.train(tiny(path), workdir, {"config_file": str(path), "overrides": {}}, kept=KEPT)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


@pytest.mark.parametrize(("name", "most"), LENGTHS.items())
def test_a_guest_is_short_and_builds(name, most, elsewhere, process):
    assert 0 < lines_of(HERE / f"{name}.py") <= most
    config = tiny(shutil.copy(HERE / f"{name}.py", elsewhere))
    assert build(config).config == {**config, "seed": 0}
    assert list(record(config)) == [name]


@some("name", TOGETHER, ["model"])
def test_guests_go_through_every_verb_from_another_folder(name, elsewhere, monkeypatch, caplog):
    prompt = {"task": "31", "corpus": "112"}.get(name, "3 1")
    for guest in LENGTHS:
        shutil.copy(HERE / f"{guest}.py", elsewhere)
    path = elsewhere / "together.py"
    sharing_programs(monkeypatch)
    path.write_text(COMBINED.format(name, TOGETHER[name]))
    with new_process():
        (point,) = make_points(tiny(path), read_sweep(str(path)))
        workdir = Path("sweep") / point.name
        check([point], Path("sweep"))
    assert_stops(monkeypatch, lambda: train(path, workdir))
    result = train("../together.py", workdir)
    assert train(path, workdir) == result and result["steps"] == 3

    experiment = assert_serves(workdir, result, prompt, prompt)
    if name == "model":  # compiling the others' step once more would take longer
        with new_process():
            assert describe(experiment)
    assert not [record for record in caplog.records if record.name.startswith("fxf")]
    shutil.move(elsewhere / f"{name}.py", elsewhere / "moved.py")
    with new_process(), pytest.raises(UserError, match=f"{name}.py, a file that the run's config names, is missing"):
        run.load(workdir)
    shutil.move(elsewhere / "moved.py", f"{name}.py")  # it is found in the working directory
    with new_process():
        run.load(workdir)


def log_softmax(logits):
    largest = logits.max(-1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))


def divergence(mine, theirs, batch):
    """Returns Σ w T² KL(teacher || student) / Σ w at the temperature T = 2."""
    mine, theirs = log_softmax(mine / 2), log_softmax(theirs / 2)
    return (batch["weights"] * 4 * (np.exp(theirs) * (theirs - mine)).sum(-1)).sum() / batch["weights"].sum()


def preference(mine, before, batch):
    """Returns the mean of -log sigmoid(β (gain of the right answer - gain of the other)) over the pairs, β = 0.1."""
    taken = [np.take_along_axis(log_softmax(x), batch["targets"][..., None], -1)[..., 0] for x in (mine, before)]
    gains = (batch["weights"] * (taken[0] - taken[1])).sum(1)
    return np.log1p(np.exp(-0.1 * (gains[::2] - gains[1::2]))).mean()


OBJECTIVES = {"teacher": ("term/teacher", divergence), "preferences": ("term/preference", preference)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_in_a_model_equals_its_papers_formula(name, monkeypatch, process):
    term, formula = OBJECTIVES[name]
    tokens, weights = random_tokens((2, 6, 5)), np.random.default_rng(0).uniform(0.5, 1.5, (6, 5)).astype(np.float32)
    batch = {"inputs": tokens[0], "targets": tokens[1], "weights": weights}
    module, (plain, earlier) = load(PLACE / f"{name}.py"), small_model()
    found = SimpleNamespace(experiment=SimpleNamespace(model=plain), params=earlier)
    monkeypatch.setattr(module, "loaded", lambda _: found)
    (registered,) = (value for value in vars(module).values() if isinstance(value, RegisteredModel))
    model, params = registered.make(small(registered.config), VOCAB_SIZE), random_params(plain.spec, 1)
    shown = jax.jit(lambda *parts: objective_and_gradient(model, *parts)[3])(params, batch, jax.random.key(0))
    apply = jax.jit(plain.apply)
    logits = [np.float64(apply(weights, batch)) for weights in (params, earlier)]
    assert_close(shown[term], formula(*logits, batch), operations=300)


def test_sampled_answers_continue_their_prompts_and_learn_from_relative_rewards(process):
    batch = jax.device_get(fxf.language_model_batch(random_tokens((6, 5)), np.float32([[0, 0, 1, 1, 1]] * 6)))
    batch["positions"] = np.array([[4, 3, 2, 1, 0]] * 6)
    module, (plain, params) = load(PLACE / "rewards.py"), small_model(seed=1)
    model = module.rewarded(small(module.RewardedConfig), VOCAB_SIZE)
    sampled, apply = jax.jit(fxf.edited(model.features, read="answers")), jax.jit(plain.apply)
    learn = jax.jit(partial(objective_and_gradient, model))
    rows = {name: np.repeat(x, 8, axis=0) for name, x in batch.items()}
    params["embedding"] = jax.tree.map(lambda p: 4 * p, params["embedding"])  # so that answers differ
    for factor in (1, 1e4):  # with large logits, sampling takes the most probable tokens
        params["final"]["kernel"] = params["final"]["kernel"] * factor
        tokens = np.asarray(sampled(params, batch, rng=jax.random.key(0))[1]["answers"][0])
        logits = apply(params, {**rows, "inputs": np.concatenate([rows["inputs"][:, :1], tokens[:, :-1]], axis=1)})
        assert (tokens[:, :2] == rows["targets"][:, :2]).all()
        assert (tokens[:, 2:] == logits.argmax(-1)[:, 2:]).all() == (factor > 1)
        rewards = (tokens == rows["targets"])[:, 2:].mean(1).reshape(-1, 8)
        better = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, keepdims=True) + 1e-4)
        log_p = np.take_along_axis(log_softmax(np.float64(logits)), tokens[..., None], axis=-1)[:, 2:, 0].mean(1)
        shown = learn(params, batch, jax.random.key(0))[3]
        assert_close(shown["term/policy"], -(better.ravel() * log_p).mean(), operations=300, largest=5)
        assert_close(shown["figure/reward"], rewards.mean())


@pytest.mark.thorough
@pytest.mark.parametrize("name", (*OBJECTIVES, "rewards"))
def test_an_objective_that_starts_from_a_run_is_short_learns_and_answers(name, elsewhere, process):
    path = PLACE / f"{name}.py"
    assert lines_of(path) <= 60
    trained(tiny_config(), elsewhere / "base", kept=KEPT)
    config = read_config(f"objectives/{name}:{elsewhere / 'base'}").to_dict()
    config["train"] |= {"batch_size": 6, "steps": 3}
    trained(config, elsewhere / "run", {"config_file": str(path), "overrides": {}})
    found = {"teacher": "term/teacher", "preferences": "term/preference", "rewards": "figure/reward"}[name]
    first = records(elsewhere / "run")[0][found]
    assert first == pytest.approx(np.log(2), rel=0.01) if name == "preferences" else first > 0
    experiment, params = (run := fxf.load(elsewhere / "run")).experiment, run.params
    assert run.generate(["3 1"]) and section_of(experiment, params).name == "transformer_lm"
    double = experiment.model._replace(readout=lambda *given: 2 * experiment.model.readout(*given))
    assert section_of(experiment._replace(model=double), params) is experiment.model_config

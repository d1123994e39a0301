"""What a config names by path goes through every verb, each as in a process and a folder of its own."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.compile.describe import describe
from fxf.interop.weights_file import save_weights
from fxf.runs import run
from fxf.runs.compatibility import first_batch
from fxf.runs.configs import read_config, read_sweep
from fxf.runs.experiment import build
from fxf.runs.guests import record
from fxf.sweeps.points import check, make_points
from helpers import lines_of, random_params, some, table
from small_runs import KEPT, assert_serves, assert_stops, new_process, records, sharing_programs, tiny_config, trained

HERE = Path(__file__).parent
((LENGTHS, _),) = table("lines of guests")
# Guests that go through the verbs together: the config of the first, with what the others are chosen by.
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
def test_a_guest_is_short_and_builds(name, most, elsewhere):
    assert 0 < lines_of(HERE / f"{name}.py") <= most
    with new_process():
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
    assert result["steps"] == 3
    assert result == train(path, workdir)

    experiment = assert_serves(workdir, result, prompt, prompt)
    if name == "model":  # the step of the others would take longer to compile once more
        with new_process():
            assert describe(experiment)
    assert not [record for record in caplog.records if record.name.startswith("fxf")]
    shutil.move(elsewhere / f"{name}.py", elsewhere / "moved.py")
    with new_process(), pytest.raises(UserError, match=f"{name}.py, a file that the run's config names, is missing"):
        run.load(workdir)
    shutil.move(elsewhere / "moved.py", f"{name}.py")  # in the working directory it is found
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


def trained_from(params, config, folder, origin=None):
    """Trains a run in a folder from these weights."""
    save_weights(folder / "params.safetensors", params)
    config["start"] |= {"path": str(folder / "params.safetensors")}
    trained(config, folder / "run", origin, kept=KEPT)
    return folder / "run"


@some("name", OBJECTIVES, ["teacher"])
def test_an_objective_beside_a_trained_run_is_that_of_its_paper(name, elsewhere):
    term, formula = OBJECTIVES[name]
    path = shutil.copy(HERE / f"{name}.py", elsewhere)
    assert lines_of(Path(path)) <= 60
    params = [random_params(build(tiny_config()).model.spec, seed) for seed in (0, 1)]
    with new_process():
        base = trained_from(params[0], tiny_config(), elsewhere)
        config = read_config(f"{path}:{base}").to_dict()
        assert name == "teacher" or config["start"]["path"] == str(base)
        config["train"] |= {"batch_size": 6, "steps": 3}
        config["log"] |= {"every": 1}
        workdir = trained_from(params[1], config, elsewhere / "cwd", {"config_file": str(path), "overrides": {}})
        batch, earlier = first_batch(fxf.load(workdir).experiment.task.batch, 0), fxf.load(base)
        assert len(batch["weights"]) == 6
        apply = jax.jit(earlier.experiment.model.apply)
        logits = [np.float64(apply(weights, batch)) for weights in (params[1], earlier.params)]
        assert_close(records(workdir)[0][term], formula(*logits, batch), operations=300)

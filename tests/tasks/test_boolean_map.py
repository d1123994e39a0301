import time

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.errors import UserError
from fxf.reports.probe import what_is_read
from fxf.runs import run
from fxf.runs.experiment import build, default_config
from fxf.runs.generation import generate_texts
from fxf.tasks.boolean_map import BooleanMap, BooleanMapConfig, draw_mapping
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.metrics import Clock
from fxf.training.step import TrainConfig


def task(mappings=3, seed=5, **more):
    return BooleanMap(BooleanMapConfig(**more), RunInfo(TrainConfig(batch_size=mappings), seed=seed))


def evaluator(outputs):
    return Evaluator(None, None, lambda batch: outputs)


def config(copies, mappings, steps, learning_rate):
    values = default_config("boolean_map").to_dict()
    values["model"] |= {"copies": copies}
    values["train"] |= {"batch_size": mappings, "steps": steps}
    values["optimizer"] |= {"name": "sgd", "learning_rate": learning_rate}
    values["log"] |= {"tensorboard": False, "report": False}
    return values


KEPT = {}  # the programs of runs that differ in steps and rate alone


def trained(workdir, *arguments):
    result = run.train(config(*arguments), workdir, Clock(time.perf_counter()), {}, kept=KEPT)
    return result, jax.device_get(run.load(workdir)[2])


def test_mappings_are_vectors_of_plus_and_minus_0_9():
    batch = task(7, positions=3, dim=5).batch(jax.random.key(0), 0)
    assert batch["inputs"].shape == batch["targets"].shape == (7, 3, 5)
    assert (batch["weights"] == np.ones((7, 3))).all()
    for name in ("inputs", "targets"):
        values, counts = np.unique(batch[name], return_counts=True)
        np.testing.assert_array_equal(values, np.float32([-0.9, 0.9]))
        assert counts.min() > 30
    assert not np.array_equal(batch["inputs"], batch["targets"])


def test_mappings_depend_on_seed_and_number_alone():
    np.testing.assert_array_equal(
        task(2).batch(jax.random.key(0), 0)["inputs"], task(3).batch(jax.random.key(1), 9)["inputs"][:2]
    )
    first = draw_mapping(BooleanMapConfig(positions=7, dim=3), 0, 0)
    for seed, number in ((0, 1), (1, 0)):
        assert not np.array_equal(first, draw_mapping(BooleanMapConfig(positions=7, dim=3), seed, number))


def test_a_mapping_is_solved_where_the_sum_of_its_squared_errors_is_below_1e_4():
    targets = np.asarray(task().batch(jax.random.key(0), 0)["targets"])
    outputs = targets.copy()
    outputs[1, 0] += 0.006
    outputs[2, 1] += 0.008
    figures = task().test(evaluator(outputs))
    assert figures["squared_error"] == pytest.approx(2 * 0.008**2, rel=1e-4)
    assert (figures["solved"], figures["examples"]) == (2 / 3, 3)


def test_there_are_no_prompts():
    experiment = build(config(1, 1, 1, 0.1))
    with pytest.raises(UserError, match=r"^task 'boolean_map' answers no prompts$"):
        generate_texts(experiment, None, ["1"])
    with pytest.raises(UserError, match=r"^task 'boolean_map' answers no prompts: it has no to_batch$"):
        what_is_read(experiment, None, "1", "1")


def test_a_copy_moves_as_it_would_alone(tmp_path):
    # The loss is the mean over positions and mappings, so the rate is the seed's times both numbers.
    _, side_by_side = trained(tmp_path / "two", 2, 2, 11, 0.02 * 5 * 2)
    _, alone = trained(tmp_path / "one", 1, 1, 11, 0.02 * 5)
    for name, weight in alone.items():
        assert_close(side_by_side[name][0], weight[0])
        assert not np.allclose(side_by_side[name][1], weight[0], rtol=1e-2, atol=1e-4)


def test_the_seeds_procedure_solves_a_mapping_in_its_4400_steps(tmp_path):
    result, _ = trained(tmp_path, 2, 2, 4400, 1.5e-2 * 5 * 2)
    assert result["squared_error"] < 1e-4 and result["solved"] == 1


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("train", {"label_smoothing": 0.1}, "train.label_smoothing: model 'bilayer' does not read it; leave it at 0"),
        ("task", {"positions": 6}, "model.max_len: 5 is too short; the task's sequences need 6"),
    ],
)
def test_what_the_model_cannot_train_on_is_named(section, changes, message):
    values = config(6, 6, 1, 0.1)
    values[section] |= changes
    with pytest.raises(UserError) as error:
        build(values)
    assert str(error.value) == message

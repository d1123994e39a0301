import functools

import jax
import numpy as np
import pytest

from closeness import assert_close
from configs.primer.boolean_map import BooleanMap, BooleanMapConfig
from fxf.base.weights import shapes
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from fxf.tasks.task import Evaluator, RunInfo
from fxf.training.state import TrainState
from fxf.training.step import TrainConfig, train_step


def task(mappings=3, seed=5, **more):
    return BooleanMap(BooleanMapConfig(**more), RunInfo(TrainConfig(batch_size=mappings), seed=seed))


def test_mappings_are_vectors_of_plus_and_minus_0_9():
    batch = task(7, positions=3, dim=5).batch(jax.random.key(0), 0)
    assert batch["inputs"].shape == batch["targets"].shape == (7, 3, 5)
    assert (batch["weights"] == np.ones((7, 3))).all()
    for name in ("inputs", "targets"):
        values, counts = np.unique(batch[name], return_counts=True)
        np.testing.assert_array_equal(values, np.float32([-0.9, 0.9]))
        assert counts.min() > 30
    assert not np.array_equal(batch["inputs"], batch["targets"])


def test_a_mapping_is_solved_if_the_sum_of_its_squared_errors_is_below_1e_4():
    outputs = np.array(task().batch(jax.random.key(0), 0)["targets"])
    outputs[1, 0] += 0.006
    outputs[2, 1] += 0.008
    figures = task().test(Evaluator(None, None, lambda batch: outputs))
    assert figures["squared_error"] == pytest.approx(2 * 0.008**2, rel=1e-4)
    assert (figures["solved"], figures["examples"]) == (2 / 3, 3)


RATE = 1.5e-2  # the seed's


@functools.cache
def procedure(copies):
    """Returns the experiment with n copies, and a function that takes steps from params."""
    config = read_config("boolean_map")
    config.model.copies = config.train.batch_size = copies
    # The loss is a mean over positions and mappings, so the rate is the seed's times their numbers.
    config.optimizer.learning_rate = RATE * 5 * copies
    experiment = build(config.to_dict())
    trainer, numbers = experiment.trainer(experiment.layout_of_one_copy()), experiment.hyperparameters()

    @jax.jit
    def moved(params, n):
        batch = experiment.task.batch(jax.random.key(0), 0)
        state = TrainState(0, params, trainer.optimizer.init(params))
        step = lambda _, state: train_step(trainer, state, batch, numbers)[0]  # noqa: E731
        return jax.lax.fori_loop(0, n, step, state).params

    return experiment, moved


def start(copies):
    """Returns weights with the seed's deviations."""
    rng, spec = np.random.default_rng(0), shapes(procedure(2)[0].model.spec)
    deviations = dict.fromkeys(spec, 1 / 2**2) | {"expand": 1 / (2**2 * 4), "contract": 1 / (2**2 * 4), "bias": 0}
    return {name: rng.normal(0, deviations[name], w.shape).astype(np.float32)[:copies] for name, w in spec.items()}


def test_a_copy_trains_as_it_would_alone():
    side_by_side, alone = (jax.device_get(procedure(n)[1](start(n), 11)) for n in (2, 1))
    for name, weight in alone.items():
        assert_close(side_by_side[name][0], weight[0])
        assert not np.allclose(weight[0], start(1)[name][0], rtol=1e-2, atol=1e-4)
        assert not np.allclose(side_by_side[name][1], weight[0], rtol=1e-2, atol=1e-4)


def test_the_seeds_procedure_solves_a_mapping_in_its_4400_steps():
    experiment, moved = procedure(2)
    params, apply = moved(start(2), 4400), jax.jit(experiment.model.apply)
    figures = experiment.task.test(Evaluator(None, None, lambda batch: np.asarray(apply(params, batch))))
    assert figures["squared_error"] < 1e-4 and figures["solved"] == 1

"""Optimizers and schedules; frozen weights, rates per layer, and averages of params."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from closeness import assert_close
from fxf.base.weights import Weight, flatten, map_weights, matching
from fxf.models.model import Model
from fxf.training.fine_tuning import at_own_rates, averaging, evaluated_params, freeze, without_frozen_gradient
from fxf.training.optimizer import OPTIMIZERS, SCHEDULES, OptimizerConfig, make_optimizer, make_schedule
from fxf.training.state import TrainState
from helpers import loss_and_gradient, random_params, random_tokens, table

ONES = jax.nn.initializers.ones
SPEC = {"kernel": Weight((3, 5), ("embed", "mlp"), ONES), "bias": Weight((5,), ("mlp",), ONES)}
PARAMS = {"kernel": np.full((3, 5), 2, np.float32), "bias": np.full(5, 2, np.float32)}
DRAW = np.random.default_rng(0)
GRADIENTS = [{name: DRAW.normal(size=p.shape).astype(np.float32) for name, p in PARAMS.items()} for _ in range(5)]


def moved(optimizer, params, gradients):
    """Returns the params after eager updates with these gradients, and the optimizer's state."""
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@functools.cache
def move(n=3, **settings):
    """Returns the params after updates with the first n gradients."""
    return jax.device_get(moved(make_optimizer(OptimizerConfig(**settings), 10, SPEC), PARAMS, GRADIENTS[:n])[0])


def differ(a, b):
    return any(not np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_sgd_and_adam_are_their_formulas():
    expected = jax.tree.map(lambda p, g0, g1: p - 0.001 * (g0 + g1), PARAMS, *GRADIENTS[:2])
    assert_close(move(2, name="sgd", learning_rate=0.001), expected, operations=8)
    m, v, p = np.zeros(5), np.zeros(5), np.full(5, 2.0)
    for t in (1, 2, 3):  # Kingma and Ba 2015
        g = np.asarray(GRADIENTS[t - 1]["bias"], np.float64)
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        p = p - 0.01 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3)
    assert_close(move(3, name="adam", learning_rate=0.01, b1=0.8, b2=0.95, eps=1e-3)["bias"], p, operations=8)


def test_the_first_step_of_muon_is_nearly_orthogonal_and_of_the_size_of_adams():
    moved = move(1, name="muon", learning_rate=0.01)
    step = (np.asarray(PARAMS["kernel"]) - moved["kernel"]) / 0.01
    singular = np.linalg.svd(step, compute_uv=False)
    before = np.linalg.svd(np.asarray(GRADIENTS[0]["kernel"]), compute_uv=False)
    assert singular.max() / singular.min() < 2 < before.max() / before.min()
    assert singular.mean() == pytest.approx(0.2 * np.sqrt(5), rel=0.3)
    np.testing.assert_array_equal(moved["bias"], move(1, name="nadamw", learning_rate=0.01)["bias"])


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, each in OPTIMIZERS.items() for key in each.reads])
def test_every_key_that_an_optimizer_reads_changes_its_steps(name, key):
    changed = {"b1": 0.9999, "b2": 0.7, "eps": 0.1, "momentum": 0.9, "weight_decay": 0.3}[key]
    assert differ(move(name=name), move(name=name, **{key: changed}))


def test_weight_decay_moves_matrices_and_not_biases():
    plain, decayed = (move(1, name="adamw", weight_decay=decay) for decay in (0.0, 0.5))
    np.testing.assert_array_equal(plain["bias"], decayed["bias"])
    assert_close(plain["kernel"] - decayed["kernel"], np.full((3, 5), 1e-3 * 0.5 * 2.0), operations=8, largest=2)


@pytest.mark.parametrize("frozen", ["", "bias"])
def test_clipping_bounds_the_global_norm_which_may_be_given_if_nothing_is_frozen(frozen):
    norm = optax.tree.norm({name: g for name, g in GRADIENTS[0].items() if name != frozen})

    def step(largest, **known):
        config = OptimizerConfig(name="sgd", learning_rate=1.0, clip_norm=float(largest), frozen=frozen)
        optimizer = make_optimizer(config, 10, SPEC)
        return optimizer.update(GRADIENTS[0], optimizer.init(PARAMS), PARAMS, **known)[0]

    clipped = step(norm / 4)
    assert_close(optax.tree.norm(clipped), norm / 4, operations=20, largest=2)
    assert_close(clipped["kernel"], -GRADIENTS[0]["kernel"] / 4, operations=8, largest=2)
    np.testing.assert_array_equal(step(norm * 4)["kernel"], -GRADIENTS[0]["kernel"])
    assert not differ(step(norm / 4, norm=norm), clipped)
    assert not differ(step(norm / 4, norm=2 * norm), clipped if frozen else optax.tree.scale(0.5, clipped))


def rates(steps=10, **settings):
    schedule = make_schedule(OptimizerConfig(learning_rate=0.4, **settings), steps)
    return np.array([float(schedule(i)) for i in range(steps)])


def test_schedules_follow_their_formulas():
    t, warmup = np.arange(8) / 7, [0.4 / 3, 0.8 / 3]
    expected = {
        "constant": np.full(8, 0.4),  # after a warm-up that is never zero
        "linear": 0.4 + (0.1 - 0.4) * t,
        "cosine": 0.1 + (0.4 - 0.1) * (1 + np.cos(np.pi * t)) / 2,
        "inverse_sqrt": 0.4 / np.sqrt(1 + np.arange(8) / 2),
        "wsd": np.array([0.4] * 5 + [0.3, 0.2, 0.1]),
    }
    assert set(expected) == set(SCHEDULES)
    assert_close(rates(schedule="inverse_sqrt"), 0.4 / np.sqrt(1 + np.arange(10)), operations=10)  # without a warm-up
    for name, after in expected.items():
        final = 0.1 if name in ("linear", "cosine", "wsd") else 0.0
        decay = {"decay_steps": 3} if name == "wsd" else {}
        actual = rates(schedule=name, warmup_steps=2, final_learning_rate=final, **decay)
        assert_close(actual, np.array([*warmup, *after]), operations=10)


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (2, 0), (5, 4), (7, 2), (113, 0)])
def test_the_last_step_has_the_final_rate_and_no_step_before_it_has(name, steps, warmup):
    decay = {"decay_steps": steps - warmup} if name == "wsd" else {}
    found = rates(steps, schedule=name, warmup_steps=warmup, final_learning_rate=0.03, **decay)
    np.testing.assert_array_equal(found == np.float32(0.03), [False] * (steps - 1) + [True])
    assert (np.diff(found[warmup:]) < 0).all()


@pytest.mark.parametrize(("keys", "_"), table("updates at the rate of their step"))
def test_an_update_has_the_rate_of_its_step_whatever_came_before(keys, _):
    config = OptimizerConfig(learning_rate=0.4, warmup_steps=2, **keys)
    plain = {"warmup_steps": 0, "schedule": "constant", "decay_steps": 0}
    state = make_optimizer(config, 10, SPEC).init(PARAMS)
    update = jax.jit(lambda step: make_optimizer(config, 10, SPEC).update(GRADIENTS[0], state, PARAMS, step=step)[0])
    for step in (1, 8):
        rate = make_schedule(config, 10)(step)
        constant = make_optimizer(dataclasses.replace(config, **plain), 10, SPEC)
        expected, _ = constant.update(GRADIENTS[0], state, PARAMS, numbers={"learning_rate": rate})
        assert_close(update(step), expected, operations=200)


def test_a_custom_schedule_reads_every_key(monkeypatch):
    monkeypatch.setitem(SCHEDULES, "own", lambda peak, final, steps, config: lambda n: final * config.decay_steps)
    assert_close(rates(schedule="own", final_learning_rate=0.1, decay_steps=3), np.full(10, 0.3))


BLOCK = {"up": Weight((2, 3), ("embed", "mlp"), ONES), "bias": Weight((3,), ("mlp",), ONES)}
TREE = {
    "embedding": {"table": Weight((5, 2), ("vocabulary", "embed"), ONES)},
    "blocks": {"0": BLOCK, "1": BLOCK},
    "final": {"kernel": Weight((2, 5), ("embed", "vocabulary"), ONES)},
}
PATTERNS = "embedding/*,blocks/*,!blocks/1/up"
FROZEN = {"embedding/table", "blocks/0/up", "blocks/0/bias", "blocks/1/bias"}


def test_patterns_choose_paths_and_the_last_one_decides():
    paths = list(flatten(TREE))
    assert matching(PATTERNS, paths) == [path for path in paths if path in FROZEN]
    assert matching(" blocks/?/up , !*/[1]/* ", paths) == ["blocks/0/up"]
    assert matching("", paths) == []


@pytest.mark.parametrize(("case", "_"), table("weights that are frozen"))
def test_frozen_weights_keep_their_bits_and_have_no_state(case, _):
    name, patterns, rate = case.values()
    of_rates = map_weights(lambda path, w: dataclasses.replace(w, rate=0.0 if path in FROZEN else rate), TREE)
    spec = of_rates if rate else TREE
    ones = jax.tree.map(np.ones_like, random_params(TREE))
    params = jax.tree.map(lambda x: x.at[..., 0].set(-0.0), random_params(TREE))  # -0.0 + 0.0 would be 0.0
    config = OptimizerConfig(name=name, frozen=patterns, clip_norm=1.0, ema_decay=0.3, weight_decay=0.1)
    # Compiled, a sum with 0.0 would be left out.
    after, state = moved(make_optimizer(config, 9, spec), params, [ones, ones])
    before, after, average = flatten(params), flatten(after), flatten(state.average)
    for path, value in before.items():
        same = [np.asarray(value).tobytes() == np.asarray(x[path]).tobytes() for x in (after, average)]
        assert same == [path in FROZEN] * 2, path
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.inner)]
    assert any("['blocks']['1']['up']" in path for path in paths)
    assert not any("'embedding'" in path or "['blocks']['0']" in path for path in paths)


def test_frozen_weights_get_no_gradient_and_the_others_get_theirs():
    spec = {name: Weight((5, 5), ("vocabulary", "embed"), ONES) for name in ("table", "kernel", "final")}
    still = {name: dataclasses.replace(weight, rate=float(name == "final")) for name, weight in spec.items()}
    features = lambda params, batch, *, rng=None: params["table"][batch["inputs"]] @ params["kernel"]  # noqa: E731
    model = Model(spec, features, lambda params, x: x @ params["final"])
    params, tokens = random_params(spec), random_tokens((2, 3), 5)
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((2, 3), np.float32)}
    frozen = without_frozen_gradient(model, "*,!final"), without_frozen_gradient(model._replace(spec=still), "")
    learn = jax.jit(lambda params: [loss_and_gradient(each, params, batch)[2] for each in (model, *frozen)])
    whole, *parts = jax.device_get(learn(params))
    for name, gradient in whole.items():
        expected = gradient * (name == "final")
        for part in parts:
            np.testing.assert_array_equal(part[name], expected)
        assert gradient.any()


def test_a_weights_own_rate_scales_its_steps_but_not_its_decay_nor_custom_updates():
    own = {by: Weight((), (), ONES, rate=0.25, by=by) for by in ("sign", "gradient")}
    spec = {"w": Weight((), (), ONES, rate=0.25), "plain": Weight((), (), ONES), **own}
    start, gradients = dict.fromkeys(spec, jnp.float32(8)), dict.fromkeys(spec, jnp.float32(3))
    # The two weights that it moves have a norm of 4.2, all four one of 6. Decay takes 8 to 7.6.
    adamw = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(0.1, eps=1.0, weight_decay=0.5))
    expected = {"w": 7.6 - 0.1 * 0.25 * 3 / 4, "plain": 7.6 - 0.1 * 3 / 4, "sign": 7.75, "gradient": 7.25}
    for names in spec, ("w",):
        part, begin, gradient = ({name: tree[name] for name in names} for tree in (spec, start, gradients))
        after, _ = moved(at_own_rates(adamw, part), begin, [gradient])
        assert_close(after, {name: expected[name] for name in names}, operations=20)


def test_the_average_follows_its_formula_and_is_evaluated_if_it_exists():
    x = np.float64(3)
    mean, values = x, [x - 0.5 * (t + 1) for t in range(4)]
    for t, value in enumerate(values):
        mean = mean + (1 - min(0.3, (1 + t) / (10 + t))) * (value - mean)
    spec = dict.fromkeys(("w", "still"), Weight((), (), ONES))
    optimizer = optax.chain(optax.clip(9.0), freeze(averaging(optax.sgd(0.5), 0.3), spec, "still"))
    params, state = moved(optimizer, dict.fromkeys(spec, jnp.float32(3)), [dict.fromkeys(spec, jnp.float32(1))] * 4)
    average = evaluated_params(TrainState(4, params, state))
    assert_close(params["w"], values[-1], operations=8)
    assert_close(average, {"w": mean, "still": 3}, operations=30, largest=3)

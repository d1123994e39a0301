"""Frozen weights, rates by layer, and the average of the params."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fxf
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import Weight, flatten, leaves, map_weights, matching
from fxf.training.fine_tuning import at_own_rates, averaging, require_frozen, without_frozen_gradient
from fxf.training.gradient import loss_and_gradient
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from helpers import random_params, random_tokens

ZEROS = jax.nn.initializers.zeros
BLOCK = {"up": Weight((2, 3), ("embed", "mlp"), ZEROS), "bias": Weight((3,), ("mlp",), ZEROS)}
SPEC = {
    "embedding": {"table": Weight((5, 2), ("vocabulary", "embed"), ZEROS)},
    "blocks": {"0": BLOCK, "1": BLOCK},
    "final": {"kernel": Weight((2, 5), ("embed", "vocabulary"), ZEROS)},
}
PATTERNS = "embedding/*,blocks/*,!blocks/1/up"
FROZEN = {"embedding/table", "blocks/0/up", "blocks/0/bias", "blocks/1/bias"}


def moved(optimizer, params, n=2, gradient=1.0):
    """Returns the params after n eager updates with a gradient of such numbers, and the optimizer's state."""
    state = optimizer.init(params)
    for _ in range(n):
        updates, state = optimizer.update(jax.tree.map(lambda p: jnp.full_like(p, gradient), params), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def test_patterns_choose_paths_and_the_last_one_decides():
    paths = list(flatten(SPEC))
    assert matching("blocks/*", paths) == [path for path in paths if path.startswith("blocks/")]
    assert set(matching(PATTERNS, paths)) == FROZEN
    assert matching(" blocks/?/up , !*/[1]/* ", paths) == ["blocks/0/up"]
    assert matching("", paths) == []


def with_rates(rate):
    """Returns the spec in which the weights of `PATTERNS` have the rate 0, and the others this one."""
    return map_weights(lambda path, w: dataclasses.replace(w, rate=0.0 if path in FROZEN else rate), SPEC)


@pytest.mark.parametrize(
    ("name", "patterns", "spec"),
    [
        ("adamw", PATTERNS, SPEC),
        ("muon", PATTERNS, SPEC),
        ("adamw", "", with_rates(0.5)),
        ("adamw", "blocks/1/bias", with_rates(1.0)),
    ],
)
def test_frozen_weights_keep_their_bits_and_have_no_state(name, patterns, spec):
    params = jax.tree.map(lambda x: x.at[..., 0].set(-0.0), random_params(SPEC))  # -0.0 + 0.0 would be 0.0
    config = OptimizerConfig(name=name, frozen=patterns, clip_norm=1.0, ema_decay=0.3, weight_decay=0.1)
    after, state = moved(make_optimizer(config, 9, spec), params)  # compiled, a sum with 0.0 would be left out
    before, after, average = flatten(params), flatten(after), flatten(state.average)
    for path, value in before.items():
        same = [np.asarray(value).tobytes() == np.asarray(x[path]).tobytes() for x in (after, average)]
        assert same == [path in FROZEN] * 2, path
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state.inner)]
    assert any("['blocks']['1']['up']" in path for path in paths)
    assert not any("'embedding'" in path or "['blocks']['0']" in path for path in paths)


def test_frozen_weights_get_no_gradient_and_the_others_get_theirs():
    model = fxf.model(vocab_size=5, n_layers=1, d_model=6, d_ff=7, n_heads=2, max_len=3)
    patterns = "embedding/*,*/attention/*"
    frozen = set(matching(patterns, [path for path, _ in leaves(model.spec)]))
    still = model._replace(
        spec=map_weights(lambda path, w: dataclasses.replace(w, rate=0.0) if path in frozen else w, model.spec)
    )
    params, tokens = random_params(model.spec), random_tokens((2, 3), 5)
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((2, 3), np.float32)}

    @jax.jit
    def gradients(params):
        return [
            loss_and_gradient(each, params, batch)[2]
            for each in (model, without_frozen_gradient(model, patterns), without_frozen_gradient(still, ""))
        ]

    whole, *parts = map(flatten, gradients(params))
    for path, gradient in whole.items():
        expected = np.zeros_like(gradient) if path in frozen else gradient
        for part in parts:
            np.testing.assert_array_equal(part[path], expected)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ("x/*", r"^optimizer.frozen: 'x/\*' matches no weight; the weights are embedding/table, blocks/\*/up"),
        ("embedding/tabel", "matches no weight; did you mean 'embedding/table'"),
        ("!embedding/*", r"^optimizer.frozen: '!embedding/\*' chooses no weight; all but some are \*,!embedding/\*"),
        ("*", r"^optimizer.frozen: '\*' matches every weight; nothing is left to train"),
    ],
)
def test_patterns_that_freeze_nothing_or_all_are_one_line(patterns, message):
    with pytest.raises(UserError, match=message):
        require_frozen(SPEC, patterns)


def test_a_weights_own_rate_multiplies_its_steps_but_not_its_decay_and_own_moves_know_neither():
    own = {by: Weight((), (), ZEROS, rate=0.25, by=by) for by in ("sign", "gradient")}
    spec = {"w": Weight((), (), ZEROS, rate=0.25), "plain": Weight((), (), ZEROS), **own}
    start = dict.fromkeys(spec, jnp.float32(8))
    optimizer = at_own_rates(optax.adamw(0.1, weight_decay=0.5), spec)
    after, _ = moved(optimizer, start, n=1, gradient=3.0)
    expected = {"w": 8 - 0.1 * (0.25 + 0.5 * 8), "plain": 8 - 0.1 * (1 + 0.5 * 8), "sign": 7.75, "gradient": 7.25}
    assert_close(after, expected, operations=20)


def test_the_average_is_the_mean_of_its_formula():
    x = np.float64(3)
    mean, values = x, [x - 0.5 * (t + 1) for t in range(4)]
    for t, value in enumerate(values):
        mean = mean + (1 - min(0.3, (1 + t) / (10 + t))) * (value - mean)
    params, state = moved(averaging(optax.sgd(0.5), 0.3), {"w": jnp.float32(3)}, n=4)
    assert_close(params["w"], values[-1], operations=8)
    assert_close(state.average["w"], mean, operations=30, largest=3)

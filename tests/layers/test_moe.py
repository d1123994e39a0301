"""The mixture of experts and its training, against formulas in float64, one token and expert at a time."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit as sigmoid

import oracle
from closeness import UNIT, assert_as_by_hand, assert_close
from fxf.layers.config import TransformerConfig
from fxf.layers.kinds import layer_of
from fxf.layers.layer import Context, Places
from fxf.layers.named import edited
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from fxf.training.state import TrainState, hyperparameters
from fxf.training.step import TrainConfig, Trainer, train_step
from helpers import one_device, random_params, random_tokens, scaled, some, table

R, T, D, F, E = 2, 5, 6, 7, 6
REAL = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
GATED = {"gated": True, "activation": "silu", "feed_forward_bias": False, "base_width": 2 * D, "head_dim": D}
CASES = {name: (own, GATED if own.pop("gated", False) else {}) for own, name in table("mixtures of experts")}


def layer(own, model):
    layers = {"moe": {"n_experts": E, "balance": 0.3, **own}}
    return layer_of(TransformerConfig(d_model=D, d_ff=F, n_heads=1, layers=layers, **model), "moe")


def given(moe):
    """Returns params and vectors, such that no expert is chosen for all tokens or for none."""
    x = np.random.default_rng(1).normal(size=(R, T, D)).astype(np.float32)
    return scaled(random_params(moe.spec(), seed=2), 3), x


def scores_and_choice(moe, weights, x):
    """Returns one token's scores, and its experts, the best first."""
    logits = x @ weights["router"] * moe.config.base_d_model / D + weights.get("logits_bias", 0)
    scores = np.exp(logits) / np.exp(logits).sum() if moe.scores == "softmax" else sigmoid(logits)
    preferences = scores + weights.get("router_bias", 0)
    size = E // moe.expert_groups
    groups = [sorted(preferences[i * size : (i + 1) * size])[-2:] for i in range(moe.expert_groups)]
    best = np.argsort([-sum(group) for group in groups])[: moe.best_groups]
    candidates = [i for i in range(E) if i // size in best]
    return scores, sorted(candidates, key=lambda i: -preferences[i])[: moe.top_k]


def by_hand(moe, weights, x_RTD):
    """Returns the output and the balance term, for float64 weights and vectors."""
    y, loads, shares, n = np.zeros(x_RTD.shape), np.zeros(E), np.zeros(E), REAL.sum()
    for at in np.ndindex(R, T):
        x = x_RTD[at]
        scores, chosen = scores_and_choice(moe, weights, x)
        total = sum(scores[i] for i in chosen) if moe.normalized else 1
        for i in chosen:
            expert = {name: w[i] for name, w in weights["experts"].items()}
            y[at] += moe.scale * scores[i] / total * oracle.feed_forward(moe.config, expert, x)
            loads[i] += REAL[at] / (n * moe.top_k)
        shares += REAL[at] * scores / scores.sum() / n
        if moe.d_shared:
            gate = sigmoid(x @ weights["shared_gate"] * moe.config.base_d_model / D) if moe.shared_gate else 1
            y[at] += gate * oracle.feed_forward(moe.config, weights["shared"], x)
    return y, moe.balance * E * (loads * shares).sum()


def with_balance(moe, params, x_RTD):
    """Returns the output and the balance term."""
    names = ("term/moe/balance/total", "term/moe/balance/weight")
    context = Context(Places(jnp.arange(T)[None], documents=jnp.asarray(REAL)))
    y_RTD, found = edited(lambda params, x: moe.apply(params, x, context)[0], read=names)(params, x_RTD)
    return y_RTD, (found[names[0]] / found[names[1]]).sum()


@some("name", CASES, [*CASES][1:])
def test_output_balance_and_gradient_are_those_of_the_formulas_token_by_token(name):
    moe = layer(*CASES[name])
    # The router's bias changes an output only if it changes a choice.
    functions = (functools.partial(each, moe) for each in (with_balance, by_hand))
    assert_as_by_hand(*functions, given(moe), still=["router_bias"])


def test_no_token_is_dropped_if_all_choose_the_same_experts_and_scores_of_0_have_a_gradient():
    moe = layer({"bias_rate": 0.1, "biased_logits": True}, GATED)
    params, x = given(moe)
    params["router_bias"] = np.float32([0, 9, 0, 0, 9, 0])

    def total(params):
        y, balance = with_balance(moe, params, x)
        return y.sum() + balance, y

    learn = jax.jit(jax.grad(total, has_aux=True))
    weights = oracle.float64(params)
    assert {i for at in np.ndindex(R, T) for i in scores_and_choice(moe, weights, x[at])[1]} == {1, 4}
    expected, _ = by_hand(moe, weights, x.astype(np.float64))
    assert_close(learn(params)[1], expected, largest=np.abs(expected).max())
    params["logits_bias"] = np.float32([200, 0, 0, 0, 0, 0])  # in float32 the scores of both are 0
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(learn(params)))


def model(blocks="attention+moe", **own):
    sizes = {"n_layers": 1, "d_model": 8, "d_ff": 8, "n_heads": 2, "max_len": 16, "blocks": blocks}
    return transformer_lm(TransformerLMConfig(**sizes, layers={"moe": {"n_experts": 5, **own}}), 7)


def test_the_bias_moves_by_its_own_rate_towards_an_even_load_and_is_no_part_of_the_gradients_norm():
    built = model(blocks="moe", bias_rate=0.25, balance=0.0)
    config, train = OptimizerConfig(name="adamw", weight_decay=0.5, clip_norm=1e-3), TrainConfig()
    optimizer, tokens, seen = make_optimizer(config, 10, built.spec), random_tokens((4, 6)), []
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((4, 6), np.float32)}

    def update(gradient, *state, **known):
        seen.append(gradient)
        return optimizer.update(gradient, *state, **known)

    trainer = Trainer(built, optimizer._replace(update=update), train, one_device())

    @jax.jit
    def step(state):
        return *train_step(trainer, state, batch, hyperparameters(0, train)), seen[0]

    params = random_params(built.spec)
    params["blocks"]["0"]["moe"]["router_bias"] = np.zeros(5, np.float32)
    start = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(optimizer.init, params))
    after, metrics, gradient = step(TrainState(np.int32(0), params, start))
    bias = after.params["blocks"]["0"]["moe"]["router_bias"]
    of_bias = gradient["blocks"]["0"]["moe"].pop("router_bias")
    loads = (np.asarray(of_bias) + 48) / 5  # for 24 tokens, which go to two of five experts each
    np.testing.assert_allclose(loads, np.round(loads), atol=1e-4)
    assert np.round(loads).sum() == 48 and len(set(np.sign(of_bias))) > 1
    np.testing.assert_array_equal(bias, -0.25 * np.sign(of_bias))
    assert metrics["figure/moe/max_violation"] == pytest.approx(5 * loads.max() / 48 - 1, rel=100 * UNIT)
    squares = sum((np.float64(g) ** 2).sum() for g in jax.tree.leaves(jax.device_get(gradient)))
    assert metrics["gradient_norm"] == pytest.approx(np.sqrt(squares), rel=100 * UNIT)


def test_a_cpu_splits_a_batch_only_if_no_term_is_over_all_rows():
    assert [model(balance=0.0).width, model().width] == [8, None]


def test_muon_and_weight_decay_treat_each_expert_as_a_matrix_of_its_own():
    spec = layer({}, {}).spec()["experts"]
    of_one = {name: dataclasses.replace(w, shape=w.shape[1:], axes=w.axes[1:]) for name, w in spec.items()}
    config = OptimizerConfig(name="muon", weight_decay=0.5)
    params, gradient = random_params(spec), random_params(spec, seed=1)

    def moved(spec, params, gradient):
        optimizer = make_optimizer(config, 10, spec)
        return optimizer.update(gradient, optimizer.init(params), params)[0]

    @jax.jit
    def of_third(*trees):
        found, third = moved(spec, *trees), jax.tree.map(lambda x: x[3], trees)
        return jax.tree.map(lambda x: x[3], found), moved(of_one, *third)

    assert_close(*of_third(params, gradient))

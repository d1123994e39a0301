"""RNN, stack-RNN and tape-RNN against plain loops; a stack pushes and pops, a tape moves both ways."""

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.runs.guests import load
from fxf.testing import assert_consistent
from helpers import applied, random_params, random_tokens, some
from small_runs import ROOT, new_process

recurrent = load(ROOT / "configs/studies/recurrent.py")
D, T = 5, 7
LAYERS = {name: getattr(recurrent, kind)(d_model=D, max_len=T) for name, kind in recurrent.KINDS.items()}
PUSH, POP, STAY = range(3)  # on a tape: left, right, stay


def moved(name, cells, action, value):
    """Returns the cells, a list of vectors, after an action."""
    if name == "stack":
        return {PUSH: [value, *cells[:-1]], POP: [*cells[1:], 0 * value], STAY: cells}[action]
    cells = [value, *cells[1:]]
    return {PUSH: [cells[-1], *cells[:-1]], POP: [*cells[1:], cells[0]], STAY: cells}[action]


def looped(name, weights, x_TD):
    """Returns the hidden units after each token, by plain loops in float64."""
    w = {key: np.asarray(weight, np.float64) for key, weight in weights.items()}
    h, found = np.zeros(D), []
    cells = [np.zeros(8) for _ in range(T if name == "stack" else 2 * T + 1)]
    for x in np.asarray(x_TD, np.float64):
        total = x @ w["input"] + h @ w["hidden"] + w["bias"]
        h = np.tanh(total + (cells[0] @ w["read"] if name != "rnn" else 0))
        found.append(h)
        if name != "rnn":
            shares = np.exp(h @ w["act"]) / np.exp(h @ w["act"]).sum()
            ways = [moved(name, cells, action, np.tanh(h @ w["write"])) for action in range(3)]
            cells = [sum(share * way[c] for share, way in zip(shares, ways, strict=True)) for c in range(len(cells))]
    return np.array(found)


@pytest.mark.parametrize("name", LAYERS)
def test_hidden_units_are_those_of_the_formula(name):
    layer, x_RTD = LAYERS[name], np.random.default_rng(0).normal(size=(3, T, D)).astype(np.float32)
    weights = random_params(layer.spec())
    found = jax.jit(lambda x: applied(layer, weights, x))(x_RTD)
    assert_close(found, [looped(name, weights, x_TD) for x_TD in x_RTD], operations=30 * T)


@some("name", LAYERS, ["tape"])
def test_a_recurrent_model_decodes_as_it_trains(name):
    with new_process():
        config = load(ROOT / "configs/studies/recurrent.py").get_config(name)
        sizes = {"n_layers": 1, "d_model": 6, "n_heads": 3, "max_len": 13, "positions": "none"}
        model = fxf.model("transformer_lm", vocab_size=7, blocks=config.model.blocks, **sizes)
        assert_consistent(model, random_params(model.spec), {"inputs": random_tokens((3, 6))})

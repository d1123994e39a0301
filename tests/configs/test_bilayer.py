import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from configs.primer.bilayer import BilayerConfig, as_vectors, bilayer
from fxf.base.weights import decay_mask, initialize
from fxf.layers.named import intermediates
from helpers import loss_and_gradient, random_params

WIDTH = 3


def small(**changes):
    config = BilayerConfig(**({"n_layers": 2, "max_len": 5, "expand": 2} | changes))
    return config, bilayer(config, WIDTH)


CONFIG, MODEL = small()
PARAMS, APPLY = random_params(MODEL.spec), jax.jit(MODEL.apply)


def vectors(shape, seed=1):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def by_the_seeds_formulas(params, x, n_layers):
    """Runs one copy on one sequence [T, D] in plain loops; returns its output and each layer's attention."""
    everything = {name: np.asarray(value, np.float64)[0] for name, value in params.items()}
    attention = []
    for i in range(n_layers):
        w = {name: value[i] for name, value in everything.items()}
        n = len(x)
        q, k, v = (np.array([w[name][:, t].T @ x[t] for t in range(n)]) for name in ("query", "key", "value"))
        alpha = np.zeros((n, n))
        for t in range(n):
            for s in range(t + 1):
                alpha[t, s] = np.exp(q[t] @ k[s])
            alpha[t] /= alpha[t].sum()
        x = alpha @ v + x
        change = np.zeros_like(x)
        for t in range(n):
            change[t] = w["contract"][:, t].T @ np.tanh(w["expand"][:, t].T @ x[t] - w["bias"][t])
        x = change + x
        attention.append(alpha)
    return x, np.array(attention)


def test_the_forward_pass_equals_the_seeds():
    x_BTD = vectors((2, 5, WIDTH))
    outputs = APPLY(PARAMS, {"inputs": x_BTD})
    inside = jax.device_get(intermediates(MODEL.apply, PARAMS, {"inputs": x_BTD}))
    attention = np.stack([inside[f"block_{i}/weights"][:, 0] for i in range(CONFIG.n_layers)])
    for row in range(2):
        expected, alpha = by_the_seeds_formulas(PARAMS, x_BTD[row].astype(np.float64), CONFIG.n_layers)
        assert_close(outputs[row], expected)
        assert_close(attention[:, row], alpha)


def test_weights_start_with_the_seeds_deviations_and_the_first_copy_as_if_alone():
    seven, one = (bilayer(BilayerConfig(max_len=17, copies=n), 3) for n in (7, 1))
    specs = seven.spec, {"query": one.spec["query"]}
    params, alone = jax.device_get(jax.jit(lambda: [initialize(spec, jax.random.key(0)) for spec in specs])())
    for name, deviation in {"query": 1 / 9, "key": 1 / 9, "value": 1 / 9, "expand": 1 / 36, "contract": 1 / 36}.items():
        assert np.std(params[name]) == pytest.approx(deviation, rel=0.1)
    assert not np.any(params["bias"])
    assert seven.step is None  # several copies do not decode
    assert [name for name, decays in decay_mask(MODEL.spec).items() if not decays] == ["bias"]
    np.testing.assert_array_equal(params["query"][0], alone["query"][0])
    assert not np.array_equal(params["query"][0], params["query"][1])


def test_each_copy_reads_its_rows_however_many_there_are_and_in_any_order():
    _, model = small(copies=3)
    params, x, apply = random_params(model.spec), vectors((6, 5, WIDTH)), jax.jit(model.apply)
    outputs = np.asarray(apply(params, {"inputs": x}))
    for row in range(6):
        own = jax.tree.map(lambda w, row=row: w[row % 3][None], params)
        assert_close(outputs[row], APPLY(own, {"inputs": x[row : row + 1]})[0])
    for rows in ([5, 2, 2, 1], [4, 0, 1, 3]):
        some = apply(params, {"inputs": x[rows], "row": np.array(rows, np.int32)})
        assert_close(some, outputs[rows])


def test_a_batch_in_parts_gives_each_copy_the_gradient_of_the_whole():
    _, model = small(copies=4)
    params, x = random_params(model.spec), vectors((6, 5, WIDTH))
    batch = {"inputs": x, "targets": -x, "weights": np.ones((6, 5), np.float32), "row": np.arange(6, dtype=np.int32)}
    both = jax.jit(lambda *at: [loss_and_gradient(model, *at, microbatches=n) for n in (3, 1)])
    assert_close(*both(params, batch))


def test_tokens_are_read_as_one_hot_vectors():
    tokens = np.array([[2, 0, 1, 1]])
    np.testing.assert_array_equal(as_vectors(jnp.asarray(tokens), WIDTH), np.eye(WIDTH)[tokens])


def slid(tokens, n_positions):
    """Returns the last tokens that fit; a token 0 in front stays in front."""
    if len(tokens) > n_positions and tokens[0] == 0:
        return [0, *tokens[1 - n_positions :]]
    return tokens[-n_positions:]


def output_behind(tokens):
    """Returns the output at the window's last token; later tokens are not read."""
    window = slid(tokens, 5)
    padded = np.array([[*window, *[1] * (5 - len(window))]], np.int32)
    return np.asarray(APPLY(PARAMS, {"inputs": padded}))[0, len(window) - 1]


PREFILL, STEP = jax.jit(MODEL.prefill, static_argnums=2), jax.jit(MODEL.step)


@pytest.mark.parametrize("first", [0, 1])
def test_decoding_equals_the_full_forward_over_the_window_that_slides(first):
    tokens = [first, *np.random.default_rng(2).integers(0, WIDTH, 12).tolist()]
    assert 0 in tokens[3:8]  # not the first
    for read in (0, 1, 4, 5, 6, 9):
        prompt = np.array([tokens[:read] + [1] * (9 - read)], np.int32)
        cache = PREFILL(PARAMS, {"inputs": prompt, "lengths": np.array([read], np.int32)}, 20)
        for n in range(read, 12):
            logits, cache = STEP(PARAMS, cache, np.array([tokens[n]], np.int32))
            assert_close(np.asarray(logits)[0], output_behind(tokens[: n + 1]))

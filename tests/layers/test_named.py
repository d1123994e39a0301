import jax
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.layers.named import intermediates
from helpers import random_tokens, small, small_model


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_the_named_arrays_of_a_forward_pass_come_by_their_path(kind):
    model, params = small_model(attention=kind, n_layers=2)
    batch = {"inputs": random_tokens((2, 5))}
    found = jax.device_get(intermediates(model.apply, params, batch))
    blocks = {f"block_{i}/{name}" for i in range(2) for name in ("attention/weights", "residual")}
    assert set(found) == {"embedding/positions", "embedding/residual", *blocks}
    weights = np.asarray(found["block_1/attention/weights"])
    assert weights.shape == (2, 3, 5, 5)
    assert_close(weights.sum(-1), np.ones(weights.shape[:-1]))
    assert (weights[..., ~np.tri(5, dtype=bool)] == 0).all()
    features = jax.jit(model.features)(params, batch)
    assert_close(found["block_1/residual"], features)


def test_attention_weights_are_those_of_the_oracle():
    config = small()
    model, params = small_model(n_layers=1)
    tokens = random_tokens((1, 5))
    found = np.asarray(intermediates(model.apply, params, {"inputs": tokens})["block_0/attention/weights"])
    weights = oracle.float64(params)
    x = oracle.embedding(config, weights["embedding"], tokens[0])
    block = weights["blocks"]["0"]
    x = oracle.normalize(config, block["attention_norm"], x)
    for head in range(3):
        q, k = (x @ block["attention"][name][:, head] for name in ("query", "key"))
        for t in range(5):
            expected = oracle.weigh(config, head, q[t], k[: t + 1], None)
            assert_close(found[0, head, t, : t + 1], expected)


def test_a_name_costs_nothing_where_nobody_asks_for_it():
    """Linear attention names weights that nothing reads: the compiled program does not compute them."""
    model, params = small_model(attention="linear", max_len=1000)
    batch = {"inputs": random_tokens((1, 1000))}
    program = jax.jit(model.apply).lower(params, batch).compile().as_text()
    assert "1000,1000" not in program

"""Initial values and learning rates: those of config.init, and those by which widths share a learning rate."""

import functools

import jax
import numpy as np
import optax
import pytest

from fxf.base.weights import Weight, leaves, map_weights
from fxf.layers.embedding import embedding
from fxf.models import MODELS
from fxf.models.init import initialized_as
from fxf.training.optimizer import OptimizerConfig, make_optimizer
from helpers import marked, random_params, table, values

VOCAB_SIZE, LENGTH, HEAD_DIM, BASE = 11, 7, 8, 32


def sized(width, base=BASE, name="transformer_lm", **keys):
    """Returns the config of a model of this width, in the base's proportions."""
    sizes = {"n_layers": 1, "d_ff": 2 * width, "n_heads": width // HEAD_DIM, "head_dim": HEAD_DIM, "max_len": LENGTH}
    return MODELS[name].config(d_model=width, base_width=base, **{**sizes, **keys})


def model_of(config):
    return MODELS[config.name].make(config, VOCAB_SIZE)


def batch():
    rng = np.random.default_rng(0)
    tokens = {name: rng.integers(1, VOCAB_SIZE, (5, LENGTH)).astype(np.int32) for name in ("targets", "source")}
    inputs = np.pad(tokens["targets"], ((0, 0), (1, 0)))[:, :-1]
    ones = np.ones((5, LENGTH), np.float32)
    return {**tokens, "inputs": inputs, "weights": ones, "source_mask": ones > 0}


def initialized(spec, names=("",)):
    """Returns {path: initial weight} for these last names; NumPy draws what JAX would compile slowly."""
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", lambda key, shape, dtype: rng.normal(size=shape).astype(dtype))
        chosen = {path: weight for path, weight in leaves(spec) if path.endswith(tuple(names))}
        key = jax.random.key(0)
        return jax.jit(lambda: {path: w.init(key, w.shape, np.float32) for path, w in chosen.items()})()


@functools.cache
def changes(width, base=BASE, **keys):
    """Returns the RMS change of the residual stream and of the logits by four steps of Adam."""
    model, data = model_of(sized(width, base, **keys)), batch()
    optimizer = make_optimizer(OptimizerConfig(learning_rate=2**-11), 9, model.spec)

    def loss(params):
        features = model.features(params, data)
        logits = model.readout(params, features)
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits, data["targets"]).sum(), (features, logits)

    @jax.jit
    def step(params, moments):
        gradient, outputs = jax.grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(gradient, moments, params)
        return optax.apply_updates(params, updates), moments, outputs

    drawn = initialized(model.spec)
    params = map_weights(lambda path, _: drawn[path], model.spec)
    moments = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(optimizer.init, params))
    outputs = []
    for _ in range(5):
        params, moments, after = step(params, moments)
        outputs.append(jax.device_get(after))
    return np.array([np.sqrt(np.mean((new - old) ** 2)) for old, new in zip(outputs[0], outputs[-1], strict=True)])


def growth(wide, narrow):
    """Returns the exponent p of changes that grow as width^p."""
    return np.log2(wide / narrow) / 2  # 128 is 2² times 32


def test_with_a_base_steps_change_activations_of_all_widths_equally():
    assert np.abs(growth(changes(128), changes(32))).max() < 0.2


@pytest.mark.thorough
@pytest.mark.parametrize("keys", marked("kinds of models whose widths share a rate"))
def test_changes_are_equal_for_every_kind_of_model_and_grow_without_a_base(keys):
    assert np.abs(growth(changes(128, **keys), changes(32, **keys))).max() < 0.3
    assert growth(changes(128, 0, **keys), changes(32, 0, **keys))[1] > 0.5


def test_only_matrices_between_widths_have_smaller_rates():
    rates = {path: w.rate for path, w in leaves(model_of(sized(64, head="transform", gated=True)).spec)}
    matrices = {f"blocks/0/attention/{name}" for name in ("query", "key", "value", "output")}
    matrices |= {f"blocks/0/feed_forward/{name}" for name in ("gate", "up", "down")} | {"transform/kernel"}
    assert {path for path, rate in rates.items() if rate == 0.5} == matrices
    assert {rate for path, rate in rates.items() if path not in matrices} == {1.0}


@pytest.mark.parametrize(("keys", "rates"), [({}, (1.5, 2.0)), ({"base": 64, "init": "gpt2"}, (3.0, 2.0))])
def test_a_weights_own_rate_combines_with_that_of_the_width(keys, rates):
    ones = jax.nn.initializers.ones
    spec = {
        "matrix": Weight((8, 8), ("embed", "mlp"), ones, rate=3.0),
        "vector": Weight((8,), ("embed",), ones, rate=2.0),
        "of_one_width": Weight((8, 5), ("embed", "state"), ones, rate=2.0),
    }
    found = initialized_as(sized(64, **{"base": 32, **keys}), spec)
    assert (found["matrix"].rate, found["vector"].rate) == rates
    assert found["of_one_width"].rate == 2.0


@pytest.mark.parametrize(("deviations", "keys"), table("initial deviations at width 32"))
def test_initial_values_are_the_bases_except_smaller_ones_between_widths(deviations, keys):
    drawn = initialized(model_of(sized(128, **values(keys))).spec, [f"/{name}" for name in deviations])
    for path, weight in drawn.items():
        name = path.split("/")[-1]
        expected = deviations[name] / (2 if name in ("query", "output", "up", "down") else 1)
        assert np.sqrt(np.square(weight).mean()) == pytest.approx(expected, rel=0.1), name
    assert len(drawn) == len(deviations)


def test_a_base_scales_features_for_logits_and_keeps_the_size_of_embeddings():
    config, rows = sized(64, 16, positions="none", scaled_embeddings=True), np.eye(3, 64, dtype=np.float32)
    np.testing.assert_array_equal(embedding(config, {"table": rows}, np.arange(3), None, scaled=True), 4 * rows)
    for keys in ({}, {"tied_embeddings": True, "logits_bias": True}):
        plain, wide = (model_of(sized(64, base, final_norm=False, **keys)) for base in (0, 16))
        params = random_params(plain.spec)
        x = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)
        found, expected = jax.jit(wide.readout)(params, x), jax.jit(plain.readout)(params, x / 4)
        np.testing.assert_array_equal(found, expected)

"""Modules of Flax as layers: their own `init` and `apply` are the oracle."""

import itertools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import Scope
from flax.errors import InvalidRngError

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import flatten, initialize
from fxf.layers.flax_module import FlaxModule
from fxf.layers.kinds import LAYERS, layer_of
from fxf.testing import assert_consistent
from fxf.training.gradient import loss_and_gradient
from helpers import applied, random_params, random_tokens, small, small_model

X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)


class Mlp(nn.Module):
    cached = True
    d_model: int
    d_ff: int
    scale: float = 2.0
    dropout: float = 0.0
    activation: Callable = nn.gelu

    @nn.compact
    def __call__(self, x, train: bool = False):
        init = nn.with_partitioning(nn.initializers.normal(1.0), ("embed", None))
        x = self.activation(nn.Dense(self.d_ff, kernel_init=init, name="up")(x))
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return self.scale * nn.Dense(self.d_model, name="down")(x)


class Gated(nnx.Module):
    cached = True

    def __init__(self, d_model: int, d_ff: "int | None" = None, dropout=0.0, *, rngs: nnx.Rngs):
        init = nnx.with_partitioning(nnx.initializers.normal(1.0), ("embed", None))
        self.maps = nnx.List([nnx.Linear(d_model, d_ff, kernel_init=init, rngs=rngs) for _ in range(2)])
        self.down = nnx.Linear(d_ff, d_model, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.halves = jnp.full(3, 0.5)  # no weight

    def __call__(self, x):
        gate, up = (linear(x) for linear in self.maps)
        return self.down(self.dropout(nnx.sigmoid(gate) * up)) * self.halves[0]


class Mean(nn.Module):
    """Each token reads the mean of those that it sees."""

    by_row = False  # as if of all rows

    @nn.compact
    def __call__(self, x, mask):
        seen = mask[:, 0].astype(x.dtype)
        return nn.Dense(x.shape[-1])(seen @ x / seen.sum(-1, keepdims=True))


class Running(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("seen", "x", x)
        return nn.BatchNorm(use_running_average=True)(x)


class RunningNNX(nnx.Module):
    def __init__(self, d_model: int, *, rngs):
        self.norm = nnx.BatchNorm(d_model, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class Narrow(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(x)


KINDS = [Mlp, Gated, Mean, Running, RunningNNX, Narrow]


@pytest.fixture(autouse=True)
def named(monkeypatch):
    for cls in KINDS:
        monkeypatch.setitem(LAYERS, cls.__name__, cls)


def layer(name, **keys):
    return layer_of(small(layers={name: keys} if keys else {}), name)


def mlp(params, x, rng=None):
    rngs = None if rng is None else {"dropout": rng}
    return Mlp(6, 11, 3.0, 0.5).apply({"params": params}, x, rng is not None, rngs=rngs)


def stream(rng):
    """Returns the key that a module of the outermost scope of Flax draws from."""
    return Scope({}, {"dropout": rng}).make_rng("dropout")


def gated(params, x, rng=None):
    with nnx.use_eager_sharding(False):
        module = Gated(6, 11, 0.5, rngs=nnx.Rngs(0) if rng is None else nnx.Rngs(0, dropout=stream(rng)))
    for i, linear in enumerate(module.maps):
        linear.kernel[...], linear.bias[...] = (params["maps"][f"{i}"][name] for name in ("kernel", "bias"))
    module.down.kernel[...], module.down.bias[...] = params["down"]["kernel"], params["down"]["bias"]
    module.set_attributes(nnx.Dropout, deterministic=rng is None)
    return module(x)


OWN = {"Mlp": (mlp, {"scale": 3.0, "dropout": 0.5}), "Gated": (gated, {"dropout": 0.5})}


@pytest.mark.parametrize("name", OWN)
def test_values_and_gradients_are_those_of_the_module_itself_in_training_and_without(name):
    own, keys = OWN[name]
    ours, rng = layer(name, **keys), jax.random.key(5)
    params = random_params(ours.spec())

    def both(f):
        return f(params), f(params, rng), jax.grad(lambda p: jnp.sin(f(p, rng)).sum())(params)

    with jax.numpy_rank_promotion("allow"):
        assert jax.eval_shape(lambda: applied(ours, params, X.astype(jnp.bfloat16))).dtype == jnp.bfloat16
        mine = jax.jit(lambda: both(lambda p, rng=None: applied(ours, p, X, rng=rng)))()
        assert_close(mine, jax.jit(lambda: both(lambda p, rng=None: own(p, X, rng)))())
    assert all(np.any(np.asarray(x)) for x in jax.tree.leaves(mine))
    assert not np.allclose(mine[0], mine[1])


@pytest.mark.parametrize(
    ("name", "axes"),
    [("Mlp", {"up/kernel": ("embed", "axis_1")}), ("Gated", {f"maps/{i}/kernel": ("embed", "axis_1") for i in (0, 1)})],
)
def test_weights_are_drawn_by_their_own_initializers_and_have_the_axes_that_flax_names(name, axes):
    spec = flatten(layer(name).spec())
    assert spec == flatten(layer(name).spec())  # so that those of equal layers are drawn together
    assert {path: weight.axes for path, weight in spec.items() if "embed" in weight.axes} == axes
    drawn = flatten(jax.jit(lambda: initialize(layer(name).spec(), jax.random.key(0)))())
    assert {path: x.shape for path, x in drawn.items()} == {path: weight.shape for path, weight in spec.items()}
    for path, x in drawn.items():
        if "kernel" in path:
            deviation = 1 if path in axes else 11**-0.5
            assert np.std(x) == pytest.approx(deviation, rel=0.35)
        else:
            assert not np.any(np.asarray(x))
    kernels = [x for path, x in drawn.items() if "kernel" in path]
    assert not any(np.allclose(a.ravel()[:5], b.ravel()[:5]) for a, b in itertools.pairwise(kernels))


@pytest.mark.parametrize(
    ("blocks", "cached"),
    [("Mean+feed_forward", False), pytest.param("attention+Mlp; attention+Gated", True, marks=pytest.mark.thorough)],
)
def test_a_model_decodes_as_it_trains_with_a_cache_where_modules_read_each_token_alone(blocks, cached):
    model, params = small_model(n_layers=2, blocks=blocks)
    prompts = {"inputs": random_tokens((2, 3)), "lengths": np.array([2, 3], np.int32)}
    with jax.numpy_rank_promotion("allow"):
        assert_consistent(model, params, {"inputs": random_tokens((3, 5))})
        cache = jax.eval_shape(lambda: model.prefill(params, prompts, 5))
    assert ("inputs" in cache.layers) != cached


def test_documents_stay_apart_where_a_module_takes_the_mask():
    model, params = small_model(blocks="Mean+feed_forward")
    tokens = random_tokens((1, 6))
    documents = np.array([[0, 0, 1, 1, 1, 1]], np.int32)
    with jax.numpy_rank_promotion("allow"):
        forward = jax.jit(model.apply)
        packed = forward(params, {"inputs": tokens, "documents": documents})
        other = forward(params, {"inputs": np.where(documents, tokens, tokens[:, ::-1]), "documents": documents})
    assert_close(packed[:, 2:], other[:, 2:])
    assert not np.allclose(packed[:, :2], other[:, :2])


@pytest.mark.thorough
def test_blocks_train_in_a_loop_as_one_by_one_with_what_the_backward_pass_recomputes():
    tokens = random_tokens((3, 5))
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((3, 5), np.float32)}
    found = []
    for changes in ({}, {"scan_blocks": True, "remat": "full"}):
        model, params = small_model(n_layers=4, blocks="attention+Gated, attention+Mlp", **changes)
        with jax.numpy_rank_promotion("allow"):
            found.append(jax.jit(lambda p, model=model: loss_and_gradient(model, p, batch))(params))
    jax.tree.map(assert_close, *found)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("Mlp", {"scal": 1.0}, r"model\.layers\.Mlp\.scal: unknown key; did you mean 'scale'"),
        ("Mlp", {"scale": "x"}, r"model\.layers\.Mlp\.scale: expected float, got 'x'"),
        ("Narrow", {}, r"model\.layers\.Narrow\.width: Narrow needs a value"),
        ("Narrow", {"width": 5}, r"Narrow makes \(1, 2, 5\) of 1 row of 2 tokens; expected \(1, 2, 6\)"),
        ("Running", {}, r"Running has variables besides its params, seen, batch_stats"),
        ("RunningNNX", {}, r"RunningNNX has variables besides its params, batch_stats"),
    ],
)
def test_what_does_not_fit_is_one_line(name, keys, message):
    with pytest.raises(UserError, match=message):
        layer(name, **keys).spec()


def test_a_module_that_mixes_rows_keeps_a_cpu_from_cutting_a_batch():
    assert [small_model(blocks=f"attention+{name}")[0].width for name in ("Mlp", "Mean")] == [6, None]


def test_dropout_that_is_on_outside_of_training_fails_before_it():
    with pytest.raises(InvalidRngError):
        FlaxModule(nn.Sequential([nn.Dropout(0.5, deterministic=False)]), width=6).spec()

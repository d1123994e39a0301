"""Flax modules as layers and as whole models: their own `init` and `apply` are the oracle."""

import functools
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
from fxf.models.flax_model import of_module
from fxf.testing import assert_cached_equals_full, assert_documents_apart
from helpers import VOCAB_SIZE, applied, random_params, random_tokens, refused, small, small_model, some

X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
TOKENS, DOCUMENTS = random_tokens((3, 5)), np.array([[0, 0, 1, 1, 1]] * 3, np.int32)


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
    """Each token reads the mean of the tokens that it sees."""

    by_row = False  # as if over all rows

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
        return nn.Dense(self.width)(x) if self.width < 6 else (x, x)


class Summing(nn.Module):
    @nn.compact
    def __call__(self, inputs, train: bool = False):
        x = jnp.cumsum(nn.Embed(VOCAB_SIZE, 6)(inputs), axis=1)
        return nn.Dense(VOCAB_SIZE)(nn.Dropout(0.5, deterministic=not train)(x)).astype(jnp.bfloat16)


class Attending(nnx.Module):
    def __init__(self, width=6, *, rngs):
        self.table = nnx.Embed(VOCAB_SIZE, width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, dropout_rate=0.5, decode=False, rngs=rngs)

    def __call__(self, tokens, documents=None):
        mask = nnx.make_causal_mask(tokens)
        if documents is not None:
            mask = mask * (documents[:, None, :, None] == documents[:, None, None])
        x = self.table(tokens)
        return self.table.attend(x + self.attention(x, mask=mask))


@pytest.fixture(autouse=True)
def named(monkeypatch):
    for cls in (Mlp, Gated, Mean, Running, RunningNNX, Narrow):
        monkeypatch.setitem(LAYERS, cls.__name__, cls)
    with jax.numpy_rank_promotion("allow"):
        yield


def layer(name, **keys):
    return layer_of(small(layers={name: keys} if keys else {}), name)


def linen(module, params, x, rng):
    return module.apply({"params": params}, x, rng is not None, rngs=None if rng is None else {"dropout": rng})


def of_nnx(make, params, x, rng):
    # The key that a module in Flax's outermost scope draws from.
    streams = {} if rng is None else {"dropout": Scope({}, {"dropout": rng}).make_rng("dropout")}
    with nnx.use_eager_sharding(False):
        module = make(rngs=nnx.Rngs(0, **streams))
    state = nnx.state(module, nnx.Param)
    nnx.replace_by_pure_dict(state, params)
    nnx.update(module, state)
    module.set_attributes(deterministic=rng is None)
    return module(x)


OWN = {
    "Mlp": (functools.partial(linen, Mlp(6, 11, 3.0, 0.5)), {"scale": 3.0, "dropout": 0.5}),
    "Gated": (functools.partial(of_nnx, functools.partial(Gated, 6, 11, 0.5)), {"dropout": 0.5}),
    "Summing": (functools.partial(linen, Summing()), Summing()),
    "Attending": (functools.partial(of_nnx, Attending), functools.partial(Attending, width=6)),
}


@pytest.mark.parametrize("name", OWN)
def test_values_and_gradients_are_the_modules_own_in_training_and_evaluation(name):
    own, given = OWN[name]
    if name in LAYERS:
        ours, read, narrow = layer(name, **given), X, X.astype(jnp.bfloat16)
        assert jax.eval_shape(lambda p: applied(ours, p, narrow), random_params(ours.spec())).dtype == jnp.bfloat16
        spec, apply = ours.spec(), lambda params, rng: applied(ours, params, X, rng=rng)
    else:
        model, read = of_module(given, VOCAB_SIZE), TOKENS
        spec, apply = model.spec, lambda params, rng: model.apply(params, {"inputs": TOKENS}, rng=rng)

    def both(f, params):
        def total(params):
            trained = f(params, jax.random.key(5))
            return jnp.sin(trained).sum(), trained

        gradient, trained = jax.grad(total, has_aux=True)(params)
        return f(params, None), trained, gradient

    def in_float32(params, rng):
        return own(params, read, rng).astype(jnp.float32)

    found, expected = jax.jit(lambda params: (both(apply, params), both(in_float32, params)))(random_params(spec))
    assert_close(found, expected)
    assert all(np.any(np.asarray(x)) for x in jax.tree.leaves(found))
    assert found[0].dtype == jnp.float32 and not np.allclose(found[0], found[1])


@pytest.mark.parametrize(
    ("name", "axes"),
    [("Mlp", {"up/kernel": ("embed", "axis_1")}), ("Gated", {f"maps/{i}/kernel": ("embed", "axis_1") for i in (0, 1)})],
)
def test_weights_are_drawn_by_their_own_initializers_and_have_the_axes_that_flax_names(name, axes):
    tree = layer(name).spec()
    spec = flatten(tree)
    assert spec == flatten(layer(name).spec())  # so that weights of equal layers are drawn together
    assert {path: weight.axes for path, weight in spec.items() if "embed" in weight.axes} == axes
    drawn = flatten(jax.jit(lambda: initialize(tree, jax.random.key(0)))())
    assert {path: x.shape for path, x in drawn.items()} == {path: weight.shape for path, weight in spec.items()}
    deviations = {path: 1 if path in axes else 11**-0.5 * ("kernel" in path) for path in drawn}
    assert {path: np.std(x) for path, x in drawn.items()} == pytest.approx(deviations, rel=0.35)
    kernels = [x for path, x in drawn.items() if "kernel" in path]
    assert not any(np.allclose(a.ravel()[:5], b.ravel()[:5]) for a, b in itertools.pairwise(kernels))


@some("blocks", ["Mean+feed_forward", "attention+Mlp; attention+Gated"], ["Mean+feed_forward"])
def test_a_model_decodes_as_it_trains_with_a_cache_where_modules_read_each_token_alone(blocks):
    model, params = small_model(n_layers=2, blocks=blocks)
    assert_cached_equals_full(model, params, {"inputs": TOKENS}, capacities=[5])
    assert_documents_apart(model, params, {"inputs": TOKENS, "documents": DOCUMENTS})
    prompts = {"inputs": TOKENS, "lengths": np.array([2, 3, 1], np.int32)}
    cache = jax.eval_shape(lambda: model.prefill(params, prompts, 5))
    assert ("inputs" in cache.layers) == blocks.startswith("Mean")


@some("name", ["Summing", "Attending"], ["Attending"])
def test_a_whole_model_decodes_as_it_trains_separates_documents_if_it_takes_them_and_ignores_padding(name):
    model = of_module(OWN[name][1], VOCAB_SIZE, max_len=9)
    more = {"documents": DOCUMENTS} if name == "Attending" else {}
    params = random_params(model.spec)
    assert model.max_len == 9 and of_module(OWN[name][1], VOCAB_SIZE, dtype="bfloat16").dtype == "bfloat16"
    padded = jax.tree.map(lambda x: jnp.pad(x, [(0, int(n == VOCAB_SIZE)) for n in x.shape]), params)
    assert_close(model.apply(padded, {"inputs": TOKENS}), model.apply(params, {"inputs": TOKENS}))
    assert_cached_equals_full(model, params, {"inputs": TOKENS}, capacities=[5])
    if more:
        assert_documents_apart(model, params, {"inputs": TOKENS, **more})
    for taken in {"documents", "positions"} - {*more}:
        with pytest.raises(UserError, match=rf"{taken}: .*{name}, a module of Flax, does not take them"):
            jax.eval_shape(model.apply, params, {"inputs": TOKENS, taken: TOKENS})


@pytest.mark.parametrize(("keys", "message"), refused("modules of Flax"))
def test_a_misfit_is_one_line(keys, message):
    with pytest.raises(UserError, match=message):
        layer(keys.pop("name"), **keys).spec()


def test_a_module_that_mixes_rows_keeps_a_cpu_from_splitting_a_batch():
    assert [small_model(blocks=f"attention+{name}")[0].width for name in ("Mlp", "Mean")] == [6, None]


def test_dropout_that_is_on_outside_of_training_fails_before_it():
    with pytest.raises(InvalidRngError):
        FlaxModule(nn.Sequential([nn.Dropout(0.5, deterministic=False)]), width=6).spec()

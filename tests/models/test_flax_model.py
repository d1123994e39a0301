"""A Flax module as a whole model: the module's own `apply` is the oracle."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import Scope

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.models.flax_model import of_module
from fxf.testing import assert_consistent
from fxf.training.gradient import loss_and_gradient
from helpers import VOCAB_SIZE, random_params, random_tokens

TOKENS = random_tokens((3, 5))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, inputs, train: bool = False):
        x = nn.RNN(nn.GRUCell(6))(nn.Embed(VOCAB_SIZE, 6)(inputs))
        return nn.Dense(VOCAB_SIZE)(nn.Dropout(0.5, deterministic=not train)(x))


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


def linen(params, rng):
    rngs = None if rng is None else {"dropout": rng}
    return Recurrent().apply({"params": params}, TOKENS, rng is not None, rngs=rngs)


def stream(rng):
    """Returns the key that a module of the outermost scope of Flax draws from."""
    return Scope({}, {"dropout": rng}).make_rng("dropout")


def of_nnx(params, rng):
    module = Attending(rngs=nnx.Rngs(0) if rng is None else nnx.Rngs(0, dropout=stream(rng)))
    module.set_attributes(deterministic=rng is None)
    module.table.embedding[...] = params["table"]["embedding"]
    for name, weights in params["attention"].items():
        for kind, value in weights.items():
            getattr(getattr(module.attention, name), kind)[...] = value
    return module(TOKENS)


CASES = {"Linen": (Recurrent(), linen), "NNX": (functools.partial(Attending, width=6), of_nnx)}


@pytest.fixture(autouse=True)
def as_flax_is():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("kind", CASES)
def test_logits_and_gradients_are_those_of_the_module_itself(kind, trains):
    module, own = CASES[kind]
    model, rng = of_module(module, VOCAB_SIZE), jax.random.key(5) if trains else None
    targets, weights = random_tokens((3, 5), seed=1), np.ones((3, 5), np.float32)

    def own_loss(params):
        logs = jax.nn.log_softmax(own(params, rng))
        return -jnp.take_along_axis(logs, targets[..., None], -1).sum()

    @jax.jit
    def both(params):
        batch = {"inputs": TOKENS, "targets": targets, "weights": weights}
        loss, _, gradient = loss_and_gradient(model, params, batch, rng)
        logits = model.apply(params, {"inputs": TOKENS}, rng=rng)
        return (logits, loss, gradient), (own(params, rng), *jax.value_and_grad(own_loss)(params))

    found, expected = both(random_params(model.spec))
    jax.tree.map(assert_close, found, expected)


@pytest.mark.parametrize("kind", CASES)
def test_it_decodes_as_it_trains(kind):
    model = of_module(CASES[kind][0], VOCAB_SIZE)
    assert_consistent(model, random_params(model.spec), {"inputs": random_tokens((2, 4))})


def test_a_module_gets_the_arrays_of_the_batch_that_it_takes():
    model = of_module(Attending, VOCAB_SIZE)
    params = random_params(model.spec)
    documents = np.array([[0, 0, 1, 1, 1]] * 3, np.int32)
    forward = jax.jit(model.apply)
    packed = forward(params, {"inputs": TOKENS, "documents": documents})
    assert_close(packed[:, 2:], forward(params, {"inputs": TOKENS[:, 2:]}))
    assert not np.allclose(packed[:, 2:], forward(params, {"inputs": TOKENS})[:, 2:])


@pytest.mark.parametrize("name", ["documents", "positions"])
def test_a_batch_that_says_what_tokens_read_needs_a_module_that_takes_it(name):
    model = of_module(Recurrent(), VOCAB_SIZE)
    with pytest.raises(UserError, match=f"{name}: Recurrent, a module of Flax, does not take them"):
        jax.eval_shape(model.apply, random_params(model.spec), {"inputs": TOKENS, name: TOKENS})


def test_logits_are_float32_whatever_the_module_makes():
    class Half(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return nn.Embed(VOCAB_SIZE, VOCAB_SIZE, dtype=jnp.bfloat16)(tokens)

    model = of_module(Half(), VOCAB_SIZE)
    assert jax.eval_shape(model.apply, random_params(model.spec), {"inputs": TOKENS}).dtype == jnp.float32

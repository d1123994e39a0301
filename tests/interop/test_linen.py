import flax.linen as nn
import jax
import numpy as np
import pytest

from fxf.interop.linen import LinenModel
from fxf.models import MODELS
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.masked_lm import MaskedLMConfig
from fxf.weights import count, initialize
from helpers import VOCAB_SIZE, random_tokens, small, small_model

TOKENS = random_tokens((3, 5))
SOURCE = {"source": random_tokens((3, 4), seed=1), "source_mask": np.arange(4)[None] < np.array([[4], [1], [3]])}
CASES = {
    "masked_lm": (small(MaskedLMConfig, segments=2), {"inputs": TOKENS, "segments": TOKENS % 2}),
    "encoder_decoder": (small(EncoderDecoderConfig), {"inputs": TOKENS, **SOURCE}),
}


@pytest.mark.parametrize("name", ["masked_lm", pytest.param("encoder_decoder", marks=pytest.mark.thorough)])
def test_init_and_apply_equal_those_of_every_model_bit_for_bit(name):
    config, batch = CASES[name]
    model = MODELS[name][1](config, VOCAB_SIZE)
    module, key = LinenModel(model), jax.random.key(3)
    params, variables = jax.jit(lambda: (initialize(model.spec, key), module.init(key, batch)))()
    assert set(variables) == {"params"}
    assert jax.tree.structure(variables["params"]) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, variables["params"], params)
    found, expected = jax.jit(lambda p: (module.apply({"params": p}, batch), model.apply(p, batch)))(params)
    np.testing.assert_array_equal(found, expected)


def test_dropout_reads_the_stream_of_that_name_in_training_alone():
    model, params = small_model(dropout=0.5)
    module, variables, batch = LinenModel(model), {"params": params}, {"inputs": TOKENS}

    @jax.jit
    def trained(seed):
        return module.apply(variables, batch, train=True, rngs={"dropout": jax.random.key(seed)})

    expected, not_trained = jax.jit(lambda: (model.apply(params, batch), module.apply(variables, batch)))()
    np.testing.assert_array_equal(trained(0), trained(0))
    assert np.any(trained(0) != trained(1))
    assert np.any(trained(0) != expected)
    np.testing.assert_array_equal(not_trained, expected)


def test_tabulate_has_a_row_for_every_layer_and_the_count_of_all():
    model, _ = small_model(n_layers=2)
    table = LinenModel(model).tabulate(jax.random.key(0), {"inputs": TOKENS}, console_kwargs={"width": 240})
    for path in (
        "embedding",
        "blocks/0/attention",
        "blocks/1/feed_forward",
        "blocks/1/attention_norm",
        "norm",
        "final",
    ):
        assert f"│ {path} " in table
    assert f"Total Parameters: {count(model.spec)}" in table


def test_it_serves_inside_another_module():
    model, params = small_model()

    class Doubled(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return 2 * LinenModel(model, name="inner")(batch)

    module, batch = Doubled(), {"inputs": TOKENS}
    made = jax.eval_shape(module.init, jax.random.key(0), batch)
    assert made == {"params": {"inner": jax.eval_shape(lambda: params)}}

    @jax.jit
    def both(params):
        return module.apply({"params": {"inner": params}}, batch), 2 * model.apply(params, batch)

    np.testing.assert_array_equal(*both(params))

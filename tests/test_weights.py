import functools
import zlib

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.base import weights
from fxf.base.weights import Weight, fan_in, flatten, initialize, leaves, uniform_half
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from helpers import small, small_model

WEIGHTS = {"a": Weight((5, 7), ("embed", "mlp"), fan_in()), "b": {"c": Weight((3,), ("embed",), uniform_half)}}


def feed_forwards(n_layers):
    """Returns the blocks of a spec with few weights, because every weight takes time to compile."""
    spec = small_model(n_layers=n_layers)[0].spec
    return {number: {"feed_forward": {"up": block["feed_forward"]["up"]}} for number, block in spec["blocks"].items()}


SEED = 3
SPECS = {
    "few": WEIGHTS,
    "more": {"new": Weight((2,), ("embed",), uniform_half), **WEIGHTS},
    "two copies": weights.stack(WEIGHTS, 2, "copies"),
    "three copies": weights.stack(WEIGHTS, 3, "copies"),
    "two blocks": {"blocks": {int(number): block for number, block in feed_forwards(2).items()}},
    "three blocks": {"blocks": feed_forwards(3), "final": {"2": {"1": small_model()[0].spec["final"]}}},
}


@pytest.fixture(scope="module")
def drawn():
    """Returns the params of each spec, all drawn by one program."""

    @jax.jit
    def draw():
        key, given = jax.random.key(SEED), {"a": np.ones((5, 7), np.float16)}
        drawn = {name: initialize(spec, key) for name, spec in SPECS.items()}
        return {**drawn, "given": initialize(WEIGHTS, key, given=given)}

    return jax.device_get(draw())


def test_adding_or_giving_a_weight_a_copy_or_a_block_does_not_change_the_others(drawn):
    assert_equal = functools.partial(np.testing.assert_array_equal, strict=True)  # also of equal types
    more, two, three = (dict(drawn[name]) for name in ("more", "two blocks", "three blocks"))
    assert more.pop("new").shape == (2,)
    jax.tree.map(assert_equal, drawn["few"], more)
    jax.tree.map(assert_equal, {**drawn["few"], "a": np.ones((5, 7), np.float32)}, drawn["given"])
    jax.tree.map(lambda a, b: assert_equal(a, b[:2]), drawn["two copies"], drawn["three copies"])
    jax.tree.map(assert_equal, two["blocks"][0], three["blocks"]["0"])
    up = [block["feed_forward"]["up"] for block in three["blocks"].values()]
    copies = drawn["three copies"]["a"]
    for a, b in (up[:2], up[::2], copies[:2]):
        assert not np.allclose(a, b)


def test_a_weight_is_drawn_from_its_path_folded_into_the_key(drawn):
    """This holds whether it is drawn alone or with those of other blocks; one program may round as another does not."""

    def folded(path, *numbers):
        return functools.reduce(jax.random.fold_in, (zlib.crc32(path.encode()), *numbers), jax.random.key(SEED))

    @jax.jit
    def alone():
        up = [fan_in()(folded("blocks/feed_forward/up", number), (6, 11), np.float32) for number in (0, 2)]
        return up, fan_in(size=6)(folded("final/kernel", 2, 1), (6, 7), np.float32)

    params = drawn["three blocks"]
    up = [params["blocks"][str(number)]["feed_forward"]["up"] for number in (0, 2)]
    assert_close((up, params["final"]["2"]["1"]["kernel"]), alone(), operations=4)


def test_linear_maps_start_with_a_variance_of_one_over_the_inputs_of_each_copy(monkeypatch):
    monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype: np.ones(shape))
    models = [small_model(blocks="attention+delta+moe", attention=kind)[0] for kind in ("softmax", "latent")]
    for _, weight in [each for model in models for each in leaves(model.spec)]:
        if axes := weights.axes_of_matrix(weight):
            size = np.prod(np.take(weight.shape, axes[0]))
            assert_close(weight.init(jax.random.key(0), weight.shape, None), np.full(weight.shape, size**-0.5))


@pytest.mark.parametrize("embeddings", ["separate", "shared"])
def test_only_matrices_of_an_encoder_decoder_decay_too(embeddings):
    config = small(EncoderDecoderConfig, embeddings=embeddings, positions="learned", attention_bias="all")
    spec = encoder_decoder(config, 7).spec
    decaying = {path for path, decays in flatten(weights.decay_mask(spec)).items() if decays}
    maps = ("/query", "/key", "/value", "/output", "/up", "/down", "/kernel")
    # A shared table is an embedding table, although it also makes the logits.
    assert decaying == {path for path, _ in leaves(spec) if path.endswith(maps)}


def test_norms_and_biases_of_heads_in_groups_neither_decay_nor_are_drawn_as_matrices():
    spec = flatten(small_model(blocks="mamba2+feed_forward", init="gpt2")[0].spec)
    decaying = [path for path, decays in flatten(weights.decay_mask(spec)).items() if decays]
    assert not [path for path in decaying if path.endswith(("scale", "bias"))]
    assert spec["blocks/0/mamba2/scale"].init is jax.nn.initializers.ones
    assert [spec[f"blocks/0/mamba2/{name}"].shape for name in ("key", "value")] == [(6, 1, 128), (6, 1, 3, 4)]
    inits, key = [spec[f"blocks/0/mamba2/{name}"].init for name in ("log_rate", "step_bias")], jax.random.key(0)
    log_rate, step_bias, u = jax.jit(lambda: [f(key, (7,), np.float32) for f in (*inits, jax.random.uniform)])()
    assert_close((np.exp(log_rate), np.log1p(np.exp(step_bias))), (1 + 15 * u, 1e-3 * 100**u), operations=8)
    own = {"embed heads": True, "heads head_dim embed": True, "expert embed mlp": True, "expert mlp": False}
    own |= {"heads position": False, "copies heads head_dim head_dim": False}
    spec = {names: Weight((2,) * len(axes := (*names.split(),)), axes, jax.nn.initializers.zeros) for names in own}
    assert weights.decay_mask(spec) == own


def test_matrices_are_the_linear_maps_between_vectors_with_heads_cut_in_two_as_one_axis():
    model, _ = small_model(attention_bias="all", n_layers=1)
    axes = weights.map_weights(lambda _, weight: weights.axes_of_matrix(weight), model.spec)["blocks"]["0"]
    assert [axes["attention"][name] for name in ("query", "key", "value")] == [((0,), (1, 2))] * 3
    assert axes["attention"]["output"] == ((0, 1), (2,))
    assert [axes["feed_forward"][name] for name in ("up", "down")] == [((0,), (1,))] * 2
    assert sum(found is not None for found in jax.tree.leaves(axes, is_leaf=lambda x: not isinstance(x, dict))) == 6


def test_an_error_of_an_init_names_the_weight():
    with pytest.raises(TypeError) as raised:
        initialize({"a": {"b": Weight((2, 3), ("embed", "mlp"), 0.02)}}, jax.random.key(SEED))
    assert "a/b: `init` is called as init(key, shape, dtype) with the shape (2, 3)" in raised.value.__notes__

"""Each layer against the float64 oracle of the seeds."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.base.weights import Weight, initialize
from fxf.layers.attention import Attention, CrossAttention
from fxf.layers.block import Block, PreNorm, Stack
from fxf.layers.dropout import dropout
from fxf.layers.embedding import embedding, embedding_spec
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.layers.kinds import ATTENTIONS, layer_of, stack_of
from fxf.layers.layer import Context, Places, whole_rows
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import POSITIONS, positional_encoding_spec
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import TransformerLM
from helpers import VOCAB_SIZE, applied, attention_of, equations, places, random_params, random_tokens, small

B, T, S, D = 3, 5, 4, 6
EMBEDDED = ("sinusoidal_trained", "learned", "sinusoidal", "sinusoidal_concatenated", "sinusoidal_halves")
# Which tokens of a source count: different in each row, and not only the first ones.
IS_TOKEN = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 1]], bool)


def vectors(seed=1, length=T):
    return np.random.default_rng(seed).normal(size=(B, length, D)).astype(np.float32)


def source_of(z):
    """Returns a source with the tokens `IS_TOKEN`."""
    return z, Places(jnp.arange(S)[None], documents=jnp.asarray(IS_TOKEN, jnp.int32))


def test_embeddings_start_with_unit_variance_and_positions_at_the_size_of_sinusoids():
    specs = [embedding_spec(small(d_model=96, positions="sinusoidal"), 101, unit_rows=scaled) for scaled in (0, 1)]
    sizes = {"d_model": 47, "n_heads": 1, "max_len": 997}
    specs += [positional_encoding_spec(small(positions=kind, **sizes)) for kind in EMBEDDED[:2]]
    draw = jax.jit(lambda key: [next(iter(initialize(spec, key).values())) for spec in specs])
    (plain, scaled, sinusoids, random), (*_, other) = (jax.device_get(draw(jax.random.key(seed))) for seed in (0, 1))
    assert [np.std(plain), np.std(scaled) * math.sqrt(96)] == pytest.approx([1, 1], abs=0.03)
    # Counted from one, also with an odd width.
    assert_close(sinusoids[:11], [[oracle.sinusoid(pos, axis, 47) for axis in range(47)] for pos in range(1, 12)])
    assert not np.allclose(random, other)
    assert np.square(random).mean() == pytest.approx(np.square(sinusoids).mean(), rel=0.05)


def test_positional_encoding_adds_the_vector_of_each_position():
    x, at = vectors(), np.array([[0, 1, 2, 3, 4], [9, 3, 3, 0, 11], [12, 5, 7, 1, 2]])
    configs = [small(positions=kind) for kind in EMBEDDED]
    params = [random_params(positional_encoding_spec(config)) for config in configs]
    both = list(zip(configs, params, strict=True))
    found = jax.jit(lambda at: [POSITIONS[config.positions].embed(weights, at, D) for config, weights in both])(at)
    for (config, weights), y in zip(both, found, strict=True):
        weights = oracle.float64(weights)
        assert_close(x + y, x + np.array([[oracle.position_vector(config, weights, t) for t in row] for row in at]))


def test_normalization_of_a_constant_vector_has_a_finite_gradient():
    configs = [small(norm_epsilon_in=inside) for inside in ("deviation", "variance")]
    params, total = random_params(normalization_spec(configs[0])), lambda x, c: normalize(c, params, x).sum()
    gradients = jax.jit(lambda x: [jax.grad(total)(x, config) for config in configs])(np.ones((1, D), np.float32))
    assert np.isfinite(gradients).all()


def test_feed_forward_is_two_linear_maps_with_a_nonlinearity_or_a_gate_between():
    configs = [small(activation=kind) for kind in ACTIVATIONS]
    configs += [small(activation=kind, gated=True) for kind in ("silu", "silu_clamped")]
    layers = [layer_of(config, "feed_forward") for config in configs]
    params = [random_params(layer.spec()) for layer in layers]
    inputs = [vectors() * (5 if config.activation == "silu_clamped" else 1) for config in configs]  # so that it clamps
    found = jax.jit(lambda inputs: [applied(*each) for each in zip(layers, params, inputs, strict=True)])(inputs)
    for config, weights, x, y in zip(configs, params, inputs, found, strict=True):
        assert_close(y, oracle.feed_forward(config, oracle.float64(weights), np.float64(x)))


def test_layers_return_bfloat16_for_bfloat16_and_keep_memories_in_float32():
    for kind in (*ATTENTIONS, "feed_forward", "moe", "delta", "mamba2"):
        of_attention = {"attention": kind} if kind in ATTENTIONS else {}
        config = small(d_model=12, positions="none" if kind == "linear" else "rotary", **of_attention)
        layer, x = layer_of(config, "attention" if of_attention else kind), np.ones((1, 5, 12), "bfloat16")
        y, after = jax.eval_shape(layer.apply, random_params(layer.spec()), x, whole_rows(5).replace(cache={}))
        in_float32 = any(kept.dtype == "float32" for kept in jax.tree.leaves(after.cache))
        assert y.dtype == x.dtype and in_float32 == (kind in ("linear", "delta", "mamba2")), kind


def test_a_block_with_a_source_attends_to_it_after_its_own_sequence(monkeypatch):
    """Dropout is replaced by a factor, which shows what it acts on."""
    monkeypatch.setattr(Block, "dropout", lambda self, name, y, context: 3 * y)
    forms = [("pre_norm", "queries"), ("pre_norm", "source")]
    forms += [(form, "queries") for form in ("post_norm", "sandwich", "output_norm", "idea")]
    configs = [small(EncoderDecoderConfig, block=form, cross_norm=normalized) for form, normalized in forms]
    blocks = [stack_of(config, cross=True).blocks[0] for config in configs]
    both, x, z = [(block, random_params(block.spec())) for block in blocks], vectors(), vectors(2, S)
    found = jax.jit(lambda x, z: [applied(*each, x, source=source_of(z)) for each in both])(x, z)
    for config, (_, w), y in zip(configs, both, found, strict=True):
        expected = [
            oracle.block(config, oracle.float64(w), row, oracle.to_earlier, source, lambda _, s, m=mask: m[s], factor=3)
            for row, source, mask in zip(np.float64(x), np.float64(z), IS_TOKEN, strict=True)
        ]
        assert_close({config.block: y}, {config.block: np.array(expected)})


@dataclasses.dataclass(frozen=True)
class Adding:
    """A layer that adds to the carry of earlier layers of its name, and draws a random vector."""

    name: str

    def spec(self):
        return {"factor": Weight((D,), ("embed",), jax.nn.initializers.ones)}

    def apply(self, params, x, context):
        total = context.carry.get(self.name, 0) + x
        drawn = params["factor"] + jax.random.key_data(context.rng)[0] / 2.0**32
        return jnp.sin(drawn[None, None] * total), context.replace(carry={**context.carry, self.name: total})


def test_arrays_of_a_batch_for_the_carry_exist_before_the_first_block():
    config = small(positions="none")
    model = TransformerLM(config, VOCAB_SIZE, Stack(config, (Adding("a"),)))
    params, tokens = random_params(model.spec()), random_tokens((2, 5))
    batch = {"inputs": tokens, "carry/a": -params["embedding"]["table"][tokens]}
    assert not model.features(params, batch, rng=jax.random.key(0)).any()


class Growing(Adding):
    """A layer that keeps all arrays of the stream, and adds one."""

    def apply(self, params, x, context):
        return (*x, jnp.sin(params["factor"][None, None] * sum(x))), context


def test_a_growing_stream_is_not_scanned_and_is_the_same():
    stacks = [Stack(small(scan_blocks=scan), (Growing("a"),) * 3) for scan in (False, True)]
    params = random_params(stacks[0].spec())
    plain, found = jax.jit(lambda x: [s.apply(params, (x,), Context(places(T)))[0] for s in stacks])(vectors())
    assert len(found) == 4
    assert_close(found, plain)


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_scanned_blocks_equal_blocks_in_a_row_also_in_what_they_carry(shared):
    head, *turn = map(Adding, "abc")
    # The first block, or period, creates the carry, so it comes before the loop.
    blocks = 3 * turn if shared else [head, *3 * turn, turn[0]]
    stacks = [Stack(small(scan_blocks=scan, remat="full"), blocks, not shared, 2, shared) for scan in (False, True)]
    params = random_params(stacks[0].spec())
    assert [*params] == [str(i) for i in range(2 if shared else 8)]
    start = Context(places(T), rng=jax.random.key(0))

    def by_hand(x):
        context = start
        for i, rng in enumerate(jax.random.split(start.rng, len(blocks))):
            x, context = blocks[i].apply(params[str(i % 2 if shared else i)], x, context.replace(rng=rng))
        return x, context.carry

    applies = [lambda x, stack=stack: stack.apply(params, x, start) for stack in stacks]
    expected, *found = jax.jit(lambda x: [by_hand(x), *(apply(x) for apply in applies)])(vectors())
    for apply, (x, after), n_turns in zip(applies, found, ([], [2]), strict=True):
        assert_close((x, after.carry), expected)
        program = jax.make_jaxpr(apply)(vectors()).jaxpr
        assert [each.params["length"] for each in equations(program) if each.primitive.name == "scan"] == n_turns
        assert all(each.params.get("prevent_cse", True) for each in program.eqns)  # of blocks outside of the loop


def test_the_norm_of_a_custom_block_is_the_norm_of_its_layers():
    class Halved(PreNorm):
        def norm(self, params, name, x, which="norm"):
            return x / 2

    block = stack_of(small()).blocks[0]
    halved, params = Halved(block.config, block.layers), random_params(block.spec())

    @jax.jit
    def both(x):
        expected = x
        for name, layer in block.layers.items():
            expected = expected + applied(layer, params[name], expected / 2)
        return applied(halved, params, x), expected

    assert_close(*both(vectors()))


def test_a_bias_by_distance_is_not_added_in_cross_attention():
    class Nearest(Attention):
        def bias(self, params, queries, keys):
            return -jnp.abs(queries.positions[:, None, :, None] - keys.positions[:, None, None])

    config = small(positions="none")
    params = random_params(Attention(config).spec())
    kinds, source = [CrossAttention(kind(config)) for kind in (Nearest, Attention)], source_of(vectors(2, S))
    found, plain = jax.jit(lambda x: [applied(kind, params, x, source=source) for kind in kinds])(vectors())
    np.testing.assert_array_equal(found, plain)


def assert_dropped(actual, whole, rate):
    """Asserts that each element is 0 or the full one over (1 - rate), and that both occur, also side by side."""
    kept = np.asarray(actual) != 0
    assert_close(actual, np.where(kept, whole / (1 - rate), 0))
    assert (np.diff(kept.reshape(-1)[: kept.size // 2 * 2].reshape(-1, 2)) != 0).any()  # a random word serves both
    # Four standard deviations of a share of n elements.
    assert abs(kept.mean() - (1 - rate)) < min(0.15, 4 * math.sqrt(rate * (1 - rate) / kept.size))


def test_embedding_dropout_drops_tokens_and_positions_together():
    config = small(embedding_dropout=0.25)
    params = random_params(embedding_spec(config, 7))
    tokens = np.array([[0, 6, 3, 1, 1]] * 3)
    expected = [oracle.embedding(config, oracle.float64(params), row) for row in tokens]
    dropped = jax.jit(lambda x: embedding(config, params, x, jnp.arange(T)[None], rng=jax.random.key(0)))(tokens)
    assert_dropped(dropped, np.array(expected), 0.25)


def test_attention_dropout_drops_the_weights_of_values():
    """With identity values and output map, attention returns its weights."""
    layer = attention_of(small(n_heads=1, attention_bias="none", attention_dropout=0.25))
    identity, context = np.eye(D, dtype=np.float32), {"places": places(T, causal=False)}
    params = random_params(layer.spec()) | {"value": identity[:, None], "output": identity[None]}
    draw = jax.jit(lambda x: [applied(layer, params, x, rng=rng, **context) for rng in (None, jax.random.key(0))])
    plain, dropped = (y[..., :T] for y in draw(np.tile(identity[None, :T], (B, 1, 1))))
    query, key = (np.float64(params[name])[:T, 0] for name in ("query", "key"))
    expected = np.tile(np.apply_along_axis(oracle.softmax, -1, query @ key.T / math.sqrt(D))[None], (B, 1, 1))
    assert_close(plain, expected)
    assert_dropped(dropped, expected, 0.25)


class Dropping(Adding):
    """A layer that adds nothing, or dropout of ones."""

    def apply(self, params, x, context):
        return dropout(context.rng, jnp.full_like(x, self.name == "ones"), 0.25), context


@pytest.mark.parametrize(("names", "at", "i", "j"), [("ab", "a", 0, 1), ("ab", "b", 3, 4), ("abc", "b", 2, 3)])
def test_dropout_drops_a_sublayers_output_by_its_own_draw_and_not_the_stream(names, at, i, j):
    layers, x = {name: Dropping("ones" * (name == at)) for name in names}, vectors(length=99)
    block, keys = PreNorm(small(dropout=0.25), layers), jax.random.split(jax.random.key(0), max(5, 2 * len(names)))
    added = jax.jit(lambda x: applied(block, random_params(block.spec()), x, rng=jax.random.key(0)))(x) - x
    assert_close(added, dropout(keys[j], dropout(keys[i], jnp.ones(x.shape), 0.25), 0.25), 3, np.abs(x).max() + 2)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("epsilon_in", ["variance", "deviation"])
def test_the_derivative_of_a_norm_equals_finite_differences(norm, epsilon_in):
    """This includes the direction in which the mean of a row changes."""
    config = small(norm=norm, norm_epsilon_in=epsilon_in, norm_epsilon=0.1)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda w: np.asarray(w, np.float64), random_params(normalization_spec(config)))
        x, h = np.random.default_rng(0).normal(size=6), 1e-5

        @jax.jit
        def of_rows(rows):
            return normalize(config, params, rows)

        jacobian = jax.jit(jax.jacrev(lambda x: normalize(config, params, x[None])[0]))(x)
        steps = h * np.eye(6)
        differences = (of_rows(x + steps) - of_rows(x - steps)).T / (2 * h)
    np.testing.assert_allclose(jacobian, differences, rtol=0, atol=1e-9)

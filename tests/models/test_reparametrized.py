"""Models that store other weights than they compute with: adapters, and 8-bit matrices."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.weights import Weight, fan_in, flatten, initialize, leaves, map_weights, without_repeats
from fxf.models import MODELS
from fxf.models.lora import LORA, LoraConfig, lora
from fxf.models.model import reparametrized
from fxf.models.quantized import stored_as
from fxf.training.fine_tuning import without_frozen_gradient
from helpers import VOCAB_SIZE, loss_and_gradient, random_params, random_tokens, small

WEIGHTS = "*/query,*/value,*/output,*/up"
BATCH = {"inputs": random_tokens((2, 5)), "source": random_tokens((2, 4), seed=1), "source_mask": np.ones((2, 4), bool)}


def plain_model(name="transformer_lm", **changes):
    """Returns a model that needs all parts of its params, even one without weights."""
    model = MODELS[name].make(small(MODELS[name].config, **changes), VOCAB_SIZE)
    features = lambda params, *args, **keys: (params["part"], model.features(params, *args, **keys))[1]  # noqa: E731
    return model._replace(spec={**model.spec, "part": {}}, features=features)


def merged(params, scale):
    """Returns W + scale · A · B for each matrix in float64, its axes merged into rows and columns."""
    base, adapters = flatten(params), flatten(params[LORA])
    plain = {path: np.asarray(x, np.float64) for path, x in base.items() if not path.startswith(LORA)}
    for path in (path.removesuffix("/a") for path in adapters if path.endswith("/a")):
        a, b = (np.asarray(adapters[f"{path}/{name}"], np.float64) for name in "ab")
        rank = a.shape[-1]
        plain[path] = plain[path] + scale * (a.reshape(-1, rank) @ b.reshape(rank, -1)).reshape(plain[path].shape)
    return plain


@pytest.mark.parametrize("name", ["masked_lm", "encoder_decoder"])
def test_an_adapted_weight_is_the_base_and_the_scaled_product_of_its_factors(name):
    base, is_stable = plain_model(name), name == "masked_lm"
    model = lora(base, LoraConfig(rank=3, alpha=5.0, weights=WEIGHTS, rank_stabilized=is_stable))
    scale = 5 / np.sqrt(3) if is_stable else 5 / 3
    params = random_params(model.spec)
    expected = merged(params, scale)
    plain = map_weights(lambda path, _: np.float32(expected[path]), base.spec)
    compute = jax.jit(lambda p, q: (model.to_plain(p), model.apply(p, BATCH), base.apply(q, BATCH)))
    found, logits, of_plain = compute(params, plain)
    assert_close(logits, of_plain)
    found = flatten(found)
    assert found.keys() == {path for path, _ in leaves(base.spec)}
    assert_close(found, expected, operations=6)
    changed = {path for path, value in found.items() if not np.array_equal(value, flatten(params)[path])}
    assert {path.rsplit("/", 1)[-1] for path in changed} == {"query", "value", "output", "up"}


def test_each_expert_of_a_mixture_has_factors_of_its_own():
    model = lora(plain_model(feed_forward="moe"), LoraConfig(rank=2, alpha=3.0, weights="*/experts/*,!*bias"))
    params = random_params(model.spec)
    before, after, factors = flatten(params), flatten(jax.jit(model.to_plain)(params)), flatten(params[LORA])
    paths = {path.rsplit("/", 1)[0] for path in factors}
    assert {path.rsplit("/", 1)[-1] for path in paths} == {"up", "down"}
    for path in paths:
        a, b = (np.asarray(factors[f"{path}/{name}"], np.float64) for name in "ab")
        n_experts, n_in, n_out = before[path].shape
        assert a.shape == (n_experts, n_in, 2) and b.shape == (n_experts, 2, n_out)
        assert_close(after[path], np.float64(before[path]) + 1.5 * np.einsum("EIR,ERO->EIO", a, b), operations=6)


def test_new_adapters_change_no_bit():
    model = lora(plain_model(), LoraConfig(rank=2))
    adapters = jax.jit(lambda key: initialize(model.spec[LORA], key))(jax.random.key(3))
    base = random_params({name: spec for name, spec in model.spec.items() if name != LORA})
    jax.tree.map(np.testing.assert_array_equal, jax.jit(model.to_plain)({**base, LORA: adapters}), base)
    assert all(np.any(value) == path.endswith("/a") for path, value in flatten(adapters).items())


def test_only_adapters_train_and_blocks_alike_stay_one_entry_of_the_table():
    assert lora(base := plain_model(), LoraConfig()) is base
    model = lora(plain_model(n_layers=3), LoraConfig(rank=2))
    rates = {path: weight.rate for path, weight in leaves(model.spec)}
    assert {path for path, rate in rates.items() if rate} == {path for path in rates if path.startswith(LORA)}
    assert len([path for path in rates if path.startswith(LORA)]) == 3 * 2 * 2
    copies = {path: n for path, _, n in without_repeats(model.spec)}
    assert copies["lora/blocks/*/attention/query/a"] == copies["blocks/*/attention/query"] == 3
    one = lora(plain_model(n_layers=3), LoraConfig(rank=2, weights="blocks/1/*/output")).spec[LORA]
    assert [path for path, _ in leaves(one)] == ["blocks/1/attention/output/a", "blocks/1/attention/output/b"]
    assert one["blocks"]["1"]["attention"]["output"]["a"].init is fan_in(2)  # of all heads' numbers


def test_factors_get_products_with_the_weights_gradient_and_the_base_gets_none():
    base = plain_model()
    model = lora(base, LoraConfig(rank=3, alpha=5.0, weights=WEIGHTS))
    params, batch = random_params(model.spec), {**BATCH, "targets": random_tokens((2, 5), seed=2)}
    batch["weights"] = np.ones((2, 5), np.float32)
    trained = without_frozen_gradient(model, "")
    of_base = lambda params: loss_and_gradient(base, model.to_plain(params), batch)  # noqa: E731
    both = jax.jit(lambda params: (loss_and_gradient(trained, params, batch), of_base(params)))
    (loss, _, found), (expected_loss, _, of_plain) = jax.device_get(both(params))
    assert_close(loss, expected_loss)
    found, of_plain, factors = flatten(found), flatten(of_plain), flatten(params[LORA])
    for path, gradient in found.items():
        if not path.startswith(LORA):
            assert not np.any(gradient), path
            continue
        weight, factor = path.removeprefix("lora/").rsplit("/", 1)
        a, b = (np.asarray(factors[f"{weight}/{name}"], np.float64) for name in "ab")
        a, b = a.reshape(-1, 3), b.reshape(3, -1)
        matrix = np.asarray(of_plain[weight], np.float64).reshape(len(a), -1)
        expected = 5 / 3 * (matrix @ b.T if factor == "a" else a.T @ matrix)
        assert_close(gradient, expected.reshape(gradient.shape))


def test_nested_reparametrizations_are_undone_from_the_outside_in():
    base = plain_model()

    def doubled(weight):
        return Weight((2, *weight.shape), ("copies", *weight.axes), weight.init)

    halves = {"both": map_weights(lambda _, weight: doubled(weight), base.spec)}
    sums = reparametrized(base, halves, lambda params: jax.tree.map(lambda x: x[0] + x[1], params["both"]))
    model = reparametrized(sums, {"logs": sums.spec}, lambda params: jax.tree.map(jnp.exp, params["logs"]))
    params = random_params(model.spec)
    expected = jax.tree.map(lambda x: np.exp(np.float64(x)).sum(axis=0), params["logs"]["both"])
    assert_close(jax.jit(model.to_plain)(params), expected, operations=6)
    assert model.plain.spec is base.spec and model.plain.to_plain(params) is params


# The axes that a matrix's products sum over, by its last two names.
SUMMED = {"attention/output": (0, 1), "embedding/table": (1,), "final/kernel": (0,)}
QUANTIZED = {
    "tied": lambda: plain_model(tied_embeddings=True),
    "encoder_decoder": lambda: plain_model("encoder_decoder", positions="learned"),
}
CASES = [("tied", "fp8"), ("encoder_decoder", "int8"), pytest.param("tied", "int8", marks=pytest.mark.thorough)]


def rounded(w, summed, dtype):
    """Returns a matrix rounded to 8 bits, its 8-bit numbers, and the scale of each output, in float64."""
    ends = np.abs(np.asarray(w, np.float64)).max(summed, keepdims=True)
    scale = np.where(ends < 1e-36, 1, ends / {"int8": 127, "fp8": 448}[dtype]).astype(np.float32)
    scaled = w / scale
    narrow = np.rint(scaled) if dtype == "int8" else scaled.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return narrow * scale, narrow, scale


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_matrices_have_8_bits_and_a_scale_for_each_output_and_the_model_computes_with_their_products(name, dtype):
    model = QUANTIZED[name]()
    params = jax.tree.map(np.array, random_params(model.spec))
    for path, w in flatten(params).items():
        if path.endswith("up"):
            w[:, 1], w[:, 2] = 0, 1e-37  # outputs that are, or round to, zero
    new, narrow = stored_as(dtype, model)
    stored = jax.jit(narrow)(params)
    held, expected = flatten(stored), {}
    for path, weight in leaves(model.spec):
        w, short = np.asarray(flatten(params)[path]), "/".join(path.split("/")[-2:])
        expected[path] = w
        if w.ndim == 1 or "bias" in path or "positions" in path:
            np.testing.assert_array_equal(held[path], w)
            continue
        summed = next((axes for end, axes in SUMMED.items() if short.endswith(end)), (0,))
        expected[path], whole, scale = rounded(w, summed, dtype)
        found, factors = held[f"{path}/narrow"], held[f"{path}/scale"]
        assert found.dtype.itemsize == 1
        assert flatten(new.spec)[f"{path}/narrow"].axes[-len(summed) :] == tuple(weight.axes[i] for i in summed)
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.moveaxis(whole, summed, range(-len(summed), 0)))
        assert_close(np.asarray(factors), scale.squeeze(summed), operations=2)
        # Half a step of integers, or of floats with three mantissa bits.
        error = np.abs(expected[path] - w)
        assert (error <= (0.501 * scale if dtype == "int8" else np.maximum(np.abs(w) / 15.9, scale / 1000))).all()
    assert {path: w.shape for path, w in held.items()} == {path: weight.shape for path, weight in leaves(new.spec)}
    plain = map_weights(lambda path, _: np.float32(expected[path]), model.spec)
    prompts, newest = {**BATCH, "lengths": np.array([5, 3], np.int32)}, np.array([2, 4], np.int32)

    def read(model, params):
        return model.apply(params, BATCH), model.step(params, model.prefill(params, prompts, 6), newest)[0]

    assert_close(*jax.jit(lambda stored, plain: (read(new, stored), read(model, plain)))(stored, plain))

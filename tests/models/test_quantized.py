"""Models whose matrices are in 8 bits."""

import jax
import ml_dtypes
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.weights import flatten, leaves, map_weights
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.quantized import stored_as
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import VOCAB_SIZE, random_params, random_tokens, small

# By the last two names of a matrix, the axes that its products sum over.
SUMMED = {"attention/output": (0, 1), "embedding/table": (1,), "final/kernel": (0,)}
MODELS = {
    "tied": lambda: transformer_lm(small(TransformerLMConfig, tied_embeddings=True), VOCAB_SIZE),
    "encoder_decoder": lambda: encoder_decoder(small(EncoderDecoderConfig, positions="learned"), VOCAB_SIZE),
}
BATCH = {"inputs": random_tokens((2, 5)), "source": random_tokens((2, 4), seed=1), "source_mask": np.ones((2, 4), bool)}
CASES = [("tied", "fp8"), ("encoder_decoder", "int8"), pytest.param("tied", "int8", marks=pytest.mark.thorough)]


def without_an_output(w):
    return w.at[:, 1].set(0)


def rounded(w, summed, dtype):
    """Returns a matrix after rounding to 8 bits, the numbers in these, and the scale of each output, in float64."""
    ends = np.abs(np.asarray(w, np.float64)).max(summed, keepdims=True)
    scale = np.where(ends == 0, 1, ends / {"int8": 127, "fp8": 448}[dtype]).astype(np.float32)
    scaled = w / scale
    narrow = np.rint(scaled) if dtype == "int8" else scaled.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return narrow * scale, narrow, scale


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_matrices_have_8_bits_and_a_scale_for_each_output_and_the_model_computes_with_their_products(name, dtype):
    model = MODELS[name]()
    drawn = flatten(random_params(model.spec))
    params = map_weights(
        lambda path, _: without_an_output(drawn[path]) if path.endswith("up") else drawn[path], model.spec
    )
    new, narrow = stored_as(dtype, model)
    stored = jax.jit(narrow)(params)
    held, expected = flatten(stored), {}
    for path, _ in leaves(model.spec):
        w, short = np.asarray(flatten(params)[path]), "/".join(path.split("/")[-2:])
        expected[path] = w
        if w.ndim == 1 or "bias" in path or "positions" in path:
            np.testing.assert_array_equal(held[path], w)
            continue
        summed = next((axes for end, axes in SUMMED.items() if short.endswith(end)), (0,))
        expected[path], whole, scale = rounded(w, summed, dtype)
        found, factors = held[f"{path}/narrow"], held[f"{path}/scale"]
        assert found.dtype.itemsize == 1
        np.testing.assert_array_equal(np.asarray(found, np.float32), np.moveaxis(whole, summed, range(-len(summed), 0)))
        assert_close(np.asarray(factors), scale.squeeze(summed), operations=2)
        # Half a step of the integers; of floats with three bits after the point.
        error = np.abs(expected[path] - w)
        assert (error <= (0.501 * scale if dtype == "int8" else np.maximum(np.abs(w) / 15.9, scale / 1000))).all()
    assert {path: w.shape for path, w in held.items()} == {path: weight.shape for path, weight in leaves(new.spec)}
    plain = jax.device_put(map_weights(lambda path, _: np.float32(expected[path]), model.spec))
    assert_close(jax.jit(new.apply)(stored, BATCH), jax.jit(model.apply)(plain, BATCH))
    prompts = {"tokens": BATCH["inputs"], "lengths": np.array([5, 3], np.int32)}
    prompts |= {} if name == "tied" else {each: BATCH[each] for each in ("source", "source_mask")}
    tokens, _ = Decoder(new, -1)(stored, prompts, 3)
    np.testing.assert_array_equal(tokens, Decoder(model, -1)(plain, prompts, 3)[0])

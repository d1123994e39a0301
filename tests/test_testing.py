"""The assertions of fxf.testing pass for every model here, and fail for the faults that they must find."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf import testing
from fxf.layers.attention import Attention
from fxf.layers.kinds import ATTENTIONS, LAYERS
from fxf.models.quantized import stored_as
from helpers import random_tokens, small_model

BATCH = {"inputs": random_tokens((3, 7))}


def capacity_counts(scores, bias):
    return jax.nn.sigmoid(scores + bias - jnp.log(scores.shape[-1]))


def sees_the_future(scores, bias):
    return jax.nn.softmax(scores + jnp.maximum(bias, -5.0))


def mixes_rows(scores, bias):
    return jax.nn.softmax(scores + bias) * (1 + 1e-3 * jnp.tanh(scores.mean(0, keepdims=True)))


def is_no_number(scores, bias):
    return jax.nn.softmax(scores + bias) * jnp.nan


WRONG = {
    capacity_counts: "with a cache for 7 tokens, 1 tokens in each of 2 hypotheses after prompts of",
    sees_the_future: "with other tokens from position 1 on",
    mixes_rows: "of row 0 alone",
    is_no_number: "differ from those of the full forward pass by nan",
}


@pytest.mark.parametrize(("weigh", "message"), WRONG.items())
def test_a_kind_of_attention_that_is_wrong_is_found(monkeypatch, weigh, message):
    class Wrong(Attention):
        def weigh(self, params, scores_BHTC, bias_BHTC):
            return weigh(scores_BHTC, bias_BHTC)

    monkeypatch.setitem(ATTENTIONS, "wrong", Wrong)
    model, params = small_model(attention="wrong")
    with pytest.raises(AssertionError, match=message):
        testing.assert_consistent(model, params, BATCH)
    with pytest.raises(AssertionError, match="inputs: all rows are the same"):
        testing.assert_consistent(model, params, {"inputs": np.arange(7)[None] % 3})


def test_a_layer_that_reads_across_documents_is_found_unless_it_says_so(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Running:
        d_model: int

        def spec(self):
            return {}

        def apply(self, params, x_RTD, context):
            return jnp.cumsum(x_RTD, 1), context

    monkeypatch.setitem(LAYERS, "running", Running)
    batch = {**BATCH, "documents": np.repeat([[0, 0, 0, 1, 1, 1, 1]], 3, 0)}
    with pytest.raises(AssertionError, match="of document 1 with other tokens"):
        testing.assert_documents_apart(*small_model(blocks="running+feed_forward"), batch)
    Running.by_document = False
    for blocks in ("running+feed_forward", "delta+attention"):
        testing.assert_documents_apart(*small_model(blocks=blocks), batch)


def test_a_cache_that_hypotheses_corrupt_for_each_other_is_found_also_with_weights_of_8_bits():
    plain, params = small_model()
    model, narrow = stored_as("int8", plain)

    def reads_all(cache):
        reads = None if cache.reads_BWC is None else jnp.ones_like(cache.reads_BWC)
        return cache.replace(reads_BWC=reads)

    blind = model._replace(step=lambda p, cache, tokens: model.step(p, reads_all(cache), tokens))
    testing.assert_cached_equals_full(blind, narrow(params), BATCH, capacities=[7], n_hypotheses=1)
    with pytest.raises(AssertionError, match="with a cache for 7 tokens"):
        testing.assert_cached_equals_full(blind, narrow(params), BATCH)


def test_a_mask_may_be_of_integers():
    testing.assert_consistent(*small_model(), {**BATCH, "input_mask": np.tri(7, dtype=int)[[6, 4, 5]]})

"""Speculative decoding against the model alone, and against probabilities of whole answers in float64."""

import itertools

import jax
import numpy as np
import pytest
from scipy.stats import chi2

from fxf.base.errors import UserError
from fxf.layers.cache import Cache
from fxf.models import decoder as decoder_module
from fxf.models.decode_config import DecodeConfig
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.speculative import Speculative
from fxf.models.steps import PromptGroup
from helpers import random_params, random_tokens, refused, scaled, small, small_model, some

V, END, U, N = 4, 1, 3, 20_000


def read(params, cache, tokens):
    """A model's step whose params are logits [V, V] after each token."""
    return params[tokens], cache.replace(lengths=cache.lengths + tokens.size // len(tokens))


TABLE = Model({}, lambda *_: None, lambda *_: None, lambda *read: Cache({}, read[1]["lengths"]), read)
BY_MODEL, BY_DRAFT = np.random.default_rng(0).normal(0, 1.5, (2, V, V)).astype(np.float32)


def distribution(config, logits, answer):
    """Returns the probabilities of the token after the prompt 2 and an answer, by the documented rules."""
    logits = logits.astype(np.float64)
    lower = np.where(logits > 0, logits / config.repetition_penalty, logits * config.repetition_penalty)
    logits = np.where([token in (2, *answer) for token in range(V)], lower, logits)
    if len(answer) < config.min_tokens:
        logits[END] = -np.inf
    p = np.exp(logits / config.temperature)
    p[np.argsort(-p)[config.top_k or V :]] = 0
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= config.top_p * p.sum()]] = 0
    return p / p.sum()


def test_samples_have_the_distribution_of_the_model_alone(monkeypatch):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", N)
    config = DecodeConfig(temperature=0.7, repetition_penalty=1.6, min_tokens=2, top_k=3, top_p=0.9)
    decode = Speculative((TABLE, BY_DRAFT, 2), TABLE, END, config=config)
    prompts = {"tokens": np.full((N, 1), 2, np.int32), "lengths": np.ones(N, np.int32)}
    found = decode(BY_MODEL, prompts, U)[0][:, 0] @ [V * V, V, 1]
    expected = np.zeros((V,) * U)
    for answer in itertools.product(range(V), repeat=U):
        n = answer.index(END) + 1 if END in answer else U
        if set(answer[n:]) <= {END}:
            steps = [distribution(config, BY_MODEL[(2, *answer)[i]], answer[:i])[answer[i]] for i in range(n)]
            expected[answer] = np.prod(steps)
    assert abs(expected.sum() - 1) < 1e-12
    counts, expected = np.bincount(found, minlength=V**U), N * expected.reshape(-1)
    assert (counts[expected == 0] == 0).all()
    rare = expected < 5
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    counts, expected = counts[expected > 0], expected[expected > 0]
    # One in a million sets of N draws exceeds it.
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, len(counts) - 1)
    assert len(counts) > 5


PROMPTS = {"tokens": random_tokens((5, 4)), "lengths": np.array([4, 0, 2, 3, 1], np.int32)}
SOURCE = {"source": random_tokens((5, 3), seed=1), "source_mask": np.tri(3, dtype=bool)[[2, 1, 0, 2, 1]]}
SIZES = {"vocab_size": 7, "max_len": 13, "n_layers": 2}
MODELS = {
    "rotary, groups": lambda: (small_model(**SIZES, d_model=12, positions="rotary", n_kv_heads=1)[0], PROMPTS),
    "latent, learned": lambda: (small_model(**SIZES, attention="latent", positions="learned")[0], PROMPTS),
    "encoder_decoder": lambda: (encoder_decoder(small(EncoderDecoderConfig, max_len=13), 7), {**PROMPTS, **SOURCE}),
}


@some("kind", MODELS, ["latent, learned"])
def test_greedy_answers_are_those_of_the_model_alone_for_any_draft(kind):
    model, prompts = MODELS[kind]()
    draft, _ = small_model(vocab_size=7, max_len=13)
    ends, limits, inputs = (3, 5), np.array([9, 9, 5, 1, 9], np.int32), np.zeros((5, 13), np.int32)
    both, forward = Speculative((draft, {}), model, ends, config=DecodeConfig(min_tokens=1)), jax.jit(model.apply)
    lengths = set()
    for seed in range(4):
        params, both.drafting = (scaled(random_params(each.spec, seed), 2) for each in (model, draft))
        answers = both(params, {**prompts, "limits": limits}, 9)[0][:, 0]
        for row, n in enumerate(prompts["lengths"]):
            inputs[row, 1 : 1 + n], inputs[row, 1 + n : 9 + n] = prompts["tokens"][row, :n], answers[row, :8]
        logits = np.array(forward(params, {**prompts, "inputs": inputs}))
        for row, (n, limit) in enumerate(zip(prompts["lengths"], limits, strict=True)):
            logits[row, n, ends] = -np.inf  # the first token is no end
            best = logits[row, n : n + limit].argmax(1)
            n_new = np.append(np.flatnonzero(np.isin(best, ends)), limit)[0]
            assert answers[row].tolist() == [*best[:n_new], *[3] * (9 - n_new)]
            lengths.add(int(n_new))
    assert len(lengths) > 3


def test_a_draft_equal_to_the_model_is_accepted_whole():
    config = DecodeConfig(temperature=1.0, top_k=2)
    decode = Speculative((TABLE, BY_MODEL, 3), TABLE, V, config=config)
    group = PromptGroup((), {"tokens": np.full((1, 1), 2, np.int32), "lengths": np.ones(1, np.int32)}, 10)
    parts = list(decode.stream(BY_MODEL, group))
    assert [len(tokens) for tokens in parts] == [4, 8, 10]
    assert all(tokens == parts[-1][: len(tokens)] for tokens in parts)


@pytest.mark.parametrize(("case", "message"), refused("drafts"))
def test_a_model_that_cannot_draft_is_refused_in_a_line(case, message):
    keys = ({"vocab_size": 7, "max_len": 13, **case.get(of, {})} for of in ("model", "draft"))
    (model, params), (draft, drafting) = (small_model(**each) for each in keys)
    draft = draft._replace(prefill=None) if case.get("reads_whole") else draft
    with pytest.raises(UserError, match=f"^draft: {message}"):
        decode = Speculative((draft, drafting), model, 3, config=DecodeConfig(**case.get("decode", {})))
        decode(params, PROMPTS, 9)

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import flatten
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.positions import POSITIONS
from fxf.models import decoder as decoder_module
from fxf.models.cast_once import cast_once
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder, prefill
from fxf.models.steps import PromptGroup, by_length
from helpers import VOCAB_SIZE, Newest, marked, random_params, random_tokens, scaled, small_model, some

LENGTH, END, OTHER_END = 23, 1, 0
MODEL, _ = small_model(max_len=LENGTH)  # tests/models/test_searches.py has two blocks
COMPILED = jax.jit(MODEL.apply)
SAMPLED = DecodeConfig(temperature=1.0, top_k=5, top_p=0.9)
DECODINGS = {"sampling": SAMPLED, "beam": DecodeConfig(beam_width=3, early_stop=False)}
UNEQUAL = [4, 0, 6, *[5] * 17]  # one shape, so one compilation


@functools.cache
def params_of(seed):
    return random_params(MODEL.spec, seed)


@functools.cache
def decoder(config=DecodeConfig()):
    return Decoder(MODEL, (END, OTHER_END), config=config)


def prompts_of(lengths, seed=0):
    tokens = random_tokens((len(lengths), max(lengths)), seed=seed)
    return {"tokens": tokens, "lengths": np.array(lengths, np.int32)}


def recompute(seed, first, prompt, limit):
    """Continues greedily by a full forward pass per token, one sequence at a time (as seed 004 tests)."""
    sequence, generated = [first, *prompt], []
    while len(generated) < limit and END not in generated:
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, : len(sequence)] = sequence
        logits = np.asarray(COMPILED(params_of(seed), {"inputs": padded}))[0, len(sequence) - 1]
        sequence.append(int(np.argmax(logits)))
        generated.append(END if sequence[-1] == OTHER_END else sequence[-1])
    return generated


@pytest.mark.parametrize("seed", range(4))
def test_cached_greedy_equals_full_recomputation_token_for_token_up_to_the_last_position(seed):
    prompts = prompts_of([*np.random.default_rng(seed).integers(0, 7, 5), 6], seed)  # one shape, so one compilation
    limits = np.where(np.arange(6) % 2, LENGTH - prompts["lengths"], 3).astype(np.int32)
    prompts |= {"limits": limits, "first": np.array([5, 0, 2, 1, 6, 4], np.int32)}
    tokens, scores = decoder()(params_of(seed), prompts, LENGTH)
    assert (tokens.shape, tokens.dtype, scores) == ((6, 1, LENGTH), np.int32, None)
    for row, n in enumerate(prompts["lengths"]):
        expected = recompute(seed, prompts["first"][row], prompts["tokens"][row, :n], limits[row])
        assert tokens[row, 0].tolist() == expected + [END] * (LENGTH - len(expected))


def test_a_sample_depends_on_the_seed_its_number_and_its_own_prompt_alone_and_a_stream_adds_its_tokens_one_by_one():
    prompts, params = prompts_of(UNEQUAL), params_of(0)
    together, _ = decoder(SAMPLED)(params, prompts, 9)
    seen = set()
    for i in range(len(UNEQUAL)):
        prompt = {name: value[i : i + 1] for name, value in prompts.items()}
        parts, whole = list(decoder(SAMPLED).stream(params, PromptGroup((i,), prompt, 9))), together[i, 0].tolist()
        whole = whole[: whole.index(END)] if END in whole else whole
        assert parts[: len(whole)] == [whole[:n] for n in range(1, len(whole) + 1)]
        assert parts[len(whole) :] == [whole][: 9 - len(whole)]  # the end token adds nothing
        seen.add(len(whole))
    assert len(seen) > 1 and 9 in seen
    for i, n in enumerate(UNEQUAL[:3]):
        rows = np.repeat(prompts["tokens"][i : i + 1], 20, axis=0)
        alone, _ = decoder(SAMPLED)(params, {"tokens": rows, "lengths": np.full(20, n, np.int32)}, 9)
        np.testing.assert_array_equal(alone[i], together[i])  # row i draws from row i's key
    assert len({tuple(row) for row in alone[:, 0].tolist()}) > 10
    counts = np.arange(6)[None] < prompts["lengths"][:, None]
    other = prompts | {"tokens": np.where(counts, prompts["tokens"], (prompts["tokens"] + 1) % VOCAB_SIZE)}
    np.testing.assert_array_equal(decoder(SAMPLED)(params, other, 9)[0], together)
    of_other_seed = Decoder(MODEL, (END, OTHER_END), config=SAMPLED, seed=1, programs=decoder(SAMPLED).programs)
    assert not np.array_equal(of_other_seed(params, prompts, 9)[0], together)
    ((by_place, _),) = decoder(SAMPLED).groups(params, [PromptGroup(range(3, 23), prompts, 9)])
    numbered, _ = decoder(SAMPLED)(params, {**prompts, "numbers": np.arange(3, 23, dtype=np.int32)}, 9)
    np.testing.assert_array_equal(by_place, numbered)
    assert not np.array_equal(by_place, together)


@pytest.mark.parametrize(("n_prompts", "at_once"), [(3, 4), (4, 4), (5, 8), (20, 8)])
def test_a_chunk_fits_the_largest_cache_and_copies_pad_it_to_a_multiple_of_the_devices(n_prompts, at_once, monkeypatch):
    decode, prompts = Decoder(MODEL, END), PromptGroup((), prompts_of([6] * n_prompts), 9).whole()
    monkeypatch.setattr(decode, "layout", SimpleNamespace(parts=4))
    # Eight caches of keys and values of 15 tokens, and of a length.
    monkeypatch.setattr(decoder_module, "LARGEST_CACHE", 8 * 4 * (2 * 15 * 6 + 1))
    assert decode._at_once(params_of(0), prompts, {"max_tokens": 9, "longest": 0}, n_threads=1) == at_once
    assert decode._at_once(params_of(0), prompts, {"max_tokens": 24, "longest": 0}, n_threads=1) == 4


@some("name", DECODINGS, ["beam"])
def test_answers_are_the_same_in_any_chunks_and_in_the_order_of_their_prompts(monkeypatch, name):
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 1)
    prompts = prompts_of([4, 0, 6, 3, 2, 5, 1], 2) | {"limits": np.array([5, 7, 3, 7, 5, 7, 1])}
    monkeypatch.setattr("fxf.models.steps.LONG", 2)
    found = []
    # All at once, or prompts of similar lengths together, each prompt of a beam separately.
    for n_cores, hypotheses, many, lengths in ((1, 320, 64, [6]), (2, 8, 2, [6, 3, 1])):
        monkeypatch.setattr(decoder_module, "n_cores", lambda n=n_cores: n)
        monkeypatch.setattr(decoder_module, "HYPOTHESES", hypotheses)
        monkeypatch.setattr("fxf.models.steps.MANY", many)
        assert [part.prompts["tokens"].shape[1] for _, part in by_length(PromptGroup((), prompts, 7))] == lengths
        found.append(decoder(DECODINGS[name])(params_of(1), prompts, 7))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert_close(found[0][1], found[1][1])


@pytest.mark.parametrize("keys", marked("texts beyond max_len"))
def test_a_text_beyond_max_len_is_continued_as_with_a_window_of_max_len(keys, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "newest", Newest)
    (model, params), room, n_new = small_model(max_len=6, seed=5, **keys), 6, 24
    params, prompts, inputs = scaled(params, 2), prompts_of([6, 0, 4]), np.zeros((3, 7 + n_new), np.int32)
    decode = Decoder(model, VOCAB_SIZE)
    answers = decode(params, prompts, n_new)[0][:, 0]
    for row, n in enumerate(prompts["lengths"]):
        inputs[row, 1 : 1 + n], inputs[row, 1 + n : 1 + n + n_new] = prompts["tokens"][row, :n], answers[row]
    whole, _ = small_model(max_len=99, **{**keys, "window": min(room, keys.get("window", room))})
    best = np.asarray(jax.jit(whole.apply)(params, {"inputs": inputs})).argmax(-1)
    for row, n in enumerate(prompts["lengths"]):
        assert answers[row].tolist() == best[row, n : n + n_new].tolist()
    assert sum(len({*answer[8:]}) for answer in answers.tolist()) > 6
    with pytest.raises(UserError, match="prompt: 7 tokens; expected at most model\\.max_len 6"):
        decode(params, prompts_of([7]), 3)


def test_only_relative_positions_continue_beyond_max_len():
    passing = {kind for kind in POSITIONS if small_model(positions=kind)[0].rolls}
    assert passing == {"none", "rotary", "alibi", "alibi_geometric"}
    assert not small_model(positions="rotary", position_range=100)[0].rolls


def test_a_stream_beyond_max_len_does_not_take_the_step_of_one_within_it():
    model, params = small_model(max_len=6, positions="rotary", dtype="bfloat16", seed=5)
    decode, params = Decoder(model, VOCAB_SIZE), scaled(params, 3)
    for n in (1, 6):  # both caches have six slots
        prompt = {**prompts_of([6]), "lengths": np.array([n], np.int32), "limits": np.array([5], np.int32)}
        assert [*decode.stream(params, PromptGroup((), prompt, 5))][-1] == decode(params, prompt, 5)[0][0, 0].tolist()


N_NEW = 4
ONE = {"tokens": random_tokens((1, 5)), "lengths": np.array([4], np.int32)}
CAST = {
    "tied": {"tied_embeddings": True, "attention_bias": "all"},
    "latent": {"attention": "latent", "positions": "rotary"},
}


@some("name", CAST, ["tied"])
def test_weights_cast_once_give_the_bits_and_tokens_of_a_cast_per_step(name):
    model, params = small_model(dtype="bfloat16", **CAST[name])
    step = jax.jit(model.step)
    prompts = PromptGroup((), ONE, N_NEW).whole()
    cache, last = jax.jit(lambda params: prefill(model, params, prompts, 1, N_NEW))(params)
    cast, rest = cast_once(model.step, params, cache, last.reshape(-1), dtype=model.dtype)
    weights, rest, expected = jax.jit(cast)(params), jax.jit(rest), []
    for _ in range(N_NEW):
        arguments = cache, last.reshape(-1)
        logits, cache = results = step(params, *arguments)
        jax.tree.map(np.testing.assert_array_equal, rest(weights, *arguments), results)
        last = np.asarray(logits).argmax(-1).astype(np.int32)
        expected.append(int(last[0]))
    # Embedding lookups read the table in float32; tied logits read it in bfloat16.
    table, narrow = params["embedding"]["table"], [w.size for w in weights if w.dtype == "bfloat16"]
    matrices = [w.size for path, w in flatten(params).items() if w.ndim > 1 and "bias" not in path]
    assert table.shape in {w.shape for w in weights if w.dtype == "float32"}
    assert sum(narrow) >= sum(matrices) - model.max_len * table.shape[1] - (0 if name == "tied" else table.size)

    decoder = Decoder(model, -1)
    assert decoder(params, ONE, N_NEW)[0].tolist() == [[expected]]
    streams = [decoder.stream(params, PromptGroup((), ONE, N_NEW)) for _ in range(2)]
    assert next(streams[0]) == expected[:1]
    with jax.no_tracing():  # what the first token compiled serves all others
        assert [[*stream][-1] for stream in streams] == [expected] * 2

import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.layers.attention import Attention
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.positions import POSITIONS
from fxf.models import decoder as decoder_module
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.steps import PromptGroup
from helpers import VOCAB_SIZE, examples, random_params, random_tokens, scaled, small_model, table

LENGTH = 23
END = 3


MODEL, _ = small_model(max_len=LENGTH, n_layers=2, scan_blocks=True)
COMPILED = jax.jit(MODEL.apply)


@functools.cache
def model_and_params(seed):
    params = random_params(MODEL.spec, seed)
    return MODEL, params, lambda tokens: np.asarray(COMPILED(params, {"inputs": tokens}))


def recompute(seed, prompt, max_tokens, end_token=END):
    """Greedy continuation by a full forward pass for every token, one sequence at a time (as seed 004 tests)."""
    _, _, apply = model_and_params(seed)
    sequence, generated = [0, *prompt], []
    while len(generated) < max_tokens:
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, : len(sequence)] = sequence
        token = int(np.argmax(apply(padded)[0, len(sequence) - 1]))
        sequence.append(token)
        generated.append(token)
        if token == end_token:
            break
    return generated + [end_token] * (max_tokens - len(generated))


@functools.cache
def decoder(seed, config=DecodeConfig(), key=0):
    """Returns what continues prompts by one sequence each, the best there is."""
    _, params, _ = model_and_params(seed)
    return functools.partial(best, decoder_of(config, key), params)


@functools.cache
def decoder_of(config, key):
    return Decoder(MODEL, END, config=config, seed=key, programs=programs_of(config))


@functools.cache
def programs_of(config):
    """Returns what keeps the programs of a config, which serve all seeds."""
    return {}


def best(decode, params, prompts, max_tokens):
    tokens, scores = decode(params, prompts, max_tokens)
    assert tokens.shape == (len(prompts["tokens"]), 1, max_tokens)
    assert tokens.dtype == np.int32
    assert scores is None
    return tokens[:, 0]


def prompts_of(lengths, seed=0):
    tokens = random_tokens((len(lengths), max(lengths)), seed=seed)
    return {"tokens": tokens, "lengths": np.array(lengths, np.int32)}


def continued(seed, prompts, max_tokens):
    """Returns what `recompute` makes of each prompt."""
    rows = zip(prompts["tokens"], prompts["lengths"], strict=True)
    return [recompute(seed, tokens[:n], max_tokens) for tokens, n in rows]


@examples(8)
@given(
    seed=st.integers(0, 3), lengths=st.lists(st.integers(0, 6), min_size=5, max_size=5), data_seed=st.integers(0, 99)
)
def test_cached_greedy_equals_full_recomputation_token_for_token(seed, lengths, data_seed):
    prompts = prompts_of([*lengths, 6], data_seed)  # one shape, so one compilation
    np.testing.assert_array_equal(decoder(seed)(prompts, 11), continued(seed, prompts, 11))


SAMPLED = DecodeConfig(temperature=1.0, top_k=5, top_p=0.9)
UNEQUAL = [4, 0, 6, *[5] * 17]  # one shape, so one compilation


def test_a_batch_of_unequal_prompts_equals_one_by_one():
    prompts = prompts_of(UNEQUAL)
    decode = decoder(0, SAMPLED)
    together = decode(prompts, 9)
    for i, n in enumerate(prompts["lengths"][:3]):
        rows = np.repeat(prompts["tokens"][i : i + 1], 20, axis=0)  # row i draws from the key of row i
        of_one = decode({"tokens": rows, "lengths": np.full(20, n, np.int32)}, 9)
        np.testing.assert_array_equal(of_one[i], together[i])


def test_padding_of_a_prompt_changes_nothing():
    prompts = prompts_of(UNEQUAL)
    tokens, counts = prompts["tokens"], np.arange(6)[None] < prompts["lengths"][:, None]
    other = prompts | {"tokens": np.where(counts, tokens, (tokens + 1) % VOCAB_SIZE)}
    np.testing.assert_array_equal(decoder(0, SAMPLED)(prompts, 9), decoder(0, SAMPLED)(other, 9))


def test_samples_repeat_with_their_seed_and_change_with_it():
    prompts = {"tokens": np.full((20, 6), 5, np.int32), "lengths": np.full(20, 4, np.int32)}
    first, again, other = (decoder(0, SAMPLED, key)(prompts, 9) for key in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({tuple(row) for row in first.tolist()}) > 10


def row_bytes(width):
    """Returns the bytes of the cache of a prompt of 6 tokens with 9 new ones."""
    n_slots = 6 + 9 * width
    n_bytes = 2 * 2 * 6 * n_slots * 4 + 4 * width  # layers, keys and values, D, slots, bytes; and the lengths
    return n_bytes + ((width + 4) * n_slots if width > 1 else 0)  # which hypothesis reads a slot; the tokens' order


@pytest.mark.parametrize(("sizes", "chunks"), table("chunks of prompts"))
def test_a_chunk_has_as_many_prompts_as_threads_hypotheses_and_cache_allow(monkeypatch, sizes, chunks):
    n_prompts, width, n_cores, cache_rows = sizes.values()
    decode, seen = Decoder(MODEL, END, config=DecodeConfig(beam_width=width)), []
    of_module = {"HYPOTHESES": 8, "WORTHWHILE": 1, "LARGEST_CACHE": int(cache_rows * row_bytes(width))}
    for name, value in {**of_module, "n_cores": lambda: n_cores}.items():
        monkeypatch.setattr(decoder_module, name, value)

    def program(params, prompts, static):
        assert static == {"max_tokens": 9, "longest": 0}

        def run(params, prompts, key):
            seen.append(len(prompts["tokens"]))
            return prompts["tokens"][:, None], None

        return run

    monkeypatch.setattr(decode, "_program", program)
    prompts = prompts_of([6] * n_prompts)
    tokens, _ = decode(model_and_params(0)[1], prompts, 9)
    np.testing.assert_array_equal(tokens[:, 0], prompts["tokens"])
    assert seen == [*map(int, chunks.split())]


@pytest.mark.parametrize(("n_prompts", "at_once"), [(3, 4), (4, 4), (5, 8)])
def test_copies_fill_up_a_chunk_to_what_the_devices_divide(n_prompts, at_once, monkeypatch):
    decode, prompts = Decoder(MODEL, END), PromptGroup((), prompts_of([6] * n_prompts), 9).whole()
    monkeypatch.setattr(decode, "layout", SimpleNamespace(parts=4))
    assert decode._at_once(model_and_params(0)[1], prompts, {"max_tokens": 9, "longest": 0}, n_threads=1) == at_once


@pytest.mark.parametrize("config", [DecodeConfig(temperature=2.0), DecodeConfig(beam_width=2)], ids=str)
def test_answers_are_the_same_in_any_chunks_and_in_the_order_of_their_prompts(monkeypatch, config):
    _, params, _ = model_and_params(1)
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 1)
    prompts = prompts_of([4, 0, 6, 3, 2, 5, 1], 2) | {"limits": np.array([5, 7, 3, 7, 5, 7, 1])}
    decode, found = decoder_of(config, 0), []
    for n_cores, hypotheses in ((1, 320), (2, 8)):
        monkeypatch.setattr(decoder_module, "n_cores", lambda n=n_cores: n)
        monkeypatch.setattr(decoder_module, "HYPOTHESES", hypotheses)
        found.append(decode.groups(params, [PromptGroup((), prompts, 7)]))
    for both in found[1:]:
        for (tokens, scores), (expected, expected_scores) in zip(both, found[0], strict=True):
            np.testing.assert_array_equal(tokens, expected)
            if scores is not None:
                assert_close(scores, expected_scores)


def test_a_program_compiles_once_for_each_shape_whatever_the_params():
    model, params, _ = model_and_params(0)
    decode = Decoder(model, END)
    for scale in (1.0, 0.5):
        for lengths in ([4, 1], [3, 4], [2, 2, 4]):
            decode(scaled(params, scale), prompts_of(lengths), 5)
    assert len(decode.programs) == 2


def test_a_prompt_has_at_most_as_many_new_tokens_as_its_limit():
    _, params, _ = model_and_params(1)
    prompts, decode = prompts_of([4, 1, 0, 2]), decoder_of(DecodeConfig(beam_width=2), 0)
    limits = [2, 7, 7, 2]
    tokens, scores = decode(params, {**prompts, "limits": np.array(limits, np.int32)}, 7)
    for row, limit in enumerate(limits):
        expected, expected_scores = decode(params, prompts, limit)
        np.testing.assert_array_equal(tokens[row, :, :limit], expected[row])
        assert (tokens[row, :, limit:] == END).all()
        assert_close(scores[row], expected_scores[row])


def to_the_last_position(lengths, seed=0):
    prompts = prompts_of(lengths, seed)
    return {**prompts, "limits": LENGTH - prompts["lengths"]}, LENGTH - min(lengths)


def test_a_prompt_beside_a_longer_one_is_continued_to_the_last_position():
    prompts, max_tokens = to_the_last_position([9, 0, 4])
    _, params, _ = model_and_params(0)
    tokens, _ = Decoder(MODEL, -1)(params, prompts, max_tokens)
    for row, limit in enumerate(prompts["limits"].tolist()):
        prompt = prompts["tokens"][row, : prompts["lengths"][row]]
        assert tokens[row, 0].tolist() == recompute(0, prompt, limit, -1) + [-1] * (max_tokens - limit)


def test_a_beam_finds_for_a_prompt_alone_what_it_finds_beside_a_longer_one():
    prompts, max_tokens = to_the_last_position([7, 1])
    _, params, _ = model_and_params(2)
    decode = Decoder(MODEL, 1, config=DecodeConfig(beam_width=3, early_stop=False))
    tokens, scores = decode(params, prompts, max_tokens)
    alone = {"tokens": prompts["tokens"][1:, :1], "lengths": prompts["lengths"][1:]}
    expected, expected_scores = decode(params, alone, max_tokens)
    np.testing.assert_array_equal(tokens[1], expected[0])
    assert_close(scores[1], expected_scores[0])


class Newest(Attention):
    """Attention that reads the order of the keys: each token weighs twice as much as the one before."""

    ordered = True

    def weigh(self, params, scores_BHTC, bias_BHTC):
        rank_BHTC = jnp.cumsum(bias_BHTC > -jnp.inf, -1)
        return jax.nn.softmax(scores_BHTC + bias_BHTC + rank_BHTC * math.log(2))


@pytest.mark.parametrize(
    "keys",
    [
        {"positions": "rotary"},
        {"positions": "alibi", "window": 4},
        {"positions": "none", "attention": "newest"},
    ],
    ids=["rotary", "alibi, window", "no positions, an ordered kind"],
)
def test_a_text_beyond_max_len_is_continued_as_by_a_window_of_max_len(keys, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "newest", Newest)
    room, lengths_B = 6, jnp.array([6, 0, 4])
    tokens_BT = random_tokens((3, 20))
    model, params = small_model(max_len=room, n_layers=2, **keys)
    cache = model.prefill(params, {"inputs": tokens_BT[:, :6], "lengths": lengths_B}, room).replace(rolling=True)
    step, rows_B, found = jax.jit(model.step), jnp.arange(3), []
    for i in range(14):
        logits_BV, cache = step(params, cache, tokens_BT[rows_B, lengths_B + i])
        found.append(logits_BV)
    whole, _ = small_model(max_len=20, n_layers=2, **{**keys, "window": min(room, keys.get("window", room))})
    expected_BTV = whole.apply(params, {"inputs": tokens_BT})
    assert_close(jnp.stack(found, 1), expected_BTV[rows_B[:, None], lengths_B[:, None] + jnp.arange(14)[None]])


def test_only_positions_that_count_distances_pass_max_len():
    passing = {kind for kind in POSITIONS if small_model(positions=kind)[0].rolls}
    assert passing == {"none", "rotary", "alibi", "alibi_geometric"}
    assert not small_model(positions="rotary", position_range=100)[0].rolls


def test_a_search_passes_max_len_and_a_prompt_must_fit():
    model, params = small_model(max_len=6, positions="rotary")
    decode = Decoder(model, VOCAB_SIZE)
    long, short = decode(params, prompts_of([5]), 30)[0], decode(params, prompts_of([5]), 1)[0]
    assert long.shape == (1, 1, 30) and long[0, 0, 0] == short[0, 0, 0]
    with pytest.raises(UserError, match="prompt: 7 tokens; expected at most model\\.max_len 6"):
        decode(params, prompts_of([7]), 3)


def test_the_samples_of_a_prompt_are_drawn_from_its_place_among_the_texts():
    _, params, _ = model_and_params(1)
    prompts, decode = prompts_of([4, 1]), Decoder(MODEL, END, config=DecodeConfig(temperature=2.0))
    ((tokens, _),) = decode.groups(params, [PromptGroup([5, 2], prompts, 9)])
    expected, _ = decode(params, {**prompts, "numbers": np.array([5, 2], np.int32)}, 9)
    np.testing.assert_array_equal(tokens, expected)
    assert (tokens != decode(params, prompts, 9)[0]).any()


def test_a_given_first_token_stands_in_front_of_the_prompt():
    _, _, apply = model_and_params(2)
    prompts = prompts_of([0, 2, 0, 6, 1, 0])
    first = np.array([5, 0, 2, 1, 6, 4], np.int32)
    actual = decoder(2)({**prompts, "first": first}, 11)
    for row, token, tokens, n in zip(actual, first, prompts["tokens"], prompts["lengths"], strict=True):
        padded = np.zeros((1, LENGTH), np.int32)
        padded[0, : n + 1] = [token, *tokens[:n]]
        assert row[0] == np.argmax(apply(padded)[0, n])
    zeros = np.zeros(6, np.int32)
    np.testing.assert_array_equal(decoder(2)({**prompts, "first": zeros}, 11), decoder(2)(prompts, 11))
    assert np.any(actual != decoder(2)(prompts, 11))


RULES = {"min_tokens": 2, "repetition_penalty": 1.5}


@pytest.mark.parametrize("config", [DecodeConfig(**RULES), DecodeConfig(temperature=2.0, top_k=5, **RULES)])
def test_a_stream_adds_the_tokens_one_by_one_that_the_whole_search_finds(config):
    one, seen = Decoder(MODEL, (END, END + 1), config=config), set()
    for seed in range(6):
        _, params, _ = model_and_params(seed)
        group = PromptGroup((5,), {**prompts_of([4], seed=seed), "limits": np.array([7], np.int32)}, 9)
        ((tokens, _),) = one.groups(params, [group])
        whole = tokens[0, 0, :7].tolist()
        whole = whole[: whole.index(END)] if END in whole else whole
        parts = list(one.stream(params, group))
        assert parts[: len(whole)] == [whole[:n] for n in range(1, len(whole) + 1)]
        assert parts[len(whole) :] == [whole][: 7 - len(whole)]  # the end token adds nothing
        seen.add(len(whole))
    assert len(seen) > 1

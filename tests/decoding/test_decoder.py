import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeness import assert_close
from fxf.decoding import decoder as decoder_module
from fxf.decoding.beam import beam_search
from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import Decoder, Placement
from fxf.decoding.sampling import sampling
from fxf.decoding.slots import decode_in_slots
from fxf.decoding.steps import Method, PromptGroup, decode_batch
from helpers import VOCAB_SIZE, examples, random_params, random_tokens, scaled, small_model

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


def test_prompts_of_no_tokens_at_all_are_continued():
    prompts = prompts_of([0, 0])
    assert prompts["tokens"].shape == (2, 0)
    np.testing.assert_array_equal(decoder(0)(prompts, 11), continued(0, prompts, 11))


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


@pytest.mark.thorough  # every time greedy answers are those of each sequence alone
def test_the_first_prompt_of_a_batch_is_continued_as_alone():
    prompts = prompts_of(UNEQUAL)
    alone = {"tokens": prompts["tokens"][:1, :4], "lengths": prompts["lengths"][:1]}
    decode = decoder(0, SAMPLED)
    np.testing.assert_array_equal(decode(alone, 9)[0], decode(prompts, 9)[0])


def test_padding_of_a_prompt_changes_nothing():
    prompts = prompts_of(UNEQUAL)
    tokens, counts = prompts["tokens"], np.arange(6)[None] < prompts["lengths"][:, None]
    other = prompts | {"tokens": np.where(counts, tokens, (tokens + 1) % VOCAB_SIZE)}
    np.testing.assert_array_equal(decoder(0, SAMPLED)(prompts, 9), decoder(0, SAMPLED)(other, 9))


def test_what_follows_an_end_token_is_filled_with_it():
    rows = [decoder(seed)(prompts_of([2, 5, 3, 1, 0, 6], seed), 11) for seed in range(4)]
    ended = [row.tolist() for row in np.concatenate(rows) if END in row]
    assert any(row.index(END) < 10 for row in ended)
    for row in ended:
        assert set(row[row.index(END) :]) == {END}


def test_samples_repeat_with_their_seed_and_change_with_it():
    prompts = {"tokens": np.full((20, 6), 5, np.int32), "lengths": np.full(20, 4, np.int32)}
    first, again, other = (decoder(0, SAMPLED, key)(prompts, 9) for key in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len({tuple(row) for row in first.tolist()}) > 10


@pytest.mark.thorough  # every time test_beam.py searches in slots, and greedy answers of slots are compared here
@pytest.mark.parametrize(("attention", "width"), [("softmax", 2), ("linear", 2), ("softmax", 1)])
def test_prompts_that_take_turns_in_few_slots_are_continued_as_all_at_once(attention, width):
    model, params = small_model(max_len=LENGTH, attention=attention, seed=2, n_layers=2, scan_blocks=True)
    params = scaled(params, 2)
    end = 4
    method = sampling(9, end) if width == 1 else beam_search(9, end, DecodeConfig(beam_width=width))
    prompts = prompts_of([4, 0, 6, 3, 2, 5, 1, 4, 0])

    @functools.partial(jax.jit, static_argnums=1)
    def run(prompts, n_slots):
        return decode_in_slots(model, params, prompts, method, n_slots=n_slots)

    tokens, scores = jax.device_get(jax.jit(lambda prompts: decode_batch(model, params, prompts, method))(prompts))
    ends = [np.append(np.flatnonzero(row == end), 9)[0] for row in tokens[:, 0]]
    assert len(set(ends)) > 3  # at different times, or this would try little
    in_slots, in_slots_scores = run(prompts, 2)
    np.testing.assert_array_equal(in_slots, tokens)
    if width > 1:
        assert_close(in_slots_scores, scores)


def counting(lengths):
    """Returns the method that takes as many steps for each prompt as its length says, and puts out their number."""

    def start(index_B, limit_B, cache):
        return (index_B, jnp.zeros_like(index_B)), cache

    def choose(state, cache, logits_BV):
        return (state[0], state[1] + 1), cache, jnp.zeros(len(logits_BV), jnp.int32)

    def ended(state):
        return state[1] == jnp.asarray(lengths)[state[0]]

    return Method(9, start, choose, ended, lambda state: state[1], room=9)


def test_a_slot_is_taken_by_the_next_prompt_as_soon_as_its_own_has_ended():
    n_steps = []
    model, params = small_model(max_len=LENGTH)
    counted = model._replace(step=lambda *read: (jax.debug.callback(lambda: n_steps.append(1)), model.step(*read))[1])
    lengths = np.array([9, 1, 1, 1, 1, 9, 1, 1, 1])
    prompts = prompts_of([3] * 9)
    found = jax.jit(lambda prompts: decode_in_slots(counted, params, prompts, counting(lengths), n_slots=2))(prompts)
    jax.effects_barrier()
    np.testing.assert_array_equal(found, lengths)
    assert len(n_steps) == 13  # the other long one begins after four steps


def test_the_last_prompt_leaves_the_busy_slots_alone_where_two_prompts_begin_together():
    model, params = small_model(max_len=LENGTH)
    lengths = np.array([9, 1, 9, 9, 3, 9, 9, 9, 9, 9, 9])  # when the last one begins, one slot is free
    prompts = prompts_of([3] * 11)
    found = jax.jit(lambda prompts: decode_in_slots(model, params, prompts, counting(lengths), n_slots=9))(prompts)
    np.testing.assert_array_equal(found, lengths)


def test_prompts_that_do_not_count_change_nothing_of_those_that_do():
    model, params, _ = model_and_params(0)
    prompts = prompts_of([4, 1, 6, 3, 2, 0])
    run = jax.jit(
        lambda prompts, n: decode_in_slots(model, params, prompts, sampling(11, END), n_slots=2, n_prompts=n)[0][:, 0]
    )
    whole = decoder(0)(prompts, 11)
    for n in range(7):
        np.testing.assert_array_equal(np.asarray(run(prompts, np.int32(n)))[:n], whole[:n])


def test_each_prompt_has_samples_of_its_own(monkeypatch):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 1)
    monkeypatch.setattr(decoder_module, "LARGEST_CACHE", 1)  # room for no more than one
    monkeypatch.setattr(decoder_module, "PROMPTS_PER_SLOT", 2)
    model, params = small_model(max_len=LENGTH)
    prompts = {"tokens": np.full((12, 2), 5, np.int32), "lengths": np.full(12, 2, np.int32)}
    rows = best(Decoder(model, -1, config=DecodeConfig(temperature=2.0)), params, prompts, 9)
    assert len({tuple(row) for row in rows.tolist()}) == 12


def slots_and_rows(monkeypatch, n_prompts, config, n_cores=1):
    """Returns how many slots and rows a decoder's program has, and checks that it hands over what comes back."""
    model, params, _ = model_and_params(0)
    monkeypatch.setattr(decoder_module, "n_cores", lambda: n_cores)
    seen = []

    def instead(model, params, prompts, method, *, n_slots, n_prompts, shard_rows):
        seen.append((n_slots, *prompts["tokens"].shape, method.max_tokens))
        tokens = jnp.where(jnp.arange(len(prompts["tokens"]))[:, None] < n_prompts, prompts["tokens"], -1)
        return tokens[:, None], None if config.beam_width == 1 else tokens

    monkeypatch.setattr(decoder_module, "decode_in_slots", instead)
    prompts = prompts_of([*[1] * (n_prompts - 1), 6])
    tokens, _ = Decoder(model, END, config=config)(params, prompts, 9)
    np.testing.assert_array_equal(tokens[:, 0], prompts["tokens"])
    ((n_slots, n_rows, *rest),) = seen
    assert rest == [6, 9]
    return n_slots, n_rows


@pytest.mark.parametrize("width", [1, 2])
def test_there_are_as_many_slots_as_the_cache_may_be_large(monkeypatch, width):
    n_places = 6 + 9 * width  # of a prompt's tokens, and of new ones
    row_bytes = 2 * 2 * 6 * n_places * 4 + 4 * width  # layers, keys and values, D, places, bytes; and the lengths
    row_bytes += (width + 4) * n_places if width > 1 else 0  # what each hypothesis reads, and the tokens' indices
    monkeypatch.setattr(decoder_module, "LARGEST_CACHE", 3 * row_bytes)
    assert slots_and_rows(monkeypatch, 7, DecodeConfig(beam_width=width)) == (3, 48)


@pytest.mark.parametrize(
    ("n_prompts", "width", "expected"),
    [(7, 1, (7, 7)), (11, 1, (8, 128)), (11, 2, (4, 64)), (127, 2, (8, 128)), (128, 2, (16, 256))],
)
def test_many_prompts_have_more_slots_and_similar_numbers_of_them_the_same_program(
    monkeypatch, n_prompts, width, expected
):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 8)
    assert slots_and_rows(monkeypatch, n_prompts, DecodeConfig(beam_width=width)) == expected


@pytest.mark.parametrize(
    ("n_prompts", "width", "n_cores", "expected"),
    [
        (7, 1, 2, (4, 4)),
        (7, 1, 3, (2, 32)),
        (2, 1, 9, (1, 1)),
        (21, 1, 2, (4, 64)),
        (21, 2, 2, (2, 32)),
        (1, 2, 2, (1, 1)),
    ],
)
def test_streams_share_the_prompts_and_the_slots(monkeypatch, n_prompts, width, n_cores, expected):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 8)
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 1)
    assert slots_and_rows(monkeypatch, n_prompts, DecodeConfig(beam_width=width), n_cores) == expected


def test_streams_are_for_enough_hypotheses_of_a_small_model_on_one_device(monkeypatch):
    monkeypatch.setattr(decoder_module, "n_cores", lambda: 3)
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 8)
    _, params, _ = model_and_params(0)
    streams = {n: decoder_module._n_streams(params, n, 2, Placement()) for n in (1, 7, 8, 11, 12, 99)}
    assert streams == {1: 1, 7: 1, 8: 2, 11: 2, 12: 3, 99: 3}
    assert decoder_module._n_streams(params, 99, 2, Placement(n_devices=2)) == 1
    monkeypatch.setattr(decoder_module, "SMALL_WEIGHTS", 4)
    assert decoder_module._n_streams({"scale": np.ones(1, np.float32)}, 99, 2, Placement()) == 3
    assert decoder_module._n_streams({"scale": np.ones(2, np.float32)}, 99, 2, Placement()) == 1


@pytest.mark.parametrize("config", [DecodeConfig(), DecodeConfig(temperature=2.0), DecodeConfig(beam_width=2)], ids=str)
def test_any_number_of_streams_gives_the_same_answers(monkeypatch, config):
    _, params, _ = model_and_params(1)
    prompts, found = prompts_of([4, 0, 6, 3, 2, 5, 1], 2), []
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 1)
    for n_cores in (1, 2, 3):
        monkeypatch.setattr(decoder_module, "n_cores", lambda n=n_cores: n)
        found.append(decoder_of(config, 0)(params, prompts, 11))
    for tokens, scores in found[1:]:
        np.testing.assert_array_equal(tokens, found[0][0])
        if scores is not None:
            assert_close(scores, found[0][1])


def test_prompts_beyond_one_program_are_continued_in_order(monkeypatch):
    monkeypatch.setattr(decoder_module, "LARGEST_CACHE", 1)  # room for no more than one
    monkeypatch.setattr(decoder_module, "PROMPTS_PER_SLOT", 2)
    assert slots_and_rows(monkeypatch, 7, DecodeConfig()) == (1, 4)


def test_a_program_compiles_once_for_each_shape_whatever_the_params(monkeypatch):
    model, params, _ = model_and_params(0)
    entered = []

    @contextlib.contextmanager
    def compiling():
        entered.append("program")
        yield

    monkeypatch.setattr(decoder_module, "decode_in_slots", lambda *_, **__: (jnp.zeros((3, 1, 5), jnp.int32), None))
    decode = Decoder(model, END, compiling=compiling)
    for scale in (1.0, 0.5):
        for lengths in ([4, 1], [3, 4], [2, 2, 4]):
            decode(scaled(params, scale), prompts_of(lengths), 5)
    assert entered == ["program"] * 2


def watched(monkeypatch, decode):
    """Returns the list of rooms in which prompts are decoded from now on, and of how many prompts each time."""
    seen, find = [], decode._found

    def watch(params, groups):
        seen.extend((group.room, len(group.prompts["tokens"])) for group in groups)
        return find(params, groups)

    monkeypatch.setattr(decode, "_found", watch)
    return seen


@pytest.mark.parametrize(
    ("config", "end_token", "seed"),  # of models whose answers differ in length
    [
        pytest.param(DecodeConfig(), 0, 2, marks=pytest.mark.thorough, id="greedy"),
        pytest.param(DecodeConfig(temperature=1.5), 3, 1, id="sampled"),
        pytest.param(DecodeConfig(beam_width=3), 1, 0, id="beam"),
    ],
)
def test_groups_in_less_room_have_the_answers_of_those_in_all_of_it(monkeypatch, config, end_token, seed):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 6 * config.beam_width)
    monkeypatch.setattr(decoder_module, "WORTHWHILE", 1)
    monkeypatch.setattr(decoder_module, "n_cores", lambda: 2)
    monkeypatch.setattr(decoder_module, "OF_THEIR_OWN", 1)
    _, params, _ = model_and_params(seed)
    prompts = [prompts_of([4, 1, 0, 2, 3, 3, 2, 4]), prompts_of([6, 2, 5, 1, 6, 3, 4, 2, 1], 1)]
    prompts[1]["limits"] = np.array([9, 10, 11] * 3, np.int32)
    decode, limits = Decoder(MODEL, end_token, config=config), (9, 13)
    whole = [decode(params, *group) for group in zip(prompts, limits, strict=True)]
    seen = watched(monkeypatch, decode)
    n_tokens, room = (2, 2) if config.beam_width == 1 else (5, 5 + config.beam_width)  # too few for some of them
    groups = zip(prompts, limits, strict=True)
    found = decode.groups(params, [PromptGroup((), *group, n_tokens) for group in groups])
    assert seen[:2] == [(room, 8), (room, 9)]
    rooms, numbers = zip(*seen[2:], strict=True)
    assert rooms == (2 * room, 0)[: len(rooms)]
    assert set(numbers) <= {4, 16}  # some of the 17 prompts, with copies
    for (tokens, scores), (expected, expected_scores) in zip(found, whole, strict=True):
        np.testing.assert_array_equal(tokens, expected)
        if scores is not None:
            assert_close(scores, expected_scores)


@pytest.mark.parametrize(
    "config", [pytest.param(DecodeConfig(), marks=pytest.mark.thorough), DecodeConfig(beam_width=3)]
)
def test_a_room_that_is_too_small_for_most_prompts_is_given_up_after_the_first_ones(monkeypatch, config):
    monkeypatch.setattr(decoder_module, "n_cores", lambda: 1)
    n_steps = []
    counted = MODEL._replace(step=lambda *read: (jax.debug.callback(lambda: n_steps.append(1)), MODEL.step(*read))[1])
    _, params, _ = model_and_params(0)
    decode, prompts = Decoder(counted, -1, config=config), prompts_of([3] * 16)  # no prompt ends before nine tokens
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 2 * config.beam_width)
    expected, expected_scores = decode(params, prompts, 9)
    jax.effects_barrier()
    n_whole = len(n_steps)
    assert n_whole == 9 * 16 / 2
    monkeypatch.setattr(decoder_module, "OF_THEIR_OWN", 1)
    seen = watched(monkeypatch, decode)
    ((tokens, scores),) = decode.groups(params, [PromptGroup((), prompts, 9, 2)])
    jax.effects_barrier()
    np.testing.assert_array_equal(tokens, expected)
    if scores is not None:
        assert_close(scores, expected_scores)
    assert [(room > 0, n) for room, n in seen] == [(True, 16), (False, 16)]
    assert len(n_steps) - 2 * n_whole <= seen[0][0] + 1  # of the first two prompts; the last step finds no place


@pytest.mark.parametrize("config", [DecodeConfig(), DecodeConfig(beam_width=3)], ids=["greedy", "beam"])
def test_a_cache_without_places_has_room_for_all_tokens_and_is_decoded_once(monkeypatch, config):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 1)
    monkeypatch.setattr(decoder_module, "OF_THEIR_OWN", 1)
    model, params = small_model(max_len=LENGTH, attention="linear", positions="none")
    lengths, prompts = [], prompts_of([4, 1, 0, 2, 3])

    def prefill(params, batch, length):
        lengths.append(length - prompts["tokens"].shape[1])
        return model.prefill(params, batch, length)

    decode = Decoder(model._replace(prefill=prefill), -1, config=config)
    expected, _ = decode(params, prompts, 9)
    seen = watched(monkeypatch, decode)
    ((tokens, _),) = decode.groups(params, [PromptGroup((), prompts, 9, 2)])
    np.testing.assert_array_equal(tokens, expected)
    assert [(room > 0, n) for room, n in seen] == [(True, 5)]
    assert set(lengths) == {9}


def test_only_many_prompts_are_decoded_in_less_room(monkeypatch):
    monkeypatch.setattr(decoder_module, "HYPOTHESES", 4)
    prompts = prompts_of([4, 1, 0, 2, 3, 3])
    decode = Decoder(MODEL, END)
    enough = np.ones(6, bool)
    monkeypatch.setattr(decode, "_found", lambda _, groups: [((None, None), enough) for group in groups])
    seen = watched(monkeypatch, decode)
    few = PromptGroup((), prompts_of([4, 1, 0, 2]), 9, 5)
    cases = [
        ([PromptGroup((), prompts, 9, 5)], [(5, 6)]),
        ([PromptGroup((), prompts, 9, 9)], [(0, 6)]),
        ([PromptGroup((), prompts, 9)], [(0, 6)]),
        ([few], [(0, 4)]),
        ([few, few], [(5, 4), (5, 4)]),  # together they are many
        ([PromptGroup((), {**prompts, "positions": np.tile(np.arange(14), (6, 1))}, 9, 5)], [(0, 6)]),
    ]
    for groups, _ in cases:
        decode.groups({}, groups)
    assert seen == [one for _, expected in cases for one in expected]


@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_a_prompt_has_at_most_as_many_new_tokens_as_its_limit(width):
    _, params, _ = model_and_params(1)
    prompts, decode = prompts_of([4, 1, 0, 2]), decoder_of(DecodeConfig(beam_width=width), 0)
    limits = [2, 9, 5, 1]
    tokens, scores = decode(params, {**prompts, "limits": np.array(limits, np.int32)}, 9)
    for row, limit in enumerate(limits):
        expected, expected_scores = decode(params, prompts, limit)
        np.testing.assert_array_equal(tokens[row, :, :limit], expected[row])
        assert (tokens[row, :, limit:] == END).all()
        if width > 1:
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

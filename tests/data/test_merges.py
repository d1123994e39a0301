import itertools
import json
import random

import numpy as np
import pytest

from fxf.data.merges import NO_TOKEN, SHARED, Merges, Segmentations
from fxf.data.tokenizer import EOS, train_tokenizer
from fxf.errors import UserError

RNG = random.Random(0)
WORDS = ["".join(RNG.choices("abc", k=RNG.randint(1, 9))) for _ in range(57)]
TEXTS = [" ".join(RNG.choices(WORDS, k=RNG.randint(1, 7))) for _ in range(43)]
ODD = ["é 漢字 🙂", "<eos> <bos>", "  two  spaces ", "a\nb", "c" * 601, "ab"]
TOKENIZER = train_tokenizer("bpe", 283, TEXTS)


def drawn(skipped, texts=TEXTS, seed=(0, 0)):
    found = Segmentations(TOKENIZER, texts, skipped).drawn(*seed)
    return [found.text(i) for i in range(len(texts))]


def matrix(words, width):
    symbols = [Merges(TOKENIZER).symbols(word) for word in words]
    return np.array([each + [NO_TOKEN] * (width - len(each)) for each in symbols], np.int32)


def by_hand(words, skipped, rng, width):
    """Segments words by algorithm 1 of the paper, on strings, with a draw for each place of a word in each round."""
    merges = [tuple(pair) for pair in json.loads(TOKENIZER.to_json())["model"]["merges"]]
    words, active = [list(word) for word in words], list(range(len(words)))
    while active:
        draws, still = rng.random((len(active), width), np.float32), []
        for word, draws_of_word in zip(active, draws, strict=True):
            tokens = words[word]
            possible = [
                (merges.index(pair), place)
                for place, pair in enumerate(itertools.pairwise(tokens))
                if pair in merges and not draws_of_word[place] < np.float32(skipped)
            ]
            if possible:
                _, place = min(possible)
                tokens[place : place + 2] = [tokens[place] + tokens[place + 1]]
                still.append(word)
        active = still
    return [[TOKENIZER.vocabulary()[token] for token in tokens] for tokens in words]


@pytest.mark.parametrize("skipped", [0.0, 0.2, 0.7])
def test_words_are_segmented_as_by_hand_with_the_same_draws(skipped):
    found_WL = Merges(TOKENIZER).segment(matrix(WORDS, 11), skipped, np.random.default_rng(5))
    found = [row[row != NO_TOKEN].tolist() for row in found_WL]
    assert found == by_hand(WORDS, skipped, np.random.default_rng(5), 11)
    assert len({len(row) for row in found}) > 2


def test_without_skipped_merges_the_tokens_are_the_tokenizers():
    texts = TEXTS + ODD
    assert drawn(0.0, texts) == [[*tokens, EOS] for tokens in TOKENIZER.encode_all(texts)]


@pytest.mark.parametrize("skipped", [0.1, 0.9])
def test_every_segmentation_is_of_the_same_text(skipped):
    lossless = [text for text in TEXTS + ODD if "<" not in text]
    tokens = drawn(skipped, lossless)
    assert [TOKENIZER.decode(each) for each in tokens] == lossless
    assert all(each[-1] == EOS and EOS not in each[:-1] for each in tokens)
    assert tokens != drawn(0.0, lossless)


def test_a_text_without_words_has_the_end_token_alone():
    assert drawn(0.3, ["", "ab", ""])[::2] == [[EOS], [EOS]]


def test_a_share_of_merges_is_skipped_that_is_the_probability():
    tokenizer, n, skipped = train_tokenizer("bpe", 262, ["ab", "ab"]), 4001, 0.3
    merges = Merges(tokenizer)
    assert len(merges) == 1
    symbols_WL = np.array([merges.symbols("ab")] * n, np.int32)
    found_WL = merges.segment(symbols_WL, skipped, np.random.default_rng(0))
    share = (found_WL[:, 1] != NO_TOKEN).mean()
    assert abs(share - skipped) < 4 * (skipped * (1 - skipped) / n) ** 0.5


def test_tokens_are_a_function_of_seed_and_epoch_and_differ_between_these():
    assert drawn(0.3, seed=(0, 2)) == drawn(0.3, seed=(0, 2))
    assert len({str(drawn(0.3, seed=(seed, epoch))) for epoch in (0, 1) for seed in (0, 1)}) == 4


def test_the_occurrences_of_a_word_differ_within_an_epoch():
    texts = ["ab" * 4] * 3 * SHARED**2
    assert len({str(tokens) for tokens in drawn(0.5, texts)}) > 3


def test_a_vocabulary_without_merges_is_refused():
    with pytest.raises(UserError, match=r"^data.bpe_dropout: expected merges to skip; the vocabulary of 261 tokens"):
        Segmentations(train_tokenizer("bpe", 261, TEXTS), TEXTS, 0.1)

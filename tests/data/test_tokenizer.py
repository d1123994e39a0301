import json

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models, trainers

from fxf.data.tokenizer import MASK, SPECIAL_TOKENS, TOKENIZERS, UNK, lines_of, train_tokenizer
from helpers import examples

TEXTS = ["the cat sat on the mat", "the dog ate the cat's hat", "où est le chat ?"] * 3
# White space before line ends, empty lines, indents, and characters that split lines without being \n.
LINES = "A rose,  \nis red.\n\n\n  So are \tyou.  \r no\x0cpage \u2028  x\n" * 40
KINDS = sorted(TOKENIZERS)
BPE = train_tokenizer("bpe", 300, TEXTS)
BYTES = train_tokenizer("byte", 261, [])
ALPHABET = sorted(set("".join([*TEXTS, "a\n\r\t\x00\u2028👩‍👧e\u0301"])))
CHARACTERS = train_tokenizer("character", 100, ALPHABET)


@examples(40)
@given(st.text())
@example("  two  spaces\tand\n\nmore \r\n\x00\x1f\x7f\x85\u2028\ufeff")
@example("👩‍👩‍👧 e\u0301 é \U0010ffff<eos><pad> <unk>")
def test_bytes_bpe_and_known_characters_give_back_every_text(text):
    assert BPE.decode(BPE.encode(text)) == text
    assert BYTES.encode(text) == BYTES.array(text).tolist() == [byte + 5 for byte in text.encode()]
    assert BYTES.decode(BYTES.encode(text)) == text
    known = "".join(character for character in text if character in ALPHABET)
    assert CHARACTERS.decode(CHARACTERS.encode(known)) == known
    assert len(CHARACTERS.encode(known)) == len(known)


@pytest.mark.parametrize("kind", ["character", "word"])
def test_what_training_never_showed_is_unknown(kind):
    tokenizer = train_tokenizer(kind, 100, ["a b c"])
    tokens = tokenizer.encode("a z")
    assert tokens[-1] == UNK and UNK not in tokens[:-1]
    assert tokenizer.decode(tokens) == "a <unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_text_spelled_like_a_special_token_is_text_and_special_tokens_but_unk_and_mask_are_silent(kind):
    text = " ".join(SPECIAL_TOKENS)
    for tokenizer in (train_tokenizer(kind, 300, TEXTS), train_tokenizer(kind, 300, [text, *TEXTS] * 9)):
        tokens = tokenizer.encode(text)
        assert tokens and all(token > MASK or token == UNK for token in tokens)
        assert sorted(json.loads(tokenizer.to_json())["model"]["vocab"].values()) == list(range(tokenizer.vocab_size))
        tokens = tokenizer.encode("the cat")
        assert tokenizer.decode(np.array([0, *tokens, 2, 1, 1])) == "the cat"
        assert all(SPECIAL_TOKENS[kept] in tokenizer.decode([kept, *tokens]) for kept in (UNK, MASK))


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_encoded_as_each_of_its_lines_is(kind):
    tokenizer = train_tokenizer(kind, 300, TEXTS)
    for text in (LINES, LINES[:70], "", "x" * (2**13 + 5) + "  y <eos>\n"):
        expected = [token for line in lines_of(text) for token in tokenizer.encode(line)]
        assert tokenizer.encode(text) == tokenizer.array(text).tolist() == expected
    assert tokenizer.array(LINES).dtype == np.uint16
    assert "".join(lines_of(LINES)) == LINES


@pytest.mark.parametrize("kind", ["character", "word"])
def test_tokens_are_ranked_as_the_library_ranks_them(kind):
    texts = ["banana ß\n", "cab <s> b <s>", "€€ b\U0001f600 aa a\x1cb \u2028b"]
    library = tokenizers.Tokenizer(models.WordLevel())
    library.pre_tokenizer = TOKENIZERS[kind].cut
    library.train_from_iterator(texts, trainers.WordLevelTrainer(show_progress=False))
    expected = sorted(library.get_vocab(), key=library.get_vocab().get)
    for size in (7, 12, 99):
        found = json.loads(train_tokenizer(kind, size, texts).to_json())["model"]["vocab"]
        assert list(found) == [*SPECIAL_TOKENS, *expected][:size]


def test_bpe_joins_frequent_neighbours_up_to_its_size():
    assert train_tokenizer("bpe", 270, TEXTS).vocab_size == 270
    assert len(BPE.encode("the cat")) < len("the cat")
    rare = train_tokenizer("bpe", 300, ["abc xyz"])
    assert rare.vocab_size == 256 + 5
    assert len(rare.encode("abc")) == 3


def test_a_token_is_named_by_what_can_be_seen():
    tokenizer = train_tokenizer("character", 50, [" \n\x1b\u2028é"])
    names = [tokenizer.name(token) for token in tokenizer.encode(" \n\x1b\u2028é")]
    assert names == ["␣", "⏎", r"\x1b", r"\u2028", "é"]
    assert tokenizer.name(UNK) == "<unk>"

"""Tokenizers trained here, and those from files."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from fxf.base.errors import UserError
from fxf.data.text import TextConfig
from fxf.data.tokenizer import MASK, SPECIAL_TOKENS, TOKENIZER_FILE, TOKENIZERS, UNK, lines_of, train_tokenizer
from fxf.data.tokenizer_file import any_tokenizer, read_tokenizer_file
from helpers import examples, refused

TEXTS = ["the cat sat on the mat", "the dog ate the cat's hat", "où est le chat ?"] * 3
# White space before line ends, empty lines, indents, and characters that split lines without being \n.
LINES = "A rose,  \nis red.\n\n\n  So are \tyou.  \r no\x0cpage \u2028  x\n" * 40
KINDS = sorted(TOKENIZERS)
BPE = train_tokenizer("bpe", 300, TEXTS)
BYTES = train_tokenizer("byte", 261, [])
ALPHABET = sorted(set("".join([*TEXTS, "a\n\r\t\x00\u2028👩‍👧e\u0301"])))
CHARACTERS = train_tokenizer("character", 100, ALPHABET)


@examples(20)
@given(st.text())
@example("  two  spaces\tand\n\nmore \r\n\x00\x1f\x7f\x85\u2028\ufeff")
@example("👩‍👩‍👧 e\u0301 é \U0010ffff<eos><pad> <unk>")
def test_bytes_bpe_and_known_characters_decode_to_the_same_text(text):
    assert BPE.decode(BPE.encode(text)) == text
    assert BYTES.encode(text) == BYTES.array(text).tolist() == [byte + 5 for byte in text.encode()]
    assert BYTES.decode(BYTES.encode(text)) == text
    known = "".join(character for character in text if character in ALPHABET)
    assert CHARACTERS.decode(CHARACTERS.encode(known)) == known
    assert len(CHARACTERS.encode(known)) == len(known)


@pytest.mark.parametrize("kind", ["character", "word"])
def test_characters_outside_of_training_are_unknown(kind):
    tokenizer = train_tokenizer(kind, 100, ["a b c"])
    tokens = tokenizer.encode("a z")
    assert tokens[-1] == UNK and UNK not in tokens[:-1]
    assert tokenizer.decode(tokens) == "a <unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_text_spelled_like_a_special_token_is_text_and_only_unk_and_mask_are_shown(kind):
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
    long = "abc " * 3000 + "x" * 9000 + "\n"  # cut before a space, where there is one
    assert list(map(len, lines_of(long))) == [8191, 3808, 8192, 810]


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
    assert len(train_tokenizer("bpe", 262, ["abab", "c"]).encode("ab")) == 1  # a pair that occurs twice is a token


def test_a_tokens_name_has_only_visible_characters():
    tokenizer = train_tokenizer("character", 50, [" \n\x1b\u2028é"])
    assert list(map(tokenizer.name, tokenizer.encode(" \n\x1b\u2028é"))) == ["␣", "⏎", r"\x1b", r"\u2028", "é"]
    assert tokenizer.name(UNK) == "<unk>"


TEXT = "a cab <s> bad\nface"


def byte_level(*special, space=False):
    """Returns a tokenizer like GPT-2's: bytes and a few merges, then the special tokens."""
    vocabulary = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"ab": 256}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=space), decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    return backend


def words(vocabulary, special=("</s>",), cut=pre_tokenizers.WhitespaceSplit):
    """Returns a tokenizer of words with these ids."""
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = cut()
    backend.add_special_tokens(list(special))
    return backend


def metaspace():
    """Returns a tokenizer like Llama 2's: words that begin with ▁, and an unknown token."""
    pieces = ["<unk>", "<s>", "</s>", "▁a", "▁cab", "▁bad", "▁"]
    backend = words({piece: i for i, piece in enumerate(pieces)}, pieces[:3], pre_tokenizers.Metaspace)
    backend.decoder = decoders.Metaspace()
    return backend


def letters(dropout=None):
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=dropout))
    backend.add_special_tokens(["</s>"])
    return backend


@pytest.fixture
def saved(tmp_path):
    def save(backend):
        backend.enable_truncation(3)  # as files of other libraries may have them
        backend.enable_padding(length=99)
        backend.save(str(tmp_path / "tokenizer.json"))
        backend.no_truncation()
        backend.no_padding()
        return read_tokenizer_file(tmp_path / "tokenizer.json")

    return save


def test_the_tokens_of_lines_are_those_of_the_whole_text_each_in_the_line_where_it_begins(saved):
    text = "a cab\n\n\nbad é\n"
    of_lines = byte_level("</s>")
    vocabulary = {**of_lines.get_vocab(with_added_tokens=False), "ĊĊ": 257}
    of_lines.model = models.BPE(vocabulary, [("Ċ", "Ċ")])
    for backend in (byte_level("</s>"), metaspace(), of_lines):
        tokenizer, encoding = saved(backend), backend.encode(text, add_special_tokens=False)
        tokens, lines = tokenizer.by_lines(text.splitlines(keepends=True))
        assert tokens.tolist() == tokenizer.encode(text) == encoding.ids
        assert lines.tolist() == [text[:start].count("\n") for start, _ in encoding.offsets]


def test_tokens_keep_their_numbers_and_the_usual_names_begin_and_end_a_document(saved):
    tokenizer = saved(byte_level("<|endoftext|>", "<|user|>"))
    assert tokenizer.special[:3] == (257, 257, 257) and tokenizer.vocab_size == 259
    assert tokenizer.encode("cab") == byte_level().encode("cab").ids and tokenizer.name(257) == "<|endoftext|>"
    for each in (tokenizer, saved(byte_level("<|endoftext|>", "<|user|>", space=True))):
        assert each.decode([257, *each.encode(TEXT), 258]) == f"{TEXT}<|user|>"
        assert each.name(each.encode(" ")[0]) == "␣"
    assert saved(byte_level("<|end_of_text|>", "<|begin_of_text|>")).special[:3] == (258, 257, 257)
    assert saved(metaspace()).special == (1, 2, 2, 0, 0)
    of_deepseek = byte_level("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>")
    assert saved(of_deepseek).special[:3] == (258, 259, 257)
    assert saved(byte_level("<eos>", "<pad>", "<bos>")).special[:3] == (259, 258, 257)


@pytest.mark.parametrize("backend", [byte_level("<|endoftext|>", "<s>"), metaspace()], ids=["bytes", "words"])
def test_text_never_becomes_a_special_token_and_none_is_added(backend, saved):
    tokenizer = saved(backend)
    tokens = tokenizer.encode("a <s> <|endoftext|> </s>")
    assert not {tokenizer.special.bos, tokenizer.special.eos} & {*tokens}
    assert tokenizer.array(TEXT).tolist() == tokenizer.encode(TEXT)


def test_the_run_folder_comes_first_and_keeps_the_file(tmp_path, saved):
    text = "one two <eos> où 👩 three " * 40
    learned = {kind: train_tokenizer(kind, 300, [text]) for kind in (*KINDS, "word")}
    for name, kept in {"absent.json": saved(byte_level("<|endoftext|>")), **learned}.items():
        (tmp_path / TOKENIZER_FILE).write_text(kept.to_json(), encoding="utf-8")
        again = any_tokenizer(tmp_path, TextConfig(tokenizer=name), list)
        assert (again.kind, again.special, again.vocab_size) == (kept.kind, kept.special, kept.vocab_size)
        assert again.to_json() == kept.to_json() and again.encode(text) == kept.encode(text)
        assert again.decode(again.encode(text)) == kept.decode(kept.encode(text))
    with pytest.raises(UserError, match=r"data.tokenizer: expected 'word', that of .*; got 'bpe'"):
        any_tokenizer(tmp_path, TextConfig(tokenizer="bpe"), list)


def test_text_without_a_token_is_refused_if_there_is_no_unknown_token(saved):
    unigram = tokenizers.Tokenizer(models.Unigram([("a", -1.0), ("b", -2.0)], None))
    in_words = words({"a": 0, "b": 1})
    cases = (in_words, "a zoo b"), (letters(), "ab zoo"), (letters(), "ab ab"), (unigram, "ab zoo")
    for backend, text in cases:  # the third has no token for a space
        backend.add_special_tokens(["</s>"])
        for read in (saved(backend).array, saved(backend).unknown):
            with pytest.raises(UserError, match=f"data.tokenizer: the file has no token for some of '{text}'"):
                read(text)


def test_the_same_text_always_has_the_same_tokens_and_the_file_stays_as_it_was(saved):
    tokenizer = saved(letters(dropout=0.5))
    assert {tuple(tokenizer.encode("abababab")) for _ in range(20)} == {(2, 2, 2, 2)}
    assert tokenizer.to_json() == letters(dropout=0.5).to_str()


def test_ids_that_a_file_leaves_out_are_tokens_too(saved):
    tokenizer = saved(words({"<unk>": 3, "a": 0, "b": 70_000}))
    assert tokenizer.vocab_size == 70_001 and tokenizer.array("a b").tolist() == [0, 70_000]


@pytest.mark.parametrize(("changes", "message"), refused("tokenizer files"))
def test_a_file_that_is_damaged_or_of_another_library_is_one_line(changes, message, tmp_path):
    record, path = json.loads(train_tokenizer("bpe", 300, [TEXT]).to_json()), tmp_path / "tokenizer.json"
    record["model"] |= changes.get("model", {})
    record |= {name: changes[name] for name in ("pre_tokenizer", "added_tokens") if name in changes}
    path.write_bytes(changes.get("content", json.dumps(record).encode())[: changes.get("cut")])
    with pytest.raises(UserError, match=f"tokenizer.json: {message}") as caught:
        read_tokenizer_file(path)
    assert "\n" not in str(caught.value)


def test_a_continuation_begins_where_the_text_ends_by_its_tokens():
    """Counting the text's characters would be wrong: a tokenizer of words keeps one space between words."""
    tokenizer = train_tokenizer("word", 9, ["the cat sees the dog"])
    assert tokenizer.continuation("the   cat", tokenizer.encode("sees")) == " sees"

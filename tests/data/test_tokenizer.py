import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models, trainers

from fxf.base.errors import UserError
from fxf.data.tokenizer import (
    MASK,
    SPECIAL_TOKENS,
    TOKENIZERS,
    UNK,
    lines_of,
    read_tokenizer,
    tokenizer_from_json,
    train_tokenizer,
)
from fxf.data.tokenizer_file import any_tokenizer
from helpers import examples, refused

TEXTS = ["the cat sat on the mat", "the dog ate the cat's hat", "où est le chat ?"] * 3
# White space before line ends, empty lines, indents, and characters that split lines without being \n.
LINES = "A rose,  \nis red.\n\n\n  So are \tyou.  \r no\x0cpage \u2028  x\n" * 40
KINDS = sorted(TOKENIZERS)
BPE = train_tokenizer("bpe", 300, TEXTS)
BYTES = train_tokenizer("byte", 261, [])
ALPHABET = sorted(set("".join([*TEXTS, "a\n\r\t\x00\u2028👩‍👧e\u0301"])))
CHARACTERS = train_tokenizer("character", 100, ALPHABET)

MANY = ["the cat sat on the mat, the dog ate the hat"] * 2000
TRAIN_AND_FORK = f"""
import os
from fxf.data.tokenizer import train_tokenizer
first = train_tokenizer("bpe", 400, {MANY[:1]} * 2000).to_json()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    print(first, end="")
else:
    os._exit(train_tokenizer("bpe", 400, {MANY[:1]} * 2000).to_json() != first)
"""


@examples(50)
@given(st.text())
@example("  two  spaces\tand\n\nmore \r\n")
@example("\x00\x1f\x7f\x85\u2028\ufeff")
@example("👩‍👩‍👧 e\u0301 é \U0010ffff")
@example("<eos><pad> <unk>")
def test_bytes_and_bpe_give_back_every_text(text):
    assert BPE.decode(BPE.encode(text)) == text
    assert BYTES.encode(text) == BYTES.array(text).tolist() == [byte + 5 for byte in text.encode()]
    assert BYTES.decode(BYTES.encode(text)) == text


@examples(50)
@given(st.text(ALPHABET))
@example("\u2028👩‍👧\r\n\x00e\u0301a")
def test_characters_give_back_every_text_of_known_characters(text):
    tokens = CHARACTERS.encode(text)
    assert len(tokens) == len(text)
    assert CHARACTERS.decode(tokens) == text


@pytest.mark.parametrize("kind", ["character", "word"])
def test_what_training_never_showed_is_unknown(kind):
    tokenizer = train_tokenizer(kind, 100, ["a b c"])
    tokens = tokenizer.encode("a z")
    assert tokens[-1] == UNK
    assert UNK not in tokens[:-1]
    assert tokenizer.decode(tokens) == "a <unk>"


@pytest.mark.parametrize("kind", KINDS)
def test_text_spelled_like_a_special_token_is_text(kind):
    text = " ".join(SPECIAL_TOKENS)
    for tokenizer in (train_tokenizer(kind, 300, TEXTS), train_tokenizer(kind, 300, [text, *TEXTS] * 9)):
        tokens = tokenizer.encode(text)
        assert tokens
        assert all(token > MASK or token == UNK for token in tokens)
        assert sorted(json.loads(tokenizer.to_json())["model"]["vocab"].values()) == list(range(tokenizer.vocab_size))


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_drops_special_tokens_other_than_unk_and_mask(kind):
    tokenizer = train_tokenizer(kind, 300, TEXTS)
    tokens = tokenizer.encode("the cat")
    assert tokenizer.decode(np.array([0, *tokens, 2, 1, 1])) == "the cat"
    for kept in (UNK, MASK):
        assert SPECIAL_TOKENS[kept] in tokenizer.decode([kept, *tokens])


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


def test_processes_agree_and_fork_without_a_warning():
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    command = [sys.executable, "-c", TRAIN_AND_FORK]
    run = subprocess.run(command, env={**environment, "PYTHONHASHSEED": "1"}, capture_output=True, check=True)
    assert (run.stdout.decode(), run.stderr) == (train_tokenizer("bpe", 400, MANY).to_json(), b"")


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_is_the_same_after_its_file(kind, tmp_path):
    tokenizer = train_tokenizer(kind, 300, TEXTS)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    again = read_tokenizer(path)
    assert again.to_json() == tokenizer.to_json()
    assert again.vocab_size == tokenizer.vocab_size
    text = "the cat's <eos> où 👩"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match=r"tokenizer.json: No such file"):
        read_tokenizer(path)
    good = BPE.to_json().encode()
    swapped = good.replace(b'"<bos>":0', b'"<eos>":0').replace(b'"<eos>":2', b'"<bos>":2')
    for content in (b"", b"{}", b"null", good[:-9], good.replace(b"[", b"[3,", 1), b"\xff" + good, swapped):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"tokenizer.json: .+") as caught:
            read_tokenizer(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="there: not a tokenizer file"):
        tokenizer_from_json("[]", "there")


def test_a_token_is_named_by_what_can_be_seen():
    tokenizer = train_tokenizer("character", 50, [" \n\x1b\u2028é"])
    names = [tokenizer.name(token) for token in tokenizer.encode(" \n\x1b\u2028é")]
    assert names == ["␣", "⏎", r"\x1b", r"\u2028", "é"]
    assert tokenizer.name(UNK) == "<unk>"


@pytest.mark.parametrize(("change", "message"), refused("tokenizer files"))
def test_a_file_of_another_library_is_refused(change, message):
    ((key, value),) = change.items()
    record = json.loads(BPE.to_json())
    if key == "vocab":
        record["model"]["vocab"] |= value
    else:
        record[key] = {**record["model"], **value} if key == "model" else value
    with pytest.raises(UserError, match=f"^there: .*{message}") as caught:
        tokenizer_from_json(json.dumps(record), "there")
    assert "\n" not in str(caught.value)


def test_the_tokenizer_of_a_folder_is_the_one_that_the_config_names(tmp_path):
    (tmp_path / "tokenizer.json").write_text(BPE.to_json())
    assert any_tokenizer(tmp_path, "bpe", 300, list).to_json() == BPE.to_json()
    with pytest.raises(UserError, match=r"tokenizer.json: expected data.tokenizer 'word', got 'bpe'"):
        any_tokenizer(tmp_path, "word", 300, list)

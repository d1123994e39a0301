import random

import numpy as np
import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from fxf.data import encoding
from fxf.data.documents import DocumentsConfig
from fxf.data.encoding import Encoder
from fxf.data.lines import lines_of
from fxf.data.text import TextConfig
from fxf.data.tokenizer import MASK, TOKENIZERS, Special, Tokenizer, train_tokenizer
from fxf.tasks.language_model import LanguageModelConfig, language_model
from fxf.tasks.masking import Masking, MaskingConfig
from fxf.tasks.task import RunInfo
from fxf.training.step import TrainConfig

# White space before line ends, empty lines, indents, and characters that split lines without being \n.
TEXT = "A rose,  \nis red.\n\n\n  So are \tyou.  \r no\x0cpage \u2028  x\n" * 40


def words(rng, n):
    return "".join(rng.choice(["ab", "abc ", "  ", "\n", "b", "é", " a", "\n\n", "ca"]) for _ in range(n))


def prefixed(vocabulary):
    """Returns a tokenizer like Llama 2's: a space in front of the text, and no cut between words."""
    merges = [("a", "b"), ("▁", "ab"), ("▁", "a"), ("▁", "▁"), ("▁▁", "▁▁")]
    every = [*vocabulary, *("".join(pair) for pair in merges)]
    backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(every)}, merges, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Replace("▁", " ")
    return backend


def unigram(vocabulary):
    pieces = [(token, -5.0) for token in vocabulary] + [("▁ab", -3.0), ("▁a", -4.0), ("abc", -2.0), ("bc", -2.5)]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, 0))
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    return backend


def word_piece(vocabulary):
    every = [*vocabulary, *(f"##{token}" for token in vocabulary), "ab"]
    backend = tokenizers.Tokenizer(models.WordPiece({token: i for i, token in enumerate(every)}, unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return backend


def bytes_with_a_space(vocabulary):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate([*alphabet, "ab"])}, [("a", "b")]))
    split = pre_tokenizers.Split(Regex(r"\s*[\r\n]+|\s+(?!\S)|\s?\S+|\s+"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    return backend


@pytest.mark.parametrize("make", [prefixed, unigram, word_piece, bytes_with_a_space])
@pytest.mark.parametrize("text", [words(random.Random(0), 700), "ab" + " " * 900 + "c", "ab" * 500, "\n" * 900 + "a"])
def test_the_windows_in_which_a_long_text_is_read_change_no_token(make, text, monkeypatch):
    monkeypatch.setattr(encoding, "AT_ONCE", 101)
    monkeypatch.setattr(encoding, "MARGIN", 16)
    tokenizer = Tokenizer("file", make(["<unk>", "▁", "a", "b", "c", "é", "\n"]), Special(1, 1, 1, 0, 0))
    read = []
    placed = encoding.placed
    monkeypatch.setattr(encoding, "placed", lambda *read_now: (read.append(read_now), placed(*read_now))[1])
    assert Encoder(tokenizer).encode(text).tolist() == tokenizer.encode(text)
    assert read


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_text_has_the_same_tokens_as_a_prompt_and_in_training(kind):
    tokenizer = train_tokenizer(kind, 300, lines_of(TEXT))
    for text in (TEXT, TEXT[:70], "", "x" * (2**13 + 5) + "  y"):
        np.testing.assert_array_equal(Encoder(tokenizer).encode(text), tokenizer.encode(text))


def asked(task, text):
    """Returns the tokens of a prompt, without the one in front."""
    (group,) = task.to_prompts([text], 1, 10**6)
    return group.prompts["tokens"][0, : group.prompts["lengths"][0]].tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_prompt_of_a_language_model_has_the_tokens_of_the_training_text(kind, tmp_path):
    (tmp_path / "text").write_bytes((TEXT * 4).replace("\n", "\r\n").encode())
    data = DocumentsConfig(path=str(tmp_path / "text"), tokenizer=kind, vocab_size=300)
    task = language_model(LanguageModelConfig(length=8), RunInfo(TrainConfig(batch_size=2), data))
    text = task.text.parts().train
    assert asked(task, text.replace("\n", "\r\n")) == task.tokens("train").tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_prompt_of_a_model_of_documents_has_the_tokens_of_its_document(kind, tmp_path):
    (tmp_path / "texts").mkdir()
    texts = [TEXT[: 200 + 9 * n] for n in range(9)]
    for n, text in enumerate(texts):
        (tmp_path / f"texts/{n}").write_bytes(text.replace("\n", "\r\n").encode())
    data = DocumentsConfig(path=str(tmp_path / "texts"), format="files", tokenizer=kind, vocab_size=300, validation=0.4)
    task = language_model(LanguageModelConfig(length=8), RunInfo(TrainConfig(batch_size=2), data))
    end, found = task.end_token, []
    for part in ("train", "validation"):
        tokens = task.tokens(part)
        found += [row[:-1].tolist() for row in np.split(tokens, np.flatnonzero(tokens == end) + 1)[:-1]]
    assert sorted(found) == sorted(asked(task, text) for text in texts)


def test_a_prompt_with_blanks_has_the_tokens_of_the_training_text(tmp_path):
    (tmp_path / "a").write_text(TEXT)
    data = TextConfig(path=str(tmp_path / "a"), tokenizer="bpe", vocab_size=300)
    task = Masking(MaskingConfig(length=64), RunInfo(TrainConfig(batch_size=2), data))
    found = task.encode("A rose,  \nis red.\r\n\r\n\r\n  So<mask>")
    n = found.index(MASK)
    assert found[1:n] == task.text.tokens("train")[: n - 1].tolist()

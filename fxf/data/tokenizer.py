"""Text to tokens and back, by character, word or subword (seed 001, "Tokenization"), with Hugging Face `tokenizers`.

Tokens 0 … 4 are special. Text never becomes one of them, except that text outside the vocabulary becomes <unk>.
"""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from fxf.config import one_of
from fxf.data.lines import lines_of
from fxf.data.tokenizer_kinds import (  # noqa: F401  the names of special tokens are imported from here
    BOS,
    EOS,
    MASK,
    MAX_PIECE,
    NO_TOKEN,
    PAD,
    SPECIAL_TOKENS,
    TOKENIZERS,
    UNK,
    Special,
    as_in_a_run,
    json_of,
)
from fxf.errors import LibraryPanicError, UserError, one_line, panics_as_errors
from fxf.files import read_file

TOKENIZER_FILE = "tokenizer.json"  # in a run folder
VOCAB_SIZE = 8000  # by default

# The library's threads do not survive a fork; with threads, some versions warn or hang.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer:
    """A trained vocabulary."""

    def __init__(
        self, kind: str, backend: tokenizers.Tokenizer, special: Special = Special(), of_file: str = ""
    ) -> None:
        """Keeps the library's tokenizer. `of_file` is its file's text, if it is no longer what the file says."""
        self.kind, self.special = kind, special
        self._backend, self._of_file = backend, of_file
        self.vocab_size: int = max(backend.get_vocab().values()) + 1  # a file may leave numbers out

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of `text`, without special tokens around them. A tokenizer of fxf reads it line by line.

        Raises:
          UserError: `text` has half of a surrogate pair, which is no character, or the vocabulary has no token for it.
        """
        # The library gives a word that is spelled like a special token that token's number.
        reserved, unk = self.special.reserved, self.special.unk
        pieces = lines_of(text) if self.kind in TOKENIZERS else [text]
        return [token if token >= reserved else unk for piece in pieces for token in self._encoding(piece).ids]

    def encode_pieces(self, pieces: Sequence[str]) -> np.ndarray:
        """Returns `encode(piece)` of all pieces, one after the other, int64 [N]. It is faster than `encode_all`."""
        try:
            with panics_as_errors():
                encodings = self._backend.encode_batch_fast(list(pieces), add_special_tokens=False)
        except Exception:  # the library raises no narrower type
            return np.array(list(itertools.chain.from_iterable(self.encode_all(pieces))), np.int64)  # which one is it?
        tokens_N = np.fromiter(itertools.chain.from_iterable(each.ids for each in encodings), np.int64)
        return tokens_N if not self.special.reserved else np.where(tokens_N < self.special.reserved, UNK, tokens_N)

    def _encoding(self, text: str) -> tokenizers.Encoding:
        try:
            with panics_as_errors():
                return self._backend.encode(text, add_special_tokens=False)
        except TypeError:
            raise UserError(f"expected Unicode text, got {text!r}") from None
        except LibraryPanicError as error:
            raise UserError(f"the tokenizer cannot read a text of {len(text)} characters: {error}") from None
        except Exception:  # of a tokenizer file; the library raises no narrower type
            for word in text.split():
                if word != text:
                    self._encoding(word)  # raises an error that names the word
            what = f"no token for {text[:40]!r}, and none that stands for unknown text"
            raise UserError(f"data.tokenizer: the file has {what}") from None

    def encode_all(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns `encode(text)` for each text."""
        return [self.encode(text) for text in texts]

    def unknown(self, text: str) -> list[str]:
        """Returns the distinct characters or words of a text that the vocabulary lacks, in order."""
        encoding = self._encoding(text)
        pairs, unknown = (
            zip(encoding.ids, encoding.offsets, strict=True),
            {self.special.unk, *range(self.special.reserved)},
        )
        return list(dict.fromkeys(text[start:end] for token, (start, end) in pairs if token in unknown))

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of `tokens`, without <bos>, <pad> and <eos>."""
        silent = (self.special.bos, self.special.pad, self.special.eos)
        return self._backend.decode([t for t in tokens if t not in silent], skip_special_tokens=False)

    def continuation(self, text: str, tokens: Sequence[int]) -> str:
        """Returns what `tokens` add to a text. Some tokenizers lose the space at the start of a text alone."""
        read = self.encode(text)
        return self.decode([*read, *tokens])[len(self.decode(read)) :]

    def name(self, token: int) -> str:
        """Returns the name of a special token, or a token's text with white space and control characters visible."""
        if token in {*self.special[:4], *range(self.special.reserved)}:
            return self._backend.id_to_token(token) or ""
        return one_line(self._backend.decode([token], skip_special_tokens=False).replace(" ", "␣").replace("\n", "⏎"))

    def vocabulary(self) -> dict[str, int]:
        """Returns every token by its text, as the library writes it."""
        return self._backend.get_vocab()

    def to_json(self) -> str:
        """Returns the text of a file that `tokenizer_from_json` reads."""
        return self._of_file or self._backend.to_str()


def train_tokenizer(kind: str, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
    """Learns a vocabulary of at most `vocab_size` tokens; the same texts give the same vocabulary.

    "character" and "word" keep the most frequent characters or words; ties go in alphabetical order. "bpe" starts from
    the 256 bytes and merges the most frequent pair of neighbours while any occurs twice. It has tokens for every text,
    and `decode(encode(text)) == text`. Words have no white space; `decode` puts one space between two. Source: seed
    001, "Tokenization"; for bytes, Radford et al., 2019 (GPT-2).

    Raises:
      UserError: `kind` is unknown, or `vocab_size` is too small for it.
    """
    level = TOKENIZERS[one_of(kind, TOKENIZERS, "data.tokenizer")]
    minimum = len(SPECIAL_TOKENS) + level.minimum
    if vocab_size < minimum:
        raise UserError(f"data.vocab_size: tokenizer '{kind}' needs at least {minimum}, got {vocab_size}")
    learned, merges = _characters(texts) if kind == "character" else _learned(kind, vocab_size, texts)
    tokens = [*SPECIAL_TOKENS, *(token for token in learned if token not in SPECIAL_TOKENS)][:vocab_size]
    return Tokenizer(kind, _backend(kind, {token: i for i, token in enumerate(tokens)}, merges))


def _characters(texts: Iterable[str]) -> tuple[list[str], list[Any]]:
    """Returns the characters, the most frequent first, and no merges. The library takes ten times as long."""
    counts = Counter(itertools.chain.from_iterable(texts))
    return sorted(counts, key=lambda character: (-counts[character], character)), []


def _learned(kind: str, vocab_size: int, texts: Iterable[str]) -> tuple[Iterable[str], list[Any]]:
    """Returns the tokens that the library learns, and their merges."""
    # The library would look for special tokens in text, so it trains without them, and they are put in front later.
    learner = tokenizers.Tokenizer(models.BPE() if kind == "bpe" else models.WordLevel())
    learner.pre_tokenizer = TOKENIZERS[kind].cut
    trainer: trainers.BpeTrainer | trainers.WordLevelTrainer
    if kind == "bpe":
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - len(SPECIAL_TOKENS),
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    else:
        trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, show_progress=False)
    try:
        with panics_as_errors():
            learner.train_from_iterator(texts, trainer)
    except LibraryPanicError as error:
        raise UserError(f"data.tokenizer: '{kind}' cannot be learned from this text: {error}") from None
    model = json.loads(learner.to_str())["model"]
    return model["vocab"], model.get("merges", [])


def _backend(kind: str, vocabulary: dict[str, int], merges: Iterable[Sequence[str]]) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer; only "bpe" has `merges`, the pairs that it joins."""
    model: models.BPE | models.WordLevel
    if kind == "bpe":
        model = models.BPE(vocabulary, [(left, right) for left, right in merges])
    else:
        model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK])
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = TOKENIZERS[kind].cut
    if join := TOKENIZERS[kind].join:
        backend.decoder = join
    return backend


def tokenizer_from_json(text: str, where: str) -> Tokenizer:
    """Returns the tokenizer whose `to_json` returned `text`.

    It is built again from its vocabulary and merges, and must then equal the file in all else, or in all but what an
    export adds to it.

    Raises:
      UserError: `text` is damaged, or does not come from `to_json` of an fxf tokenizer; names `where`.
    """
    try:
        record = as_in_a_run(json.loads(text))
        model = record["model"]
        vocabulary, merges = model["vocab"], model.get("merges", [])
        kinds = [kind for kind, level in TOKENIZERS.items() if json_of(level.cut) == record["pre_tokenizer"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where}: not a tokenizer file: {type(error).__name__}: {error}") from None
    if not kinds:
        raise UserError(f"{where}: pre_tokenizer: expected that of one of {', '.join(TOKENIZERS)}")
    _require_vocabulary(vocabulary, where)
    try:
        with panics_as_errors():
            backend = _backend(kinds[0], vocabulary, merges)
    except Exception as error:  # the library raises no narrower type
        raise UserError(f"{where}: not a tokenizer file: {error}") from None
    made = json.loads(backend.to_str())
    for found, expected, path in ((record, made, ""), (model, made["model"], "model.")):
        for key in sorted({*found, *expected} - {"model"}, key=str):
            if key not in expected or found.get(key, ...) != expected[key]:
                raise UserError(f"{where}: {path}{key}: no tokenizer of fxf has this value")
    return Tokenizer(kinds[0], backend)


def _require_vocabulary(vocabulary: Any, where: str) -> None:
    """Raises a UserError if the vocabulary does not number its tokens from 0 on, with the special ones first."""
    if not isinstance(vocabulary, dict):
        raise UserError(f"{where}: model.vocab: expected tokens and their numbers")
    tokens: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < len(vocabulary):
            raise UserError(f"{where}: token '{token}': expected a number below {len(vocabulary)}, got {number!r}")
        if number in tokens:
            raise UserError(f"{where}: tokens '{tokens[number]}' and '{token}' both have number {number}")
        tokens[number] = token
    if tuple(tokens.get(i) for i in range(len(SPECIAL_TOKENS))) != SPECIAL_TOKENS:
        raise UserError(f"{where}: expected tokens 0 … {MASK} to be {' '.join(SPECIAL_TOKENS)}")


def read_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer in the file `path`.

    Raises:
      UserError: the file is missing or damaged.
    """
    try:
        return tokenizer_from_json(read_file(path).decode("utf-8"), str(path))
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a tokenizer file: not UTF-8 text") from None


def tokenizer_of(folder: Path | None, kind: str, vocab_size: int, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """Returns the tokenizer in the run folder, or else one learned from `texts()`.

    Raises:
      UserError: as `read_tokenizer` and `train_tokenizer`; or the folder's tokenizer is of another kind or larger.
    """
    if folder is not None and (folder / TOKENIZER_FILE).exists():
        path = folder / TOKENIZER_FILE
        found = read_tokenizer(path)
        if found.kind != kind:
            raise UserError(f"{path}: expected data.tokenizer '{kind}', got '{found.kind}'")
        if found.vocab_size > vocab_size:
            raise UserError(f"{path}: expected at most data.vocab_size {vocab_size} tokens, got {found.vocab_size}")
        return found
    return train_tokenizer(kind, vocab_size, texts())

"""Text to tokens and back, by character, word or subword (seed 001, "Tokenization"), with Hugging Face `tokenizers`.

Tokens 0 … 4 are special. Text never becomes one of them, except that text outside the vocabulary becomes <unk>.
"""

import functools
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from fxf.base.errors import UserError, nearest, one_line

SPECIAL_TOKENS = ("<bos>", "<pad>", "<eos>", "<unk>", "<mask>")
BOS, PAD, EOS, UNK, MASK = range(5)
BLANK = SPECIAL_TOKENS[MASK]
OF_BYTES = ("bpe", "byte")  # the kinds that have tokens for every text
NO_TOKEN = -1
TOKENIZER_FILE = "tokenizer.json"  # in a run folder
VOCAB_SIZE = 8000  # by default
MAX_LINE = 2**13  # characters encoded at once
PIECES = re.compile(rf"[\s\S]{{1,{MAX_LINE}}}(?= |\Z)|[\s\S]{{1,{MAX_LINE}}}")  # of a line
MAX_PIECE = 256  # bytes; pairs merge within a piece, and learning is quadratic in its length
AT_ONCE = 128  # pieces encoded at once; an encoding takes about 100 times the memory of its text
CODE_POINTS = 0x110000  # of Unicode

# The library's threads do not survive a fork; with threads, some versions warn or hang.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Special(NamedTuple):
    """The special tokens of a vocabulary, NO_TOKEN for none. Of the first `reserved` tokens, text yields only `unk`."""

    bos: int = BOS
    pad: int = PAD
    eos: int = EOS
    unk: int = UNK
    reserved: int = len(SPECIAL_TOKENS)


class Level(NamedTuple):
    """A kind of tokenizer: its pre-tokenizer, its decoder, and the fewest tokens besides the special ones."""

    cut: pre_tokenizers.PreTokenizer
    join: decoders.Decoder | None
    minimum: int


def isolated(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


CHARACTER, PIECE = r"[\s\S]", isolated(rf"[\s\S]{{1,{MAX_PIECE}}}")
_BYTES_OF_WORDS, BYTES = (pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts) for cuts in (True, False))
TOKENIZERS = {
    "character": Level(isolated(CHARACTER), decoders.Fuse(), 1),
    "word": Level(pre_tokenizers.WhitespaceSplit(), None, 1),  # no decoder: the library puts a space between tokens
    "bpe": Level(pre_tokenizers.Sequence([_BYTES_OF_WORDS, PIECE]), decoders.ByteLevel(), 256),
    "byte": Level(BYTES, decoders.ByteLevel(), 256),
}


def lines_of(text: str) -> Iterator[str]:
    """Yields the lines with their ends, in pieces of at most `MAX_LINE` characters, cut before a space if possible."""
    for line in text.splitlines(keepends=True):
        yield from PIECES.findall(line)


class Tokenizer:
    """A trained vocabulary. Several threads may share one.

    Attributes:
      kind: one of TOKENIZERS, or "file".
      dtype: the smaller one of uint16 and uint32 that holds its tokens.
    """

    def __init__(
        self, kind: str, backend: tokenizers.Tokenizer, special: Special = Special(), of_file: str = ""
    ) -> None:
        """Keeps the library's tokenizer. `of_file` is the text of its file, if the tokenizer was changed since."""
        self.kind, self.special = kind, special
        self._backend, self._of_file = backend, of_file
        # A file's pre-tokenizer may put a space in front of a text, which the byte-level decoder keeps.
        cut = backend.pre_tokenizer.__getstate__() if backend.pre_tokenizer else b""
        self._in_front = " " if b'"ByteLevel","add_prefix_space":true' in cut else ""
        self.vocab_size: int = max(backend.get_vocab().values()) + 1  # a file may leave numbers out
        self.dtype = np.dtype(np.uint16 if self.vocab_size <= 2**16 else np.uint32)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of `text`, without special tokens around them.

        fxf's own tokenizers encode each line by itself. With a tokenizer file, a token may depend on the whole text.

        Raises:
          UserError: the vocabulary of a tokenizer file lacks some of `text` and has no unknown token.
        """
        pieces = [*lines_of(text)] if self.kind in TOKENIZERS else [text]
        groups = (pieces[start : start + AT_ONCE] for start in range(0, len(pieces), AT_ONCE))
        # The library encodes a word that is spelled like a special token as that token.
        reserved, unk = self.special.reserved, self.special.unk
        encodings = (encoding for group in groups for encoding in self._encodings(group))
        return [token if token >= reserved else unk for encoding in encodings for token in encoding.ids]

    def by_lines(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens [N] of the text that `lines_of` cut into `lines`, and the line of each token, [N], from 0.

        A token that spans several lines belongs to the first of them.
        """
        if self.kind in TOKENIZERS:
            rows = list(map(self.array, lines))
            return np.concatenate(rows), np.repeat(np.arange(len(rows)), list(map(len, rows)))
        (encoding,) = self._encodings(["".join(lines)], self._backend.encode_batch)
        ends_L = np.cumsum(list(map(len, lines)))
        numbers_N = np.searchsorted(ends_L, [start for start, _ in encoding.offsets], side="right")
        return np.array(encoding.ids, self.dtype), numbers_N.clip(max=len(lines) - 1)

    def array(self, text: str) -> np.ndarray:
        """Returns `encode(text)` as an array [N] of `dtype`."""
        if self.kind == "byte":
            return np.frombuffer(text.encode(), np.uint8) + self.dtype.type(len(SPECIAL_TOKENS))
        if self.kind != "character":
            return np.array(self.encode(text), self.dtype)
        # In parts, because the code points of a text take four times its memory.
        parts = (text[start : start + CODE_POINTS] for start in range(0, len(text) or 1, CODE_POINTS))
        return np.concatenate([self._of_code_points[_code_points(part)] for part in parts])

    @functools.cached_property
    def _of_code_points(self) -> np.ndarray:
        """The token of each code point, [CODE_POINTS]: a look-up is fifty times as fast as the library."""
        table = np.full(CODE_POINTS, UNK, self.dtype)
        for character, token in self._backend.get_vocab().items():
            if token > MASK:
                table[ord(character)] = token
        return table

    def _encodings(self, pieces: list[str], encode: Any = None) -> list[Any]:
        """Encodes pieces of a text in one call of the library, which releases the GIL only for batches.

        Args:
          encode: the library's function; by default the one that computes no offsets.
        """
        try:
            return (encode or self._backend.encode_batch_fast)(pieces, add_special_tokens=False)
        except Exception:  # of a tokenizer file; the library raises no narrower type
            what = f"no token for some of {pieces[0][:60]!r}, and none that stands for unknown text"
            raise UserError(f"data.tokenizer: the file has {what}") from None

    def unknown(self, text: str) -> list[str]:
        """Returns the distinct characters or words that the vocabulary lacks, in order. Raises as `encode`."""
        (encoding,) = self._encodings([text], self._backend.encode_batch)
        unknown = {self.special.unk, *range(self.special.reserved)}
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return list(dict.fromkeys(text[start:end] for token, (start, end) in pairs if token in unknown))

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of `tokens`, without <bos>, <pad> and <eos>."""
        kept = [token for token in tokens if token not in self.special[:3]]
        return self._backend.decode(kept, skip_special_tokens=False).removeprefix(self._in_front)

    def continuation(self, text: str, tokens: Sequence[int]) -> str:
        """Returns the text that `tokens` add to a text. Decoded alone, they may lose the space in front."""
        read = self.encode(text)
        return self.decode([*read, *tokens])[len(self.decode(read)) :]

    def name(self, token: int) -> str:
        """Returns the name of a special token, or a token's text with white space and control characters visible."""
        if token in {*self.special[:4], *range(self.special.reserved)}:
            return self._backend.id_to_token(token) or ""
        return one_line(self._backend.decode([token], skip_special_tokens=False).replace(" ", "␣").replace("\n", "⏎"))

    def to_json(self) -> str:
        """Returns the content of a tokenizer file, for `read_tokenizer_file`."""
        return self._of_file or self._backend.to_str()


def train_tokenizer(kind: str, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
    """Learns a vocabulary of at most `vocab_size` tokens; the same texts give the same vocabulary.

    "character" and "word" keep the most frequent characters or words; ties are in alphabetical order. Words have no
    white space; `decode` joins them by one space. "bpe" starts from the 256 bytes and merges the most frequent pair of
    neighbours while any pair occurs twice. It encodes every text, and `decode(encode(text)) == text`. "byte" learns
    nothing: byte b is token b + 5. Sources: seed 001, "Tokenization"; byte-level BPE: Radford et al., 2019 (GPT-2).

    Raises:
      UserError: `kind` is unknown, or `vocab_size` is too small for it.
    """
    if kind not in TOKENIZERS:
        expected = f"expected one of {', '.join(TOKENIZERS)}; or the path of a tokenizer.json"
        raise UserError(f"data.tokenizer: {expected}; got {kind!r}{nearest(kind, TOKENIZERS)}")
    level = TOKENIZERS[kind]
    minimum = len(SPECIAL_TOKENS) + level.minimum
    if vocab_size < minimum:
        raise UserError(f"data.vocab_size: tokenizer '{kind}' needs at least {minimum}, got {vocab_size}")
    if kind == "bpe":
        learned, merges = _merged(vocab_size - len(SPECIAL_TOKENS), texts)
    elif kind == "byte":
        alphabet, others = {*pre_tokenizers.ByteLevel.alphabet()}, map(chr, itertools.count(256))
        learned, merges = [chr(byte) if chr(byte) in alphabet else next(others) for byte in range(256)], []
    elif kind == "character":
        learned, merges = _characters(iter(texts)), []
    else:
        words = (word for text in texts for word, _ in level.cut.pre_tokenize_str(text))
        counts, merges = Counter(words), []
        learned = sorted(counts, key=lambda word: (-counts[word], word))
    tokens = [*SPECIAL_TOKENS, *(token for token in learned if token not in SPECIAL_TOKENS)][:vocab_size]
    return Tokenizer(kind, _backend(kind, {token: i for i, token in enumerate(tokens)}, merges))


def _characters(texts: Iterator[str]) -> list[str]:
    """Returns the characters of texts, the most frequent first; NumPy counts ten times as fast as Python."""
    counts_C = np.zeros(CODE_POINTS, int)
    while several := [*itertools.islice(texts, 1000)]:
        found = np.bincount(_code_points("".join(several)))
        counts_C[: len(found)] += found
    return [*map(chr, np.argsort(-counts_C, kind="stable")[: np.count_nonzero(counts_C)].tolist())]


def _code_points(text: str) -> np.ndarray:
    """Returns the code point of each character of a text, [N]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _merged(size: int, texts: Iterable[str]) -> tuple[list[str], list[Any]]:
    """Learns a byte-pair encoding; returns its tokens and its merges, both in order."""
    # With special tokens the library would look for them in the text, so they are put in front after training.
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = TOKENIZERS["bpe"].cut
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    return [*model["vocab"]], model["merges"]


def _backend(kind: str, vocabulary: dict[str, int], merges: Iterable[Sequence[str]]) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer. Only "bpe" has `merges`."""
    model: models.BPE | models.WordLevel
    if kind in ("character", "word"):
        model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK])
    else:
        model = models.BPE(vocabulary, [(left, right) for left, right in merges])
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = TOKENIZERS[kind].cut
    if join := TOKENIZERS[kind].join:
        backend.decoder = join
    return backend


def kind_of(backend: tokenizers.Tokenizer) -> str:
    """Returns the kind of one of fxf's tokenizers, "" for any other."""
    cut = json.loads(backend.to_str())["pre_tokenizer"]
    first = tuple(backend.id_to_token(number) for number in range(len(SPECIAL_TOKENS)))
    kinds = (kind for kind, level in TOKENIZERS.items() if json_of(level.cut) == cut)
    return next(kinds, "") if first == SPECIAL_TOKENS else ""


def json_of(part: Any) -> Any:
    """Returns the JSON of a component of the library's tokenizer."""
    return json.loads(part.__getstate__())

"""A text of any length as an array of tokens."""

from collections.abc import Iterator

import numpy as np

from fxf.data.tokenizer import MASK, UNK, Tokenizer
from fxf.data.tokenizer_file import KIND

MAX_PIECE = 2**13  # characters encoded at once
AT_ONCE = 2**16  # characters whose encodings, of about 100 times their memory, are held at once
CODE_POINTS = 0x110000  # of Unicode


def token_type(vocab_size: int) -> np.dtype:
    """Returns the smaller one of uint16 and uint32 that holds the tokens of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


class Encoder:
    """A tokenizer for texts of any length. Several threads may share one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._dtype = tokenizer, token_type(tokenizer.vocab_size)
        self._of_code_points: np.ndarray | None = None
        if tokenizer.kind == "character":
            self._of_code_points = np.full(CODE_POINTS, UNK, self._dtype)
            for text, token in tokenizer.vocabulary().items():
                if token > MASK:
                    self._of_code_points[ord(text)] = token

    def encode(self, text: str) -> np.ndarray:
        """Returns the tokens [N] of a text, in the type that `token_type` names.

        The tokens are those of its pieces, because encoding takes about 100 times the memory of a piece. fxf's own
        tokenizers get a line with its end at a time; a tokenizer file may join lines, so it gets pieces as large as
        possible.
        """
        if self._of_code_points is not None:
            return self._of_code_points[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)]
        whole = self._tokenizer.kind == KIND
        groups = ([piece] for piece in pieces(text, AT_ONCE, "\n")) if whole else _grouped(lines_of(text))
        found = [self._tokenizer.encode_pieces(group) for group in groups]
        return np.concatenate([np.zeros(0, np.int64), *found]).astype(self._dtype)


def lines_of(text: str) -> Iterator[str]:
    """Yields the lines with their ends, in pieces of at most `MAX_PIECE` characters, cut before a space if possible."""
    for line in text.splitlines(keepends=True):
        yield from pieces(line, MAX_PIECE, " ")


def pieces(text: str, length: int, before: str) -> Iterator[str]:
    """Yields pieces of at most `length` characters, cut in front of the character `before` if possible."""
    while len(text) > length:
        cut = text.rfind(before, 1, length + 1)
        cut = cut if cut > 0 else length
        yield text[:cut]
        text = text[cut:]
    yield text


def _grouped(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yields lists of consecutive lines of about `AT_ONCE` characters."""
    group: list[str] = []
    n_characters = 0
    for line in lines:
        group.append(line)
        n_characters += len(line)
        if n_characters >= AT_ONCE:
            yield group
            group, n_characters = [], 0
    if group:
        yield group

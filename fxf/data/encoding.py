"""A text of any length as an array of tokens."""

from collections.abc import Iterator

import numpy as np

from fxf.data.lines import lines_of
from fxf.data.tokenizer import MASK, UNK, Tokenizer
from fxf.data.tokenizer_file import KIND

AT_ONCE = 2**16  # characters whose encodings, of about 100 times their memory, are held at once
MARGIN = 2**11  # characters on both sides of a window, in which two windows must have the same tokens
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

        They are those of `Tokenizer.encode`, in pieces, because encoding takes about 100 times the memory of a piece:
        fxf's own tokenizers read lines, and a tokenizer file, whose tokens may depend on the text around them, windows.
        """
        if self._of_code_points is not None:
            return self._of_code_points[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)]
        if self._tokenizer.kind == KIND:
            return self._of_windows(text).astype(self._dtype)
        found = [self._tokenizer.encode_pieces(group) for group in _grouped(lines_of(text))]
        return np.concatenate([np.zeros(0, np.int64), *found]).astype(self._dtype)

    def _of_windows(self, text: str) -> np.ndarray:
        """Returns the tokens of a text from windows that overlap, with margins as wide as they need."""
        margin = MARGIN
        while len(text) > AT_ONCE + margin:
            if (found := self._joined(text, margin)) is not None:
                return found
            margin *= 8
        return self._tokenizer.encode_pieces([text])

    def _joined(self, text: str, margin: int) -> np.ndarray | None:
        """Returns the tokens of windows, each up to where the next one begins; None where two have different tokens.

        A window has a margin more of the text on both sides. Around the place where two meet, within half a margin,
        the tokens of both must be the same; so the ends of the windows change none of those that are returned.
        """
        parts, before, before_N = [], np.zeros(0, np.int64), np.zeros(0, np.int64)
        for place in range(0, len(text), AT_ONCE):
            first = max(place - margin, 0)
            tokens_N, places_N = placed(self._tokenizer, text[first : place + AT_ONCE + margin])
            places_N += first
            if place:
                near, near_before = (abs(each - place) <= margin // 2 for each in (places_N, before_N))
                same = np.array_equal(tokens_N[near], before[near_before])
                if not (same and np.array_equal(places_N[near], before_N[near_before])):
                    return None
                parts.append(before[before_N < place])
            before, before_N = tokens_N[places_N >= place], places_N[places_N >= place]
        return np.concatenate([*parts, before])


def placed(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens of a text, read as a whole, and the places of their first characters, int64 [N] each."""
    encoding = tokenizer._encoding(text)
    return np.array(encoding.ids, np.int64), np.array(encoding.offsets, np.int64).reshape(-1, 2)[:, 0]


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

"""Pieces of a text, by which fxf's own tokenizers learn and encode it."""

from collections.abc import Iterator

MAX_PIECE = 2**13  # characters encoded at once


def lines_of(text: str) -> Iterator[str]:
    """Yields the lines with their ends, in pieces of at most `MAX_PIECE` characters, cut before a space if possible."""
    for line in text.splitlines(keepends=True):
        while len(line) > MAX_PIECE:
            cut = line.rfind(" ", 1, MAX_PIECE + 1)
            cut = cut if cut > 0 else MAX_PIECE
            yield line[:cut]
            line = line[cut:]
        yield line

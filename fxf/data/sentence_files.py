"""Files of sentence pairs, read a line at a time so that a message can name the line."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fxf.errors import UserError, nearest

SOURCE, TARGET = range(2)
SIDES = ("source", "target")


class Line(NamedTuple):
    """A sentence pair and the number of its line, from 1."""

    number: int
    source: str
    target: str


class BadLineError(Exception):
    """What is wrong with a line, and on which side."""

    def __init__(self, side: int, problem: str) -> None:
        super().__init__(problem)
        self.side = side


Sides = tuple[bytes, bytes] | BadLineError


def read_bytes(path: Path, key: str) -> bytes:
    """Returns what the file holds.

    Raises:
      UserError: it is missing or empty; names the config's `key` that led to it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{key}: {path}: {error.strerror}{nearest(path.name, beside)}") from None
    if not content:
        raise UserError(f"{key}: {path}: the file is empty")
    return content


def lines_of(content: bytes) -> list[bytes]:
    r"""Returns the lines without their ends, which are \n or \r\n only: U+2028 and the like are text."""
    content = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")  # a byte order mark is no text
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]


def tab_separated(content: bytes, second_first: bool) -> Iterator[Sides]:
    """Yields the first two columns of each line; a third one, Anki's attribution, is not read."""
    for line in lines_of(content):
        columns = line.split(b"\t")
        if len(columns) in (2, 3):
            yield (columns[1], columns[0]) if second_first else (columns[0], columns[1])
        else:
            columns_found = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            yield BadLineError(SOURCE, f"expected source TAB target, got {columns_found}")


def aligned(contents: Sequence[bytes], names: Sequence[str]) -> Iterator[Sides]:
    """Yields each line of the source file with that of the target file."""
    for source, target in itertools.zip_longest(*map(lines_of, contents)):
        if target is None:
            yield BadLineError(SOURCE, f"{names[TARGET]} has no such line")
        elif source is None:
            yield BadLineError(TARGET, f"{names[SOURCE]} has no such line")
        else:
            yield source, target


def good_lines(sides: Iterable[Sides], names: Sequence[str], skip: bool) -> tuple[list[Line], int]:
    """Returns the lines that hold a sentence pair, and the number that do not.

    `names` are the files of the source and of the target.

    Raises:
      UserError: a line is bad, unless bad ones are to `skip`; or no line is good.
    """
    good, skipped = [], 0
    for number, both in enumerate(sides, 1):
        try:
            if isinstance(both, BadLineError):
                raise both
            good.append(Line(number, _text(both, SOURCE), _text(both, TARGET)))
        except BadLineError as error:
            if not skip:
                raise UserError(f"{names[error.side]}:{number}: {error}") from None
            skipped += 1
    if not good:
        raise UserError(f"{names[SOURCE]}: no line holds a sentence pair")
    return good, skipped


def _text(both: tuple[bytes, bytes], side: int) -> str:
    try:
        text = both[side].decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLineError(side, f"the {SIDES[side]} is not UTF-8: byte {both[side][error.start]:#04x}") from None
    if not text.strip():
        raise BadLineError(side, f"the {SIDES[side]} is empty")
    return text


def split_by_source(lines: Sequence[Line], share: float) -> tuple[list[Line], list[Line], list[Line]]:
    """Splits lines into train, validation and test, all translations of a source in one of them.

    The sources with the smallest hashes are held out: `share` of them for validation and as many for test, at least
    one each. Sources that differ only in case or white space count as one.

    Raises:
      UserError: there are fewer than three sources.
    """
    sources = [" ".join(line.source.lower().split()) for line in lines]
    ranked = sorted(set(sources), key=lambda source: hashlib.blake2b(source.encode(), digest_size=16).digest())
    if len(ranked) < 3:
        raise UserError(f"data.held_out: expected 3 source sentences or more, one for each split; got {len(ranked)}")
    n = max(1, round(share * len(ranked)))
    split_of = dict.fromkeys(ranked[:n], 1) | dict.fromkeys(ranked[n : 2 * n], 2)
    splits: tuple[list[Line], list[Line], list[Line]] = ([], [], [])
    for source, line in zip(sources, lines, strict=True):
        splits[split_of.get(source, 0)].append(line)
    return splits

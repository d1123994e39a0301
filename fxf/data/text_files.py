"""Text files, plain or compressed, and the sentence pairs in their lines. Error messages name the line."""

import contextlib
import hashlib
import io
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError, text_of
from fxf.base.files import read_file

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEGINS = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"  # bzip2: also an empty file
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"  # zstd: also a skippable frame, which pzstd writes first
    rb"|(?P<xz>\xfd7zXZ\x00)"
)


@contextlib.contextmanager
def unpacked(raw: Any, where: str) -> Iterator[Any]:
    """Opens a file's content: decompressed if it is gzip, bzip2, zstd or xz, and without its byte order mark.

    Args:
      raw: the file, opened in binary mode.
      where: the start of error messages.

    Raises:
      UserError: the part of the file that is read is damaged or truncated.
    """
    file: Any = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
    try:
        begins = _BEGINS.match(file.peek(10))
        codec = begins and begins.lastgroup
        if codec == "xz":
            file = lzma.LZMAFile(file)  # noqa: SIM115  The caller closes `raw`.
        elif codec:
            import pyarrow  # imported here because it takes a fifth of a second

            file = io.BufferedReader(pyarrow.CompressedInputStream(file, codec), 2**16)
        if file.peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
            file.read(len(BYTE_ORDER_MARK))
        yield file
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise UserError(f"{where}: {getattr(error, 'strerror', None) or text_of(error)}") from None


def unpacked_content(content: bytes, where: str) -> bytes:
    """Decompresses the content of a file, as `unpacked`."""
    with unpacked(io.BytesIO(content), where) as file:
        return file.read()


def read_text_file(path: Path, key: str) -> bytes:
    """Returns the content of a text file, which may be compressed.

    Raises:
      UserError: as `read_file` and `unpacked`, or the file is empty. The message names `key`, which holds the path.
    """
    where = f"{key}: {path}"
    if not (content := unpacked_content(read_file(path, key), where)):
        raise UserError(f"{where}: the file is empty")
    return content


def decoded(content: bytes, place: Path | str, line: int = 1) -> str:
    """Decodes UTF-8; `line` is the number of the first line. Raises a UserError that names the line that is not text.

    A null byte is an error too: UTF-16 and binary files have them.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = line + content[: error.start].count(10), content[error.start]
        hint = "; is it UTF-16?" if byte >= 0xFE else ""
        if re.match(rb"\xed[\xa0-\xbf]", content[error.start :]):
            hint = r"; it is half of a surrogate pair, such as \ud83d in JSON"
        raise UserError(f"{place}:{line}: not UTF-8: byte {byte:#04x}{hint}") from None
    if "\0" in text:
        line += content[: content.index(0)].count(10)
        raise UserError(f"{place}:{line}: not text: a null byte; is it UTF-16?")
    return text


def lines_of(content: bytes) -> list[bytes]:
    r"""Splits content into lines without their ends. \n or \r\n ends a line; \r does if there is no \n at all."""
    content = (content if b"\n" in content else content.replace(b"\r", b"\n")).removesuffix(b"\n")
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]


class Example(NamedTuple):
    """A sentence, its translation, and their file and line for error messages."""

    source: str
    target: str
    where: str


Sides = tuple[bytes, bytes] | str  # source and target of a line, or why it is bad


def tab_separated(lines: Iterable[bytes], n_columns: int, source: int, target: int) -> Iterator[Sides]:
    """Yields the columns with the indices `source` and `target` of each line.

    A line has `n_columns` columns, or one more, which is ignored: Anki's attribution.
    """
    for line in lines:
        columns = line.split(b"\t")
        if len(columns) in (n_columns, n_columns + 1):
            yield columns[source], columns[target]
        else:
            got = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
            yield f"expected {n_columns} tab-separated columns, got {got}"


def good_lines(sides: Iterable[Sides], names: Sequence[str], skip: bool, first: int = 1) -> tuple[list[Example], int]:
    """Returns the sentence pairs of the good lines, and the number of bad lines.

    Args:
      names: the files of source and target, for error messages.
      skip: whether to skip bad lines.
      first: the number of the first line.

    Raises:
      UserError: a line is bad and `skip` is False.
    """
    good, skipped = [], 0
    for number, pair in enumerate(sides, first):
        try:
            good.append(_example(pair, names, number))
        except UserError:
            if not skip:
                raise
            skipped += 1
    return good, skipped


def _example(pair: Sides, names: Sequence[str], number: int) -> Example:
    if isinstance(pair, str):
        raise UserError(f"{names[0]}:{number}: {pair}")
    source, target = (decoded(content, name, number) for name, content in zip(names, pair, strict=True))
    for name, side, text in zip(names, ("source", "target"), (source, target), strict=True):
        if not text.strip():
            raise UserError(f"{name}:{number}: the {side} is empty")
    return Example(source, target, f"{names[0]}:{number}")


def split_by_source(examples: Sequence[Example], share: float) -> tuple[list[Example], list[Example], list[Example]]:
    """Splits pairs into train, validation and test; all translations of a source go into the same split.

    The sources with the smallest hashes are held out: `share` of them for validation and as many for test, at least
    one each. Sources that differ only in case or white space count as one. With share 0, every split has all pairs.

    Raises:
      UserError: there are fewer than three sources, and the share is not 0.
    """
    if not share:
        return ([*examples], [*examples], [*examples])
    sources = [" ".join(example.source.lower().split()) for example in examples]
    ranked = sorted(set(sources), key=lambda source: hashlib.blake2b(source.encode(), digest_size=16).digest())
    if len(ranked) < 3:
        wanted = "expected 3 source sentences or more, one for each split, or 0"
        raise UserError(f"data.held_out: {wanted}; got {len(ranked)}")
    n = max(1, min(round(share * len(ranked)), (len(ranked) - 1) // 2))
    split_of = dict.fromkeys(ranked[:n], 1) | dict.fromkeys(ranked[n : 2 * n], 2)
    splits: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for source, example in zip(sources, examples, strict=True):
        splits[split_of.get(source, 0)].append(example)
    return splits

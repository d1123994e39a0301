"""Documents: the texts of files, of JSON lines or of a TFDS data set, read one after the other."""

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from fxf.config import key
from fxf.data import phrasebook
from fxf.data.sentence_files import not_text, require_uncompressed
from fxf.data.text import TextConfig
from fxf.errors import UserError, nearest
from fxf.files import files_below, require_file

PARTS = ("train", "validation", "test")
MAX_BYTES = 2**24  # of a document
CHUNK = 2**20  # bytes read at once
SAMPLE = 2**24  # bytes of text from which a tokenizer is learned
READS = {
    "text": (),
    "files": ("separator", "prepared"),
    "json_lines": ("field", "prepared"),
    "tfds": ("field", "split", "prepared"),
}


@dataclasses.dataclass(frozen=True)
class DocumentsConfig(TextConfig):
    """The `data` section of `language_model`. A key that the chosen format does not read must keep its default."""

    format: Literal["text", "files", "json_lines", "tfds"] = key(
        "text",
        "text: one text, held in memory; else documents, prepared once on the disk: text files, JSON lines, or a data "
        "set of TFDS; path is then a file or a folder of them, or the data set's name, and validation and test are "
        "shares of the documents",
    )
    separator: str = key("", "files: the text between two documents of a file; by default a file is a document")
    field: str = key("text", "json_lines, tfds: the field that holds a document's text")
    split: str = key("train", "tfds: the split to read")
    prepared: str = key("", "folder for the tokens of documents; by default one beside path, named path.prepared")

    def __post_init__(self) -> None:
        for name in dict.fromkeys(name for names in READS.values() for name in names):
            default = getattr(DocumentsConfig, name)
            if name not in READS[self.format] and getattr(self, name) != default:
                what = f"data.format '{self.format}' does not read it"
                raise UserError(f"data.{name}: {what}; leave it at {default or repr('')}")
        if self.format in ("json_lines", "tfds") and not self.path:
            raise UserError(f"data.path: data.format '{self.format}' needs it; give --config.data.path")
        if self.validation + self.test >= 1:
            raise UserError("data.test: no document is left to train on")
        if wrong := not_text(self.separator.encode("utf-8", "surrogateescape")):
            raise UserError(f"data.separator: {self.separator!r}: {wrong[1]}")


class Document(NamedTuple):
    """A text, and its file and line for messages."""

    text: str
    where: str


class Source(NamedTuple):
    """Where documents come from.

    Attributes:
      name: the file's path below `data.path`, or what else names it.
      path: the file; None for the phrase book and TFDS.
      size: bytes.
      changed: the file's time of change in nanoseconds, 0 without a file.
      content: what its digest covers, if that is not the file's bytes.
    """

    name: str
    path: Path | None
    size: int
    changed: int = 0
    content: bytes = b""


def sources(config: DocumentsConfig) -> list[Source]:
    """Returns the files that hold the documents, in order. Files and folders whose names begin with a dot are left out.

    Raises:
      UserError: there is no such file, folder or data set, or the folder is empty.
    """
    if config.format == "tfds":
        from fxf.data.builders import public_texts

        (name, *files), _ = public_texts(config.path, config.field, config.split)
        size = sum(n_bytes for _, n_bytes in files)
        return [Source(f"{name}:{config.split}", None, size, content=repr((name, files)).encode())]
    if not config.path:
        content = phrasebook.english().encode()
        return [Source("phrasebook", None, len(content), content=content)]
    path = Path(os.path.expanduser(config.path))
    if not path.is_dir():
        require_file(path, "data.path")
        return [_file(path, path.name)]
    try:
        found = [file for file in files_below(path) if not _hidden(file.relative_to(path))]
    except OSError as error:
        raise UserError(f"data.path: {error.filename}: {error.strerror}") from None
    if not found:
        raise UserError(f"data.path: {path}: the folder has no files")
    return [_file(file, file.relative_to(path).as_posix()) for file in found]


def _file(path: Path, name: str) -> Source:
    size = require_file(path, "data.path")
    return Source(name, path, size, path.stat().st_mtime_ns)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read(config: DocumentsConfig, source: Source, on_bytes: Callable[[bytes], Any]) -> Iterator[Document]:
    r"""Yields the documents of a source that hold more than white space; \r\n becomes \n.

    Args:
      on_bytes: is called with all bytes of the source, in order.

    Raises:
      UserError: a document is not UTF-8 text or too long, or a line is not a JSON object with the field.
    """
    name = str(source.path or source.name)
    texts: Iterator[tuple[int, bytes]]
    if config.format == "tfds":
        from fxf.data.builders import public_texts

        on_bytes(source.content)
        texts = enumerate(public_texts(config.path, config.field, config.split)[1], 1)
    elif config.format == "json_lines":
        texts = _json_lines(source, config.field, on_bytes)
    else:
        texts = _split(source, _separator(config), on_bytes)
    for line, content in texts:
        where = f"{name}:{line}"
        if len(content) > MAX_BYTES:
            raise UserError(f"{where}: a document of more than {MAX_BYTES} bytes; {_shorter(config)}")
        if wrong := not_text(content):
            index, problem = wrong
            raise UserError(f"{name}:{line + content[:index].count(10)}: {problem}")
        text = content.decode("utf-8").replace("\r\n", "\n")
        if text and not text.isspace():
            yield Document(text.lower() if config.lower_case else text, where)


def _separator(config: DocumentsConfig) -> bytes:
    return config.separator.replace("\r\n", "\n").encode()


def require_separator(config: DocumentsConfig, found: list[Source]) -> None:
    """Raises a UserError if `data.separator` stands in no file, as one typed with a backslash and an n."""
    parts = (_split(source, _separator(config), lambda _: None) for source in found)
    if config.separator and not any(len([*itertools.islice(each, 2)]) > 1 for each in parts):
        raise UserError(f"data.separator: {config.separator!r} stands in no file of {config.path or 'the phrase book'}")


def _shorter(config: DocumentsConfig) -> str:
    files = config.format == "files"
    return "set data.separator to the text between documents" if files else "cut it into shorter ones"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file. Raises a UserError that names it if it cannot be read; an OSError would read as a failed save."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UserError(f"data.path: {path}: it cannot be read ({errno.errorcode.get(error.errno or 0)})") from None


def _chunks(source: Source, on_bytes: Callable[[bytes], Any]) -> Iterator[bytes]:
    r"""Yields the content of a text file in pieces, without a byte order mark, and with \n for \r\n.

    If the first line ends in a piece that has \r and no \n, all of them end in \r.
    """
    if source.path is None:
        on_bytes(source.content)
        yield source.content
        return
    with _opened(source.path) as file:
        start, end = True, b""
        while chunk := file.read(CHUNK):
            while chunk.endswith(b"\r") and (more := file.read(1)):
                chunk += more
            on_bytes(chunk)
            if start:
                require_uncompressed(chunk, f"data.path: {source.path}")
                chunk, start = chunk.removeprefix(b"\xef\xbb\xbf"), False
            if not end and (b"\r" in chunk or b"\n" in chunk):
                end = b"\r\n" if b"\n" in chunk else b"\r"
            yield chunk.replace(end or b"\r\n", b"\n")


def _split(source: Source, separator: bytes, on_bytes: Callable[[bytes], Any]) -> Iterator[tuple[int, bytes]]:
    """Yields the line and the content of each document of a text file; too long a document ends it."""
    line, rest = 1, b""
    for chunk in _chunks(source, on_bytes):
        *whole, rest = (rest + chunk).split(separator) if separator else [rest + chunk]
        for content in whole:
            yield line, content
            line += content.count(10) + separator.count(10)
        if len(rest) > MAX_BYTES:
            break
    yield line, rest


def _json_lines(source: Source, field: str, on_bytes: Callable[[bytes], Any]) -> Iterator[tuple[int, bytes]]:
    """Yields the number of each line that is not blank, and the text in the field of its object.

    Raises:
      UserError: a line is not UTF-8 text, not a JSON object, or has no text in the field.
    """
    assert source.path is not None
    with _opened(source.path) as file:
        for number, line in enumerate(iter(lambda: file.readline(8 * MAX_BYTES), b""), 1):
            on_bytes(line)
            if line.isspace():
                continue
            where = f"{source.path}:{number}"
            if number == 1:
                require_uncompressed(line, f"data.path: {source.path}")
            if wrong := not_text(line):
                raise UserError(f"{where}: {wrong[1]}")
            try:
                record = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{where}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise UserError(f"{where}: expected a JSON object, got {type(record).__name__}")
            if field not in record:
                raise UserError(f"{where}: no field '{field}' (data.field){nearest(field, record)}")
            if not isinstance(record[field], str):
                raise UserError(f"{where}: field '{field}': expected a text, got {type(record[field]).__name__}")
            try:
                yield number, record[field].encode()
            except UnicodeEncodeError:
                raise UserError(f"{where}: field '{field}': half of a surrogate pair, which is no character") from None


def part_of(config: DocumentsConfig, text: str) -> str:
    """Returns the part that a document belongs to, by a hash of its text; so all copies of it are in the same part."""
    place = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    if place < config.validation:
        return "validation"
    return "test" if place < config.validation + config.test else "train"


def sample(config: DocumentsConfig) -> Iterator[str]:
    """Yields documents of the training part, about `SAMPLE` bytes of them, from the start of evenly spread sources."""
    found = sources(config)
    total, passed, taken = sum(source.size for source in found), 0, 0
    for source in found:
        passed += source.size
        limit = min(1, SAMPLE / max(total, 1)) * passed
        if taken >= limit:
            continue
        for document in read(config, source, lambda _: None):
            if part_of(config, document.text) == "train":
                yield document.text
                taken += len(document.text.encode())
            if taken >= limit:
                break

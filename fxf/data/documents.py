"""Documents: the texts of files, of JSON lines or of a TFDS data set, read one after the other."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from fxf.base.config import key, require_off
from fxf.base.errors import UserError, nearest
from fxf.base.files import digest, file_digest, files_below, require_file
from fxf.data import phrasebook
from fxf.data.sentence_files import BYTE_ORDER_MARK, not_text, require_uncompressed
from fxf.data.text import TextConfig

PARTS = ("train", "validation", "test")
MAX_BYTES = 2**24  # of a document
CHUNK = 2**20  # bytes read at once
SAMPLE = 2**24  # bytes of text from which a tokenizer is learned
# The formats that read a key which not all of them read.
OF_FIELDS, ON_DISK = ("json_lines", "tfds"), ("files", "json_lines", "tfds")
READ_BY = {"separator": ("files",), "field": OF_FIELDS, "split": ("tfds",), "prepared": ON_DISK}


@dataclasses.dataclass(frozen=True)
class DocumentsConfig(TextConfig):
    """The `data` section of `language_model`. A key that the chosen format does not read must keep its default."""

    format: Literal["text", "files", "json_lines", "tfds"] = key(
        "text",
        "one text, held in memory; or documents, prepared once on the disk: path is then a file or a folder of text "
        "files or JSON lines, or a data set of TFDS, and validation and test are shares of the documents",
    )
    separator: str = key("", "files: the text between two documents of a file; by default a file is a document")
    field: str = key("text", "json_lines, tfds: the field that holds a document's text")
    split: str = key("train", "tfds: the split to read")
    prepared: str = key("", "folder for the tokens of documents; by default one beside path, named path.prepared")

    def __post_init__(self) -> None:
        unread = {name: getattr(type(self), name) for name, formats in READ_BY.items() if self.format not in formats}
        require_off("data", self, unread, f"data.format '{self.format}' does not read it")
        if self.format in OF_FIELDS and not self.path:
            raise UserError(f"data.path: data.format '{self.format}' needs it; give --config.data.path")
        if self.validation + self.test >= 1:
            raise UserError("data.test: no document is left to train on")


class Document(NamedTuple):
    """A text, and the bytes that it takes in its file."""

    text: str
    n_bytes: int


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

    def digest(self) -> str:
        return file_digest(self.path) if self.path else digest(self.content)


def sources(config: DocumentsConfig) -> list[Source]:
    """Returns the files that hold the documents, in order. Files and folders whose names begin with a dot are left out.

    Raises:
      UserError: there is no such file, folder or data set, or the folder is empty.
    """
    if config.format == "tfds":
        (name, *files), _ = _public(config)
        size = sum(n_bytes for _, n_bytes in files)
        return [Source(f"{name}:{config.split}", None, size, content=repr((name, files)).encode())]
    if not config.path:
        content = phrasebook.english().encode()
        return [Source("phrasebook", None, len(content), content=content)]
    path = Path(os.path.expanduser(config.path))
    if not path.is_dir():
        return [_file(path, path.name)]
    names = [file.relative_to(path) for file in files_below(path)]
    found = [name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts)]
    if not found:
        raise UserError(f"data.path: {path}: the folder has no files")
    return [_file(path / name, name) for name in found]


def _file(path: Path, name: str) -> Source:
    size = require_file(path, "data.path")
    return Source(name, path, size, path.stat().st_mtime_ns)


def _public(config: DocumentsConfig) -> tuple[list[Any], Iterator[tuple[bytes, ...]]]:
    from fxf.data.public_sets import read_public  # imported here because TFDS takes a second

    manifest, (texts,) = read_public(config.path, {"field": config.field}, [config.split])
    return manifest, texts


def read(config: DocumentsConfig, source: Source) -> Iterator[Document]:
    r"""Yields the documents of a source that hold more than white space; \r\n becomes \n.

    Raises:
      UserError: a document is not UTF-8 text or too long, or a line is not a JSON object with the field.
    """
    name = str(source.path or source.name)
    found: Iterator[tuple[int, bytes, int]]
    if config.format == "tfds":
        found = ((number, text, len(text)) for number, (text,) in enumerate(_public(config)[1], 1))
    elif config.format == "json_lines":
        found = _json_lines(source, config.field)
    else:
        found = _split(source, config.separator.replace("\r\n", "\n").encode())
    for line, content, n_bytes in found:
        if len(content) > MAX_BYTES:
            how = "set data.separator to the text between documents" if config.format == "files" else "cut it"
            raise UserError(f"{name}:{line}: a document of more than {MAX_BYTES} bytes; {how}")
        if wrong := not_text(content):
            index, problem = wrong
            raise UserError(f"{name}:{line + content[:index].count(10)}: {problem}")
        text = content.decode("utf-8").replace("\r\n", "\n")
        if text and not text.isspace():
            yield Document(text.lower() if config.lower_case else text, n_bytes)


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[BinaryIO]:
    """Opens a file behind its byte order mark. Raises a UserError that names it if it is compressed or unreadable."""
    if source.path is None:
        yield io.BytesIO(source.content)
        return
    try:
        with source.path.open("rb") as file:
            start = file.peek(1)
            require_uncompressed(start, f"data.path: {source.path}")
            file.read(len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0)
            yield file
    except OSError as error:
        raise UserError(f"data.path: {source.path}: {error.strerror}") from None


def _split(source: Source, separator: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yields line, content and size of each document of a text file; too long a document ends it."""
    with _opened(source) as file:
        line, rest = 1, b""
        # A piece ends where a line does, so none is cut within a line's end of two bytes.
        while (chunk := file.read(CHUNK) + file.readline(MAX_BYTES)) and len(rest) <= MAX_BYTES:
            rest += chunk.replace(b"\r\n", b"\n")
            *whole, rest = rest.split(separator) if separator else [rest]
            for content in whole:
                yield line, content, len(content) + len(separator)
                line += content.count(10) + separator.count(10)
        yield line, rest, len(rest)


def _json_lines(source: Source, field: str) -> Iterator[tuple[int, bytes, int]]:
    """Yields the number of each line that is not blank, the text in the field of its object, and the line's size.

    Raises:
      UserError: a line is not a JSON object with a text in the field.
    """
    with _opened(source) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            where = f"{source.path}:{number}"
            try:
                record = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{where}: not JSON: {error}") from None
            fields = record if isinstance(record, dict) else {}
            if field not in fields:
                raise UserError(f"{where}: no field '{field}' (data.field){nearest(field, fields)}")
            if not isinstance(fields[field], str):
                raise UserError(f"{where}: field '{field}': expected a text, got {type(fields[field]).__name__}")
            yield number, fields[field].encode("utf-8", "surrogatepass"), len(line)


def part_of(config: DocumentsConfig, text: str) -> str:
    """Returns the part that a document belongs to, by a hash of its text; so all copies of it are in the same part."""
    place = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    if place < config.validation:
        return "validation"
    return "test" if place < config.validation + config.test else "train"


def sample(config: DocumentsConfig) -> Iterator[str]:
    """Yields documents of the training part, about `SAMPLE` bytes of them, from the start of evenly spread sources."""
    found = sources(config)
    share = min(1, SAMPLE / max(sum(source.size for source in found), 1))
    wanted, taken = 0.0, 0
    for source in found:
        wanted += share * source.size
        for document in read(config, source) if taken < wanted else ():
            if part_of(config, document.text) == "train":
                yield document.text
                taken += len(document.text.encode())
            if taken >= wanted:
                break

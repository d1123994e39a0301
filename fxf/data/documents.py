"""Documents from text files, JSON lines, Parquet or a TFDS data set, read one at a time."""

import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from fxf.base.config import key
from fxf.base.errors import UserError, nearest, text_of
from fxf.base.files import digest, file_digest, files_below, folder_at, is_remote, require_file
from fxf.data import phrasebook
from fxf.data.text import TextConfig
from fxf.data.text_files import decoded, unpacked

PARTS = ("train", "validation", "test")
MAX_BYTES = 2**24  # of a document
CHUNK = 2**20  # bytes read at once
ROWS = 64  # of a Parquet file, read at once
PREPARED = ".prepared"  # suffix of the folder of tokens, which lies beside the documents
SAMPLE = 2**24  # bytes of text from which a tokenizer is learned
ON_DISK = "format=files or json_lines or tfds"


@dataclasses.dataclass(frozen=True)
class DocumentsConfig(TextConfig):
    """The `data` section of `language_model`."""

    format: Literal["text", "files", "json_lines", "tfds"] = key(
        "text", "text: one text, held in memory; others: documents, of text files, of JSON lines or Parquet, or of TFDS"
    )
    separator: str = key("", "text between documents of a file; by default a file is one", when="format=files")
    field: str = key("text", "field or column of the text; may be nested: meta.text", when="format=json_lines or tfds")
    split: str = key("train", "the split to read", when="format=tfds")
    prepared: str = key("", "folder for the tokens; by default one beside path, named path.prepared", when=ON_DISK)
    sources: dict[str, dict[str, Any]] = key(
        {}, "a mixture: weight, path and other keys of each source, by its name", when=ON_DISK
    )

    def __post_init__(self) -> None:
        if self.sources and self.path:
            raise UserError("data.path: each of data.sources has its own; leave it at ''")
        if self.format in ("json_lines", "tfds") and not self.path and not self.sources:
            raise UserError(f"data.path: data.format '{self.format}' needs it; give --config.data.path")


class Source(NamedTuple):
    """Where documents come from.

    Attributes:
      name: the file's path below `data.path`, or the name of the data set.
      path: the file; None for the phrase book and TFDS.
      size: in bytes.
      changed: the file's modification time in nanoseconds; 0 without a file.
      content: without a file, the bytes that its digest covers.
    """

    name: str
    path: Path | None
    size: int
    changed: int = 0
    content: bytes = b""

    def digest(self) -> str:
        return file_digest(self.path) if self.path else digest(self.content)


def sources(config: DocumentsConfig) -> list[Source]:
    """Returns the files that hold the documents, in order.

    Names that begin with a dot and folders of prepared tokens (`PREPARED`) are left out.

    Raises:
      UserError: the file, folder or data set does not exist, the folder is empty, or no file fits the pattern.
    """
    if config.format == "tfds":
        (name, *files), _ = _public(config)
        size = sum(n_bytes for _, n_bytes in files)
        return [Source(f"{name}:{config.split}", None, size, content=repr((name, files)).encode())]
    if not config.path:
        content = phrasebook.english().encode()
        return [Source("phrasebook", None, len(content), content=content)]
    folder, pattern = folder_and_pattern(config.path)
    if not (folder.is_dir() or (pattern and folder.exists())):
        return [_file(folder, folder.name)]
    below = folder.glob(pattern) if pattern else [folder]
    matches = {file for path in below for file in (files_below(path) if path.is_dir() else [path])}
    unwanted = re.compile(rf"(^|/)\.|{re.escape(PREPARED)}/")
    seen = (file for file in matches if not unwanted.search(file.relative_to(folder).as_posix()))
    once = {file.resolve(): file for file in sorted(seen, reverse=True)}  # several links may lead to one file
    if not once:
        why = f"no file fits the pattern {pattern}" if pattern else "the folder has no files"
        raise UserError(f"data.path: {folder}: {why}")
    return [_file(file, file.relative_to(folder).as_posix()) for file in sorted(once.values())]


def folder_and_pattern(path: str) -> tuple[Path, str]:
    """Splits `data.path` into a file or folder, and the pattern of the files in it, "" for none."""
    whole = folder_at(path, "data.path")
    parts = whole.parts
    wild = (i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
    first = next((i for i in wild if not type(whole)(*parts[: i + 1]).exists()), len(parts))  # names may have brackets
    if odd := next((part for part in parts[first:] if "**" in part and part != "**"), ""):
        raise UserError(f"data.path: {path}: ** stands for folders, such as in **/*.txt; got {odd}")
    return type(whole)(*parts[:first]), "/".join(parts[first:])


def _file(path: Path, name: str) -> Source:
    if is_remote(path):
        stat: Any = path.stat()
        return Source(name, path, stat.length, int(stat.mtime))
    return Source(name, path, require_file(path, "data.path"), path.stat().st_mtime_ns)


def _public(config: DocumentsConfig) -> tuple[list[Any], Iterator[tuple[bytes, ...]]]:
    from fxf.data.public_sets import read_public  # imported here because TFDS takes a second

    manifest, (texts,) = read_public(config.path, {"field": config.field}, [config.split])
    return manifest, texts


def read(config: DocumentsConfig, source: Source) -> Iterator[tuple[str, int]]:
    r"""Yields each text of a source that is not blank, and the number of bytes of its file that were read so far.

    \r\n becomes \n.

    Raises:
      UserError: a file is damaged; a document is not UTF-8 text or too long; or a record has no text in the field.
    """
    where = str(source.path or source.name)
    for line, content, n_read in _contents(config, source, where):
        if len(content) > MAX_BYTES:
            how = "set data.separator to the text between documents" if config.format == "files" else "cut it"
            raise UserError(f"{where}:{line}: a document of more than {MAX_BYTES} bytes; {how}")
        text = decoded(content, where, line).replace("\r\n", "\n")
        if text and not text.isspace():
            yield text.lower() if config.lower_case else text, n_read


def _contents(config: DocumentsConfig, source: Source, where: str) -> Iterator[tuple[int, bytes, int]]:
    """Yields the line or row where each document starts, its content, and the number of bytes read so far.

    Raises:
      UserError: as `unpacked` or the reader of the format.
    """
    if config.format == "tfds":
        for number, (text,) in enumerate(_public(config)[1], 1):
            yield number, text, 0
        return
    opened = io.BytesIO(source.content) if source.path is None else source.path.open("rb")
    with opened as raw, unpacked(raw, f"data.path: {where}") as file:
        if config.format == "files":
            documents = _split(file, config.separator.replace("\r\n", "\n").encode())
        else:
            documents = (_parquet if file.peek(4).startswith(b"PAR1") else _json_lines)(file, config.field, where)
        for line, content in documents:
            yield line, content, raw.tell()


def _split(file: BinaryIO, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the first line and the content of each document of a text file; stops after one that is too long."""
    line, rest = 1, b""
    # Each chunk ends at the end of a line, so no \r\n is cut in two.
    while (chunk := file.read(CHUNK) + file.readline(MAX_BYTES)) and len(rest) <= MAX_BYTES:
        rest += chunk.replace(b"\r\n", b"\n")
        *whole, rest = rest.split(separator) if separator else [rest]
        for content in whole:
            yield line, content
            line += content.count(10) + separator.count(10)
    yield line, rest


def _json_lines(file: BinaryIO, field: str, where: str) -> Iterator[tuple[int, bytes]]:
    """Yields the number of each line that is not blank, and the text in its object's field.

    Raises:
      UserError: a line is not a JSON object, or its field holds no text.
    """
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        if line.lstrip().startswith(b"["):
            raise UserError(f"{where}:{number}: an array; expected an object on each line, as `jq -c '.[]'` writes it")
        try:
            record = json.loads(decoded(line, where, number))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}:{number}: not JSON: {error}; expected an object on each line") from None
        yield number, _text_in(record, field, f"{where}:{number}")


def _parquet(file: BinaryIO, field: str, where: str) -> Iterator[tuple[int, bytes]]:
    """Yields the number of each row of a Parquet file, and the text in its column `field`.

    Raises:
      UserError: the file is damaged, has no such column, or the column is not UTF-8 text.
    """
    import pyarrow  # imported here because it takes a fifth of a second
    from pyarrow import parquet

    number = 0
    try:
        table = parquet.ParquetFile(file, buffer_size=CHUNK, pre_buffer=False)
        # Only this column is read, even within a struct: Python may lack the types of the others.
        leaves = (table.schema.column(i).path for i in range(len(table.schema)))
        columns = [name for name in [*leaves, *table.schema_arrow.names] if f"{field}.".startswith(f"{name}.")][:1]
        if not columns:
            _text_in(dict.fromkeys(table.schema_arrow.names), field, where)
        batches = table.iter_batches(ROWS, columns=columns, use_threads=False)
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
            yield number, _text_in(row, field, f"{where}: row {number}")
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{where}: not a Parquet file: {text_of(error)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: after row {number}: not UTF-8: {error.reason} in {error.object!r:.60}") from None


def _text_in(record: Any, field: str, where: str) -> bytes:
    """Returns the text in a field of a record; "a.b" is field b of a. A null record or field has an empty text.

    Raises:
      UserError: there is no such field, or it is no text.
    """
    value = record
    for name in [field] if isinstance(record, dict) and field in record else field.split("."):
        fields = value if isinstance(value, dict) else {}
        if name not in fields and value is not None:
            here = f"; here are {', '.join(fields)}" if fields else f" in a {type(value).__name__}"
            raise UserError(f"{where}: no field '{field}' (data.field){nearest(name, fields) or here}")
        value = fields.get(name)
    if not isinstance(value, str | None):
        raise UserError(f"{where}: field '{field}': expected a text, got {type(value).__name__}")
    return (value or "").encode("utf-8", "surrogatepass")


def part_of(config: DocumentsConfig, text: str) -> str:
    """Returns the part of a document, chosen by a hash of its text, so that all copies are in the same part."""
    fraction = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    if fraction < config.validation:
        return "validation"
    return "test" if fraction < config.validation + config.test else "train"


def sample(config: DocumentsConfig, share: float = 1.0) -> Iterator[str]:
    """Yields about `share` × `SAMPLE` bytes of training documents, from the start of files spread over all of them."""
    files = sources(config)
    share *= SAMPLE / max(sum(source.size for source in files), 1)
    wanted, taken = 0.0, 0
    for source in files:
        wanted += share * source.size
        for text, _ in read(config, source) if taken < wanted else ():
            if part_of(config, text) == "train":
                yield text
                taken += len(text.encode())
            if taken >= wanted:
                break

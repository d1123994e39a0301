"""Tokens of documents, prepared once in a folder, and then read from the disk by position.

The folder holds a file of tokens for each part: the documents one after the other, each with the token that ends it.
manifest.json has what they were made from, and is written last.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fxf.data.alone import alone, unfinished_folder
from fxf.data.documents import (
    PARTS,
    Document,
    DocumentsConfig,
    Source,
    part_of,
    read,
    require_separator,
    sample,
    sources,
)
from fxf.data.encoding import Encoder, token_type
from fxf.data.lines import lines_of
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer
from fxf.data.tokenizer_file import any_tokenizer, is_file
from fxf.errors import UserError
from fxf.files import digest, file_digest, folder_at, read_json, remove, why_not_written, write_atomically
from fxf.machine.status import stage
from fxf.machine.work import by_threads

MANIFEST = "manifest.json"
VERSION, VERSION_OF_FILE = 1, 2  # of the stored tokens; raise it when the same documents would give others
GROUP = 2**18  # characters of documents that a thread encodes at once


@dataclasses.dataclass
class Counts:
    """The size of a part: of its text, and of its tokens with those that end the documents."""

    documents: int = 0
    characters: int = 0
    bytes: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, other: "Counts") -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Prepared(NamedTuple):
    """Prepared documents.

    Attributes:
      digest: that of the text, the tokenizer and the keys that they were made from.
      text: a digest of the text and of the keys by which it is read and split, whatever the tokenizer.
    """

    folder: Path
    digest: str
    text: str
    counts: dict[str, Counts]
    dtype: np.dtype

    def tokens(self, part: str) -> np.ndarray:
        """Returns the tokens [N] of a part, mapped from the disk."""
        return np.memmap(self.folder / f"{part}.tokens", self.dtype, "r")


def _folder_of(config: DocumentsConfig, tokenizer: Tokenizer | None) -> Path:
    """Returns the folder of the tokens of a config, whose name is a digest of what they depend on besides the text.

    Args:
      tokenizer: the tokenizer; not needed if it is learned from the documents.
    """
    from_files = bool(config.path) and config.format != "tfds"
    path = Path(os.path.abspath(os.path.expanduser(config.path)))
    if config.prepared:
        place = Path(os.path.abspath(os.path.expanduser(config.prepared)))
        if from_files and place.is_relative_to(path):
            raise UserError(f"data.prepared: {place}: expected a folder outside of data.path, {path}")
    elif from_files:
        place = Path(f"{path}.prepared")
    else:
        from fxf.data.builders import data_dir  # imported here because TFDS takes a second

        place = Path(data_dir(), "documents")
    name = path.name if from_files else config.path
    of_file = _tokenizer_digest(tokenizer) if tokenizer else ""
    place = folder_at(place, "data.prepared")
    return place / digest(json.dumps([name, _options(config), of_file]).encode())[:16]


def _options(config: DocumentsConfig) -> dict[str, Any]:
    """Returns what the tokens depend on besides the text and a tokenizer file."""
    others = ("path", "prepared", "tokenizer") if is_file(config.tokenizer) else ("path", "prepared")
    keys = {name: value for name, value in dataclasses.asdict(config).items() if name not in others}
    return {**keys, "version": VERSION_OF_FILE if is_file(config.tokenizer) else VERSION}


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    return digest(tokenizer.to_json().encode())


def tokenizer_of_documents(config: DocumentsConfig, folder: Path | None) -> Tokenizer:
    """Returns the tokenizer of the run folder, of a file, or of prepared documents, or learns it from a sample of them.

    Raises:
      UserError: as `any_tokenizer` and `read`.
    """
    if not is_file(config.tokenizer) and (folder is None or not (folder / TOKENIZER_FILE).exists()):
        place = _folder_of(config, None)
        folder = place if (place / MANIFEST).exists() else None

    def texts() -> Iterator[str]:
        return itertools.chain.from_iterable(map(lines_of, sample(config)))

    return any_tokenizer(folder, config.tokenizer, config.vocab_size, texts)


def prepared(config: DocumentsConfig, tokenizer: Tokenizer) -> Prepared:
    """Returns the documents that `config` names, and prepares them first if they are not.

    Preparation holds a few megabytes of text at once. If it is killed, it starts again; of several processes one
    prepares and the others wait.

    Raises:
      UserError: a document cannot be read, or has changed since; a part would be empty; or the folder cannot be
        written, is damaged or belongs to another tokenizer.
    """
    folder, found = _folder_of(config, tokenizer if is_file(config.tokenizer) else None), sources(config)
    if not (folder / MANIFEST).exists():
        require_separator(config, found)
        try:
            with alone(folder.with_suffix(".lock")):
                if not (folder / MANIFEST).exists():
                    _prepare(config, tokenizer, found, folder)
        except OSError as error:
            why = why_not_written(error) or error.strerror or error
            raise UserError(f"{folder}: {why}; data.prepared names another folder") from error
    return _opened(config, folder, tokenizer, found)


def _prepare(config: DocumentsConfig, tokenizer: Tokenizer, found: list[Source], folder: Path) -> None:
    """Writes the folder under a name of this process, and renames it when it is whole."""
    unfinished = unfinished_folder(folder)
    try:
        _write(config, tokenizer, found, unfinished)
        if folder.exists() and not (folder / MANIFEST).exists():
            remove(folder)
        if not folder.exists():
            unfinished.rename(folder)
    except OSError:
        if not (folder / MANIFEST).exists():  # else another process, whose lock this one did not see, was faster
            raise
    finally:
        remove(unfinished)


def _write(config: DocumentsConfig, tokenizer: Tokenizer, found: list[Source], unfinished: Path) -> None:
    """Writes the tokens of all parts, the tokenizer, and last the manifest."""
    digests: list[str] = []
    counts = {part: Counts() for part in PARTS}
    name, n_bytes = config.path or "the phrase book", sum(source.size for source in found)
    with contextlib.ExitStack() as stack:
        files = {part: stack.enter_context((unfinished / f"{part}.tokens").open("wb")) for part in PARTS}
        advance = stack.enter_context(stage(f"preparing {name}", n_bytes)).advance
        for part, tokens, size in _encoded(config, tokenizer, _documents(config, found, digests, advance)):
            files[part].write(tokens.data)
            counts[part].add(size)
    _require_parts(config, counts)
    record = {
        "text": digests,
        "tokenizer": _tokenizer_digest(tokenizer),
        "dtype": token_type(tokenizer.vocab_size).name,
        "sources": [[source.name, source.size, source.changed] for source in found],
        "counts": {part: dataclasses.asdict(size) for part, size in counts.items()},
    }
    (unfinished / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
    for path in unfinished.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    write_atomically(unfinished / MANIFEST, json.dumps(record, indent=1) + "\n")


def _require_parts(config: DocumentsConfig, counts: dict[str, Counts]) -> None:
    """Raises a UserError if a part that is needed has no document."""
    n = sum(size.documents for size in counts.values())
    if not n:
        raise UserError(f"data.path: {config.path}: expected documents, got only white space")
    for part in PARTS:
        needed = part == "train" or getattr(config, part) > 0
        if needed and not counts[part].documents:
            key, share = ("validation", 1.0) if part == "train" else (part, getattr(config, part))
            what = f"none of the {n} documents is for {part}" + (f", whose share is {share}" if part != "train" else "")
            raise UserError(f"data.{key}: {config.path or 'the phrase book'}: {what}; more documents or another share")


def _documents(
    config: DocumentsConfig, found: list[Source], digests: list[str], advance: Callable[[int], None]
) -> Iterator[Document]:
    """Yields the documents of all sources, and adds each source's digest to `digests`."""
    for source in found:
        hashed = hashlib.blake2b(digest_size=16)

        def on_bytes(content: bytes, hashed: Any = hashed) -> None:
            hashed.update(content)
            advance(len(content))

        yield from read(config, source, on_bytes)
        digests.append(hashed.hexdigest())


def _encoded(
    config: DocumentsConfig, tokenizer: Tokenizer, documents: Iterable[Document]
) -> Iterator[tuple[str, np.ndarray, Counts]]:
    """Yields each document's part, tokens [N] with the one that ends it, and size, in order."""
    encoder, dtype = Encoder(tokenizer), token_type(tokenizer.vocab_size)

    def encode(group: list[Document]) -> list[tuple[str, np.ndarray, Counts]]:
        return [_encode(document.text) for document in group]

    def _encode(text: str) -> tuple[str, np.ndarray, Counts]:
        tokens_N = np.append(encoder.encode(text), dtype.type(tokenizer.special.eos))
        unknown = int(np.count_nonzero(tokens_N == tokenizer.special.unk))
        return part_of(config, text), tokens_N, Counts(1, len(text), len(text.encode()), len(tokens_N), unknown)

    yield from itertools.chain.from_iterable(by_threads(encode, _groups(documents)))


def _groups(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yields lists of consecutive documents of about `GROUP` characters."""
    group: list[Document] = []
    n_characters = 0
    for document in documents:
        group.append(document)
        n_characters += len(document.text)
        if n_characters >= GROUP:
            yield group
            group, n_characters = [], 0
    yield group


def _opened(config: DocumentsConfig, folder: Path, tokenizer: Tokenizer, found: list[Source]) -> Prepared:
    """Returns the documents in a folder, after comparing the tokenizer, the sources and the sizes with its manifest."""
    again = f"remove {folder} to prepare it again"
    try:
        record = read_json(folder / MANIFEST, "a manifest of documents")
        counts = {part: Counts(**record["counts"][part]) for part in PARTS}
        dtype, before = np.dtype(record["dtype"]), {name: row for name, *row in record["sources"]}
        digests = dict(zip(before, record["text"], strict=True))
        identity = digest(json.dumps([record["text"], record["tokenizer"], _options(config)]).encode())
        split = {
            name: value
            for name, value in _options(config).items()
            if name not in ("tokenizer", "vocab_size", "version")
        }
        text = digest(json.dumps([record["text"], split]).encode())
        same_tokenizer = record["tokenizer"] == _tokenizer_digest(tokenizer)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{folder / MANIFEST}: not a manifest of documents; {again}") from None
    if not same_tokenizer:
        raise UserError(f"{folder}: was prepared with another tokenizer than {TOKENIZER_FILE} of the run; {again}")
    for part, size in counts.items():
        path = folder / f"{part}.tokens"
        if not path.exists() or path.stat().st_size != size.tokens * dtype.itemsize:
            raise UserError(f"{path}: expected {size.tokens} tokens; the file is damaged; {again}")
    for source in found:
        if before.get(source.name) != [source.size, source.changed] and _differs(source, before, digests):
            what = "changed since its tokens were prepared" if source.name in before else "was added since"
            raise UserError(f"data.path: {source.path or source.name}: {what}; {again}")
    if gone := before.keys() - {source.name for source in found}:
        raise UserError(f"data.path: {min(gone)}: is missing; put it back, or {again}")
    return Prepared(folder, identity, text, counts, dtype)


def _differs(source: Source, before: dict[str, list[int]], digests: dict[str, str]) -> bool:
    """Returns whether a source, whose time of change is another one, has other content."""
    if source.name not in before or before[source.name][0] != source.size:
        return True
    if source.path is None:
        return digest(source.content) != digests[source.name]
    return file_digest(source.path) != digests[source.name]

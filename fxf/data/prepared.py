"""Tokens of documents, prepared once in a folder, and then read from the disk by position.

The folder holds a file of tokens for each part: the documents one after the other, each with the token that ends it.
Its name is a digest of what the tokens depend on, so other files or keys have a folder of their own.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np

from fxf.base.errors import UserError
from fxf.base.files import digest, folder_at, read_json, remove, why_not_written, write_atomically
from fxf.base.status import stage
from fxf.base.work import by_threads
from fxf.data.documents import PARTS, Document, DocumentsConfig, Source, part_of, read, sample, sources
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer, lines_of
from fxf.data.tokenizer_file import any_tokenizer, is_file

MANIFEST, UNFINISHED = "manifest.json", ".unfinished"
VERSION, VERSION_OF_FILE = 1, 2  # of the stored tokens; raise it when the same documents would give others
GROUP = 32  # documents that a thread encodes at once


class Counts(NamedTuple):
    """The size of a part: of its text, and of its tokens with those that end the documents."""

    documents: int = 0
    characters: int = 0
    bytes: int = 0
    tokens: int = 0
    unknown: int = 0


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


def tokenizer_of_documents(config: DocumentsConfig, folder: Path | None) -> Tokenizer:
    """Returns the tokenizer of the run folder, of a file, or of prepared documents, or learns it from a sample of them.

    Raises:
      UserError: as `any_tokenizer` and `read`.
    """
    if not is_file(config.tokenizer) and (folder is None or not (folder / TOKENIZER_FILE).exists()):
        folder = _folder_of(config, None, sources(config))

    def texts() -> Iterator[str]:
        return itertools.chain.from_iterable(map(lines_of, sample(config)))

    return any_tokenizer(folder, config.tokenizer, config.vocab_size, texts)


def prepared(config: DocumentsConfig, tokenizer: Tokenizer) -> Prepared:
    """Returns the documents that `config` names, and prepares them first if they are not.

    Preparation holds a few megabytes of text at once. If it is killed, it starts again; of several processes one
    prepares and the others wait.

    Raises:
      UserError: a document cannot be read; a part would be empty; or the folder cannot be written, is damaged or
        belongs to another tokenizer.
    """
    found = sources(config)
    folder = _folder_of(config, tokenizer, found)
    if not (folder / MANIFEST).exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                stack.enter_context(filelock.FileLock(folder.with_suffix(".lock")))
                stack.callback(remove, folder.with_suffix(UNFINISHED))
                if not (folder / MANIFEST).exists():
                    _prepare(config, tokenizer, found, folder)
        except OSError as error:
            why = why_not_written(error) or error.strerror or error
            raise UserError(f"{folder}: {why}; data.prepared names another folder") from error
    return _open(config, folder, tokenizer)


def _folder_of(config: DocumentsConfig, tokenizer: Tokenizer | None, found: list[Source]) -> Path:
    """Returns the folder of the tokens of a config.

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
        from fxf.data.public_sets import data_dir  # imported here because TFDS takes a second

        place = Path(data_dir(), "documents")
    of_file = _tokenizer_digest(tokenizer) if tokenizer and is_file(config.tokenizer) else ""
    texts = [(source.name, source.size, source.changed, digest(source.content)) for source in found]
    name = digest(json.dumps([_options(config), of_file, texts]).encode())[:16]
    return folder_at(place, "data.prepared") / name


def _options(config: DocumentsConfig) -> dict[str, Any]:
    """Returns what the tokens depend on besides the text and a tokenizer file."""
    others = ("path", "prepared", "tokenizer") if is_file(config.tokenizer) else ("path", "prepared")
    keys = {name: value for name, value in dataclasses.asdict(config).items() if name not in others}
    return {**keys, "version": VERSION_OF_FILE if is_file(config.tokenizer) else VERSION}


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    return digest(tokenizer.to_json().encode())


def _prepare(config: DocumentsConfig, tokenizer: Tokenizer, found: list[Source], folder: Path) -> None:
    """Writes the tokens of all parts, the tokenizer and the manifest; the folder has its name when it is whole."""
    unfinished = folder.with_suffix(UNFINISHED)
    remove(unfinished)  # of a process that was killed
    unfinished.mkdir()
    counts, n_bytes, done = dict.fromkeys(PARTS, Counts()), sum(source.size for source in found), 0
    with contextlib.ExitStack() as stack:
        files = {part: stack.enter_context((unfinished / f"{part}.tokens").open("wb")) for part in PARTS}
        progress = stack.enter_context(stage(f"preparing {config.path or 'the phrase book'}", n_bytes))
        documents = (document for source in found for document in read(config, source))
        groups = iter(lambda: [*itertools.islice(documents, GROUP)], [])
        for encoded, n in by_threads(functools.partial(_encoded, config, tokenizer), groups):
            for part, tokens_N, size in encoded:
                files[part].write(tokens_N.data)
                counts[part] = Counts(*map(sum, zip(counts[part], size, strict=True)))
            progress(done := done + n)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    _require_parts(config, counts, len(found))
    record = {
        "text": [source.digest() for source in found],
        "tokenizer": _tokenizer_digest(tokenizer),
        "sources": [source.name for source in found],
        "counts": {part: size._asdict() for part, size in counts.items()},
    }
    write_atomically(unfinished / TOKENIZER_FILE, tokenizer.to_json())
    write_atomically(unfinished / MANIFEST, json.dumps(record, indent=1) + "\n")
    remove(folder)  # without a manifest
    unfinished.rename(folder)


def _encoded(
    config: DocumentsConfig, tokenizer: Tokenizer, documents: list[Document]
) -> tuple[list[tuple[str, np.ndarray, Counts]], int]:
    """Returns each document's part, tokens [N] with the one that ends it and size, and the bytes that all take."""
    found = []
    for text, _ in documents:
        tokens_N = np.append(tokenizer.array(text), tokenizer.dtype.type(tokenizer.special.eos))
        unknown = int(np.count_nonzero(tokens_N == tokenizer.special.unk))
        size = Counts(1, len(text), len(text.encode()), len(tokens_N), unknown)
        found.append((part_of(config, text), tokens_N, size))
    return found, sum(document.n_bytes for document in documents)


def _require_parts(config: DocumentsConfig, counts: dict[str, Counts], n_sources: int) -> None:
    """Raises a UserError if a part that is needed has no document, or `data.separator` cuts no file."""
    n, name = sum(size.documents for size in counts.values()), config.path or "the phrase book"
    if not n:
        raise UserError(f"data.path: {name}: expected documents, got only white space")
    if config.separator and n <= n_sources:
        raise UserError(f"data.separator: {config.separator!r} stands between no documents of {name}")
    for part in PARTS:
        share = getattr(config, part, 1.0)
        if share > 0 and not counts[part].documents:
            key = "validation" if part == "train" else part
            what = f"none of the {n} documents is for {part}"
            raise UserError(f"data.{key}: {name}: {what}; more documents or another share than {share}")


def _open(config: DocumentsConfig, folder: Path, tokenizer: Tokenizer) -> Prepared:
    """Returns the documents in a folder, after comparing the tokenizer and the sizes with its manifest."""
    again = f"remove {folder} to prepare it again"
    record = read_json(folder / MANIFEST, "a manifest of documents")
    if record["tokenizer"] != _tokenizer_digest(tokenizer):
        raise UserError(f"{folder}: was prepared with another tokenizer than {TOKENIZER_FILE} of the run; {again}")
    counts = {part: Counts(**record["counts"][part]) for part in PARTS}
    for part, size in counts.items():
        path = folder / f"{part}.tokens"
        if not path.exists() or path.stat().st_size != size.tokens * tokenizer.dtype.itemsize:
            raise UserError(f"{path}: expected {size.tokens} tokens; the file is damaged; {again}")
    options = _options(config)
    identity = digest(json.dumps([record["text"], record["tokenizer"], options]).encode())
    split = {name: value for name, value in options.items() if name not in ("tokenizer", "vocab_size", "version")}
    text = digest(json.dumps([record["text"], split]).encode())
    return Prepared(folder, identity, text, counts, tokenizer.dtype)

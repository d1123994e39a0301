"""Tokens of documents, prepared once in a folder, and then read from the disk by position.

The folder holds a file of tokens for each part: the documents one after the other, each with the token that ends it.
Its name is a digest of what the tokens depend on, so other files or keys have a folder of their own.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np

from fxf.base.errors import UserError
from fxf.base.files import digest, folder_at, is_remote, read_json, why_not_written, write_atomically
from fxf.data.documents import PARTS, PREPARED, DocumentsConfig, Source, folder_and_pattern, sample, sources
from fxf.data.mixture import Part
from fxf.data.preparation import MANIFEST, Counts, digest_of, prepare
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer, lines_of
from fxf.data.tokenizer_file import any_tokenizer, is_file, is_learned

VERSION, VERSION_OF_FILE = 1, 2  # of the stored tokens; raise it when the same documents would give others


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


def tokenizer_of_documents(parts: Mapping[str, Part], folder: Path | None) -> Tokenizer:
    """Returns the tokenizer of the run folder, of a file, or of prepared documents, or learns it from a sample of them.

    The sample of a mixture has of each source its share. What is learned of it is kept beside the first one's tokens.

    Raises:
      UserError: as `any_tokenizer` and `read`.
    """
    first, *others = parts.values()
    config, in_run = first.config, folder is not None and (folder / TOKENIZER_FILE).exists()
    learned = not in_run and is_learned(config.tokenizer)
    if learned:
        names = [_name(part.config, "", sources(part.config)) for part in parts.values()]
        shares = [part.share for part in parts.values()]
        folder = _place(config) / (digest(json.dumps([names, shares]).encode())[:16] if others else names[0])
    texts = (text for part in parts.values() for text in sample(part.config, part.share))
    found = any_tokenizer(
        folder, config.tokenizer, config.vocab_size, lambda: itertools.chain.from_iterable(map(lines_of, texts))
    )
    if others and learned and folder and not (kept := folder / TOKENIZER_FILE).exists():
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, found.to_json())
    return found


def prepared(config: DocumentsConfig, tokenizer: Tokenizer, alone: bool = True) -> Prepared:
    """Returns the documents that `config` names, and prepares them first if they are not.

    Preparation holds a few megabytes of text at once. If it is killed, it goes on where it stopped; of several
    processes one prepares and the others wait.

    Args:
      alone: whether they are no source of a mixture, of which all learn one tokenizer.

    Raises:
      UserError: a document cannot be read; a part would be empty; or the folder cannot be written, is damaged or
        belongs to another tokenizer.
    """
    found = sources(config)
    its_own = alone and is_learned(config.tokenizer)
    folder = _place(config) / _name(config, "" if its_own else digest_of(tokenizer), found)
    if not (folder / MANIFEST).exists():
        with _writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder.with_suffix(".lock")):
                if not (folder / MANIFEST).exists():
                    prepare(config, tokenizer, found, folder)
    return _open(config, folder, tokenizer)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turns an error of the disk into one line."""
    try:
        yield
    except OSError as error:
        why = why_not_written(error) or error.strerror or error
        raise UserError(f"{folder}: {why}; data.prepared names another folder") from error


def _place(config: DocumentsConfig) -> Path:
    """Returns the folder below which the tokens of a config have theirs."""
    from_files = bool(config.path) and config.format != "tfds"
    path = folder_and_pattern(config.path)[0] if from_files else Path()
    if config.prepared:
        place = Path(os.path.abspath(os.path.expanduser(config.prepared)))
        if from_files and not is_remote(path) and place.is_relative_to(inside := os.path.abspath(path)):
            raise UserError(f"data.prepared: {place}: expected a folder outside of data.path, {inside}")
        return folder_at(place, "data.prepared")
    if is_remote(path):
        raise UserError("data.prepared: documents in a bucket need it; give a folder on a disk")
    if from_files:
        return Path(f"{os.path.abspath(path)}{PREPARED}")
    from fxf.data.public_sets import data_dir  # imported here because TFDS takes a second

    return Path(data_dir(), "documents")


def _name(config: DocumentsConfig, of_tokenizer: str, found: list[Source]) -> str:
    """Returns the name of the folder of a config's tokens.

    Args:
      of_tokenizer: the digest of the tokenizer, "" if it is learned from these documents alone.
    """
    # In a folder that is given, unlike files of one name, size and time may meet; beside the files they cannot.
    place = folder_and_pattern(config.path)[0] if config.prepared and config.path and config.format != "tfds" else ""
    where = [str(place) if place and is_remote(place) else os.path.abspath(place)] if place else []
    texts = [(x.name, x.size, x.changed, digest(x.content), *where) for x in found]
    return digest(json.dumps([_options(config), of_tokenizer, texts]).encode())[:16]


def _options(config: DocumentsConfig) -> dict[str, Any]:
    """Returns what the tokens depend on besides the text and a tokenizer file."""
    others = ("path", "prepared", "sources", *(["tokenizer"] if is_file(config.tokenizer) else []))
    keys = {name: value for name, value in dataclasses.asdict(config).items() if name not in others}
    return {**keys, "version": VERSION_OF_FILE if is_file(config.tokenizer) else VERSION}


def _open(config: DocumentsConfig, folder: Path, tokenizer: Tokenizer) -> Prepared:
    """Returns the documents in a folder, after comparing the tokenizer and the sizes with its manifest."""
    again = f"remove {folder} to prepare it again"
    record = read_json(folder / MANIFEST, "a manifest of documents")
    if record["tokenizer"] != digest_of(tokenizer):
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

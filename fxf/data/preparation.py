"""Documents to tokens, in files in a folder. What is killed goes on where it stopped.

The folder holds a file of tokens for each part: the documents one after the other, each with the token that ends it.
"""

import contextlib
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from fxf.base.errors import UserError
from fxf.base.files import digest, read_json, remove, write_atomically
from fxf.base.status import say, stage
from fxf.base.work import by_threads
from fxf.data.documents import PARTS, DocumentsConfig, Source, part_of, read
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer

MANIFEST, UNFINISHED, JOURNAL_FILE = "manifest.json", ".unfinished", "journal.json"
GROUP = 2**17  # characters of documents that a thread encodes at once
JOURNAL = 2**25  # characters after which the journal is written


class Counts(NamedTuple):
    """The size of a part: of its text, and of its tokens with those that end the documents."""

    documents: int = 0
    characters: int = 0
    bytes: int = 0
    tokens: int = 0
    unknown: int = 0


def digest_of(tokenizer: Tokenizer) -> str:
    """Returns the digest of a tokenizer's file."""
    return digest(tokenizer.to_json().encode())


class Begun(NamedTuple):
    """How much is prepared: up to which document of which source, and the sizes of the parts.

    Attributes:
      done: the bytes of the files that are read.
    """

    tokenizer: str
    source: int = 0
    documents: int = 0
    done: int = 0
    counts: dict[str, Counts] = dict.fromkeys(PARTS, Counts())


def prepare(config: DocumentsConfig, tokenizer: Tokenizer, found: list[Source], folder: Path) -> None:
    """Writes the tokens of all parts, the tokenizer and the manifest; the folder has its name when it is whole.

    What a process wrote before it was killed stays, up to the last whole group of documents of its journal.
    """
    unfinished, name = folder.with_suffix(UNFINISHED), config.path or "the phrase book"
    unfinished.mkdir(exist_ok=True)
    begun, n_bytes = _begun(unfinished, tokenizer), sum(source.size for source in found)
    if begun.done:
        say(f"preparing {name}: goes on after {begun.done} of {n_bytes} bytes")
    try:
        with contextlib.ExitStack() as stack:
            files = {part: stack.enter_context((unfinished / f"{part}.tokens").open("ab")) for part in PARTS}
            for part, file in files.items():
                file.truncate(begun.counts[part].tokens * tokenizer.dtype.itemsize)
            progress = stack.enter_context(stage(f"preparing {name}", n_bytes, begun.done))
            encode, counts, unsaved = functools.partial(_encoded, config, tokenizer), dict(begun.counts), 0
            for at, encoded in by_threads(encode, _groups(config, found, begun)):
                for part, tokens_N, size in encoded:
                    files[part].write(tokens_N.data)
                    counts[part] = Counts(*map(sum, zip(counts[part], size, strict=True)))
                    unsaved += size.characters
                progress(at.done)
                if unsaved > JOURNAL:
                    _sync(files.values())
                    write_atomically(unfinished / JOURNAL_FILE, json.dumps(at._replace(counts=counts)._asdict()))
                    unsaved = 0
            _sync(files.values())
        _require_parts(config, counts, len(found))
    except (UserError, OSError):
        remove(unfinished)
        raise
    record = {
        "text": [source.digest() for source in found],
        "tokenizer": digest_of(tokenizer),
        "sources": [source.name for source in found],
        "counts": {part: size._asdict() for part, size in counts.items()},
    }
    write_atomically(unfinished / TOKENIZER_FILE, tokenizer.to_json())
    write_atomically(unfinished / MANIFEST, json.dumps(record, indent=1) + "\n")
    (unfinished / JOURNAL_FILE).unlink(missing_ok=True)
    remove(folder)  # without a manifest
    unfinished.rename(folder)


def _begun(unfinished: Path, tokenizer: Tokenizer) -> Begun:
    """Returns what the journal says of a preparation that was killed, or the beginning."""
    new = Begun(digest_of(tokenizer))
    with contextlib.suppress(FileNotFoundError):
        record = read_json(unfinished / JOURNAL_FILE, "a journal")
        counts = {part: Counts(*size) for part, size in record.pop("counts").items()}
        sizes = {part: (unfinished / f"{part}.tokens").stat().st_size for part in PARTS}
        whole = all(sizes[part] >= counts[part].tokens * tokenizer.dtype.itemsize for part in PARTS)
        if whole and record["tokenizer"] == new.tokenizer:
            return Begun(**record, counts=counts)
    return new


def _sync(files: Iterable[BinaryIO]) -> None:
    for file in files:
        file.flush()
        os.fsync(file.fileno())


def _groups(config: DocumentsConfig, found: list[Source], begun: Begun) -> Iterator[tuple[Begun, list[str]]]:
    """Yields the texts of groups of documents that are not prepared yet, with what is prepared behind each group."""
    texts, n_characters, before = list[str](), 0, 0
    at = begun
    for number, source in enumerate(found):
        skipped = begun.documents if number == begun.source else 0
        documents = read(config, source) if number >= begun.source else ()
        for count, document in enumerate(itertools.islice(documents, skipped, None), skipped + 1):
            texts.append(document.text)
            n_characters += len(document.text)
            at = begun._replace(source=number, documents=count, done=before + document.place)
            if n_characters >= GROUP:
                yield at, texts
                texts, n_characters = [], 0
        before += source.size
    if texts:
        yield at, texts


def _encoded(
    config: DocumentsConfig, tokenizer: Tokenizer, group: tuple[Begun, list[str]]
) -> tuple[Begun, list[tuple[str, np.ndarray, Counts]]]:
    """Returns of each text of a group the part, the tokens [N] with the one that ends it, and the size."""
    found, (at, texts) = [], group
    for text in texts:
        tokens_N = np.append(tokenizer.array(text), tokenizer.dtype.type(tokenizer.special.eos))
        unknown = int(np.count_nonzero(tokens_N == tokenizer.special.unk))
        size = Counts(1, len(text), len(text.encode()), len(tokens_N), unknown)
        found.append((part_of(config, text), tokens_N, size))
    return at, found


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

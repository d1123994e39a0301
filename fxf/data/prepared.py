"""Tokens of documents, written once to a folder and then memory-mapped.

The folder holds a file of tokens for each part: the documents one after the other, each followed by <eos>. Its name is
a digest of the files, keys and tokenizer that the tokens depend on, so a change of any of them gives a new folder. An
interrupted preparation resumes where it stopped.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import numpy as np

from fxf.base.errors import UserError
from fxf.base.files import digest, is_remote, read_json, why_not_written, write_atomically
from fxf.base.status import say, stage
from fxf.base.work import by_threads
from fxf.data import documents
from fxf.data.documents import PARTS, PREPARED, DocumentsConfig, Source, part_of
from fxf.data.mixture import Part
from fxf.data.tokenizer import TOKENIZER_FILE, Tokenizer, lines_of
from fxf.data.tokenizer_file import any_tokenizer, is_file

VERSION, VERSION_OF_FILE = 1, 2  # of the stored tokens; raise it when the same documents would give other tokens
MANIFEST, UNFINISHED = "manifest.json", ".unfinished"
GROUP = 2**17  # characters that a thread encodes at once
JOURNAL = 2**25  # characters between two writes of the unfinished manifest

Counts = Counter[str]


class Prepared(NamedTuple):
    """Prepared documents.

    Attributes:
      digest: of the text, the tokenizer and the keys that determine the tokens.
      text: digest of the text and of the keys that determine how it is read and split; the tokenizer does not matter.
      counts: the documents, characters, bytes, tokens (with each <eos>) and unknown tokens of each part.
    """

    folder: Path
    digest: str
    text: str
    counts: dict[str, Counts]
    dtype: np.dtype

    def tokens(self, part: str) -> np.ndarray:
        """Returns the tokens [N] of a part, memory-mapped. Raises a UserError if the file is incomplete."""
        path, size = self.folder / f"{part}.tokens", self.counts[part]["tokens"] * self.dtype.itemsize
        if not path.is_file() or path.stat().st_size != size:
            raise UserError(f"{path}: expected a file of {size} bytes; with its folder removed, it is prepared again")
        return np.memmap(path, self.dtype, "r")


def tokenizer_of_documents(parts: Mapping[str, Part], folder: Path | None) -> Tokenizer:
    """Returns the tokenizer of the run folder, or of a file, or one learned from a sample of the documents.

    Each source contributes its share to the sample. A learned tokenizer is kept beside the tokens of the first source.

    Raises:
      UserError: as `any_tokenizer` and `read`.
    """
    config = next(iter(parts.values())).config
    lines = (line for part in parts.values() for text in documents.sample(*part) for line in lines_of(text))
    in_run = folder is not None and (folder / TOKENIZER_FILE).exists()
    is_learned = not (in_run or is_file(config.tokenizer) or config.tokenizer == "byte")
    if is_learned:
        sample = [(_name(part.config, documents.sources(part.config)), part.share) for part in parts.values()]
        folder = _parent(config) / digest(json.dumps(sample).encode())[:16]
    tokenizer = any_tokenizer(folder, config, lambda: lines)
    if is_learned and folder and not (folder / TOKENIZER_FILE).exists():
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / TOKENIZER_FILE, tokenizer.to_json())
    return tokenizer


def prepared(config: DocumentsConfig, tokenizer: Tokenizer) -> Prepared:
    """Returns the documents that `config` names, and prepares them first if necessary.

    Preparation holds a few megabytes of text at once and resumes where it was interrupted. Of several processes, one
    prepares and the others wait.

    Raises:
      UserError: a document cannot be read; a part would be empty; or the folder cannot be written.
    """
    sources, tokenizer_digest = documents.sources(config), digest(tokenizer.to_json().encode())
    folder = _parent(config) / _name(config, sources, tokenizer_digest)
    if not (folder / MANIFEST).exists():
        with _writing(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder.with_suffix(".lock")):
                if not (folder / MANIFEST).exists():
                    prepare(config, tokenizer, sources, folder)
    record, options = read_json(folder / MANIFEST, "a manifest of documents"), _options(config)
    identity = digest(json.dumps([record["text"], record["tokenizer"], options]).encode())
    split = {name: value for name, value in options.items() if name not in ("tokenizer", "vocab_size", "version")}
    text = digest(json.dumps([record["text"], split]).encode())
    return Prepared(folder, identity, text, _counts(record["counts"]), tokenizer.dtype)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turns an OSError into a UserError."""
    try:
        yield
    except OSError as error:
        why = why_not_written(error) or error.strerror or error
        raise UserError(f"{folder}: {why}; data.prepared names another folder") from error


def _parent(config: DocumentsConfig) -> Path:
    """Returns the folder that holds the folders of tokens."""
    path = documents.folder_and_pattern(config.path)[0] if config.path and config.format != "tfds" else None
    if config.prepared:
        parent = Path(config.prepared).expanduser().absolute()
        if path and not is_remote(path) and parent.is_relative_to(path.absolute()):
            raise UserError(f"data.prepared: {parent}: expected a folder outside of data.path, {path.absolute()}")
        return parent
    if not path:
        from fxf.data.public_sets import data_dir  # imported here because TFDS takes a second

        return Path(data_dir(), "documents")
    if is_remote(path):
        raise UserError("data.prepared: documents in a bucket need it; give a folder on a disk")
    return Path(f"{path.absolute()}{PREPARED}")


def _name(config: DocumentsConfig, sources: list[Source], tokenizer_digest: str = "") -> str:
    """Returns the name of the folder of a config's tokens. Without a tokenizer, it identifies the documents alone."""
    texts = [(str(x.path.resolve() if x.path else x.name), x.size, x.changed, digest(x.content)) for x in sources]
    return digest(json.dumps([_options(config), tokenizer_digest, texts]).encode())[:16]


def _options(config: DocumentsConfig) -> dict[str, Any]:
    """Returns the keys that the tokens depend on, besides the text and a tokenizer file, which have digests."""
    of_file = is_file(config.tokenizer)
    keys = dataclasses.asdict(config)
    for name in ("path", "prepared", "sources", *(["tokenizer"] if of_file else [])):
        del keys[name]
    return {**keys, "version": VERSION_OF_FILE if of_file else VERSION}


def prepare(config: DocumentsConfig, tokenizer: Tokenizer, sources: list[Source], folder: Path) -> None:
    """Writes the tokens of all parts and the manifest. The folder gets its name when it is complete.

    If an earlier process was killed or failed, as on a full disk, this one continues after the documents that the last
    manifest counts.
    """
    unfinished, name = folder.with_suffix(UNFINISHED), config.path or "the phrase book"
    unfinished.mkdir(exist_ok=True)
    if config.format == "files" and (records := next((x.name for x in sources if ".jsonl" in x.name), "")):
        say(f"warning: data.path: {records} is read as plain text; data.format 'json_lines' reads a field of each line")
    manifest = unfinished / MANIFEST
    counts = _counts(read_json(manifest, "a manifest of documents")["counts"] if manifest.exists() else {})
    if n_done := _documents(counts):
        say(f"preparing {name}: resumes after {n_done} documents")
    with contextlib.ExitStack() as stack:
        files = {part: stack.enter_context((unfinished / f"{part}.tokens").open("ab")) for part in PARTS}
        for part, file in files.items():
            file.truncate(counts[part]["tokens"] * tokenizer.dtype.itemsize)
        progress = stack.enter_context(stage(f"preparing {name}", sum(source.size for source in sources)))

        def save(**more: Any) -> None:
            for file in files.values():
                file.flush()
                os.fsync(file.fileno())
            write_atomically(manifest, json.dumps({**more, "counts": counts}, indent=1) + "\n")

        encode, unsaved = functools.partial(_encoded, config, tokenizer), 0
        for encoded in by_threads(encode, _groups(config, sources, n_done, progress)):
            for part, tokens_N, size in encoded:
                files[part].write(tokens_N.data)
                counts[part] += size
                unsaved += size["characters"]
            if unsaved > JOURNAL:
                save()
                unsaved = 0
        _require_parts(config, counts, len(sources), name)
        names, text = [source.name for source in sources], [source.digest() for source in sources]
        save(text=text, tokenizer=digest(tokenizer.to_json().encode()), sources=names)
    unfinished.rename(folder)


def _counts(saved: Mapping[str, Any]) -> dict[str, Counts]:
    return {part: Counter(saved.get(part, {})) for part in PARTS}


def _documents(counts: Mapping[str, Counts]) -> int:
    return sum(size["documents"] for size in counts.values())


def _groups(
    config: DocumentsConfig, sources: list[Source], n_done: int, progress: Callable[[int], None]
) -> Iterator[list[str]]:
    """Yields groups of texts after the first `n_done` documents; calls `progress` with the number of bytes read."""
    texts, n_characters, before = list[str](), 0, 0
    for source in sources:
        for text, n_read in documents.read(config, source):
            n_done -= 1
            if n_done >= 0:
                continue
            texts.append(text)
            n_characters += len(text)
            if n_characters >= GROUP:
                progress(before + n_read)
                yield texts
                texts, n_characters = [], 0
        before += source.size
    yield texts


def _encoded(config: DocumentsConfig, tokenizer: Tokenizer, texts: list[str]) -> list[tuple[str, np.ndarray, Counts]]:
    """Returns the part, the tokens [N] with <eos>, and the counts of each text."""
    encoded, special = [], tokenizer.special
    for text in texts:
        tokens_N = np.append(tokenizer.array(text), tokenizer.dtype.type(special.eos))
        size = Counter(documents=1, characters=len(text), bytes=len(text.encode()), tokens=len(tokens_N))
        size["unknown"] = int(np.count_nonzero(tokens_N == special.unk))
        encoded.append((part_of(config, text), tokens_N, size))
    return encoded


def _require_parts(config: DocumentsConfig, counts: dict[str, Counts], n_sources: int, name: str) -> None:
    """Raises a UserError if a required part has no documents, or `data.separator` splits no file."""
    if not (n := _documents(counts)):
        raise UserError(f"data.path: {name}: no document has a text")
    if config.separator and n <= n_sources:
        hint = r"; a shell gives line ends by $'\n'" if "\\" in config.separator else ""
        raise UserError(f"data.separator: {config.separator!r} does not occur between documents of {name}{hint}")
    for part, key in zip(PARTS, ("validation", "validation", "test"), strict=True):
        share = getattr(config, key)
        if share and not counts[part]:
            more = f"more documents or another share than {share}"
            raise UserError(f"data.{key}: {name}: none of the {n} documents is for {part}; {more}")

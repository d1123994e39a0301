"""Sentence pairs for translation: reading, splitting and tokenizing them.

Seed 000, "Prepare Datasets".
"""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fxf.base.config import Choices, key, one_of, require_off
from fxf.base.errors import UserError, one_line, shortened
from fxf.base.files import digest, folder_at
from fxf.base.status import say, stage
from fxf.base.work import by_threads
from fxf.data import phrasebook, text_files
from fxf.data.text_files import Example, good_lines, read_text_file
from fxf.data.tokenizer import VOCAB_SIZE, Tokenizer

log = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
AT_ONCE = 1000  # pairs that a thread tokenizes at once


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The `data` section. A key that the chosen corpus does not read must keep its default."""

    name: str = key("phrasebook", "one of fxf.data.corpus.CORPORA")
    path: str = key("", "pairs: the file; parallel: the folder; tfds: a data set like ted_hrlr_translate/pt_to_en")
    columns: str = key("", "pairs: names of the columns, such as en,fr; by default those in the first line")
    source: str = key("en", "source language; pairs: one of columns; parallel: the files' suffix; tfds: the feature")
    target: str = key("fr", "target language, given like the source; phrasebook: fr or es")
    train: str = key("train", "training split; parallel: the files' name before the suffix; tfds: the split's name")
    validation: str = key("val", "validation split, given like train")
    test: str = key("test", "test split, given like train")
    held_out: float = key(
        0.02, "pairs: share of sources for validation and test each; 0: all parts have all pairs", minimum=0, below=0.5
    )
    limit: int = key(0, "number of pairs to train on, the first ones; 0: all", minimum=0)
    lower_case: bool = key(False, "convert both sides to lower case")
    unpunctuated: float = key(0.0, "share of training pairs that lose their final . ! ?", minimum=0, below=1)
    tokenizer: str = key("bpe", "one of fxf.data.tokenizer.TOKENIZERS, or a tokenizer.json's path")
    vocab_size: int = key(VOCAB_SIZE, "maximum size of a learned vocabulary, with the 5 special tokens", minimum=1)
    max_length: int = key(128, "maximum tokens of a source or target, with <eos>", minimum=2)
    on_error: Literal["stop", "skip"] = key("stop", "at a bad line or a sentence that is too long: stop, or skip it")
    batch_tokens: int = key(4096, "maximum of rows times the longer of source and target, with padding", minimum=1)
    shapes: int = key(6, "maximum number of batch shapes; each is compiled once", minimum=1)


class Corpus(NamedTuple):
    """The sentence pairs of each split in order, the number of skipped lines, and digests by name."""

    train: list[Example]
    validation: list[Example]
    test: list[Example]
    skipped: int
    digests: dict[str, str]


class TokenPair(NamedTuple):
    """The tokens of a sentence and of its translation, both with the end token.

    A corpus has them as arrays, because lists of ints take five times the memory.
    """

    source: Sequence[int] | np.ndarray
    target: Sequence[int] | np.ndarray


def read_corpus(config: DataConfig) -> Corpus:
    """Reads the corpus that `config` names.

    Raises:
      UserError: the corpus does not read a key that is set; or a file is missing, is empty or has a bad line.
    """
    one_of(config.name, CORPORA, "data.name")
    read, keys = CORPORA[config.name]
    for name in sorted({name for corpus in CORPORA.values() for name in corpus.keys} - {*keys}):
        readers = ", ".join(other for other, corpus in CORPORA.items() if name in corpus.keys)
        why = f"data.name '{config.name}' does not read it (read by {readers})"
        require_off("data", config, {name: getattr(DataConfig, name)}, why)
    if "path" in keys and not config.path:
        raise UserError(f"data.path: corpus '{config.name}' needs it; give --config.data.path")
    if "source" in keys and config.source == config.target:
        raise UserError(f"data.target: expected another language than that of data.source, '{config.source}'")
    train, validation, test, skipped, digests = read(config)
    if config.limit:
        parts = train, validation, test
        train, validation, test = (part[: config.limit] if part == train else part for part in parts)
    if config.lower_case:
        train, validation, test = (_changed(str.lower, split) for split in (train, validation, test))
    if "train" in keys:
        known = {example.source for example in train}
        if n := sum(example.source in known for example in test):
            log.warning("warning: %d of the %d test sentences are in the training part too", n, len(test))
    if config.unpunctuated:
        chosen = np.random.default_rng(0).random(len(train)) < config.unpunctuated
        train = [b if c else a for a, b, c in zip(train, _changed(_unpunctuated, train), chosen, strict=True)]
    return Corpus(train, validation, test, skipped, digests)


def _changed(change: Callable[[str], str], examples: Sequence[Example]) -> list[Example]:
    """Returns the examples with both sides changed."""
    return [Example(change(e.source), change(e.target), e.where) for e in examples]


def _unpunctuated(text: str) -> str:
    """Removes the punctuation at the end of a text, unless the text is only punctuation."""
    return text.rstrip(".!? \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}") or text


def tokenize(config: DataConfig, tokenizer: Tokenizer, examples: Sequence[Example]) -> list[tuple[Example, TokenPair]]:
    """Returns the examples that fit `config.max_length`, with their tokens. Longer ones are left out, not cut.

    Raises:
      UserError: an example is too long and `config.on_error` is "stop"; or none is left.
    """
    eos, kept = tokenizer.special.eos, list[tuple[Example, TokenPair]]()

    def tokens(text: str) -> np.ndarray:
        return np.array([*tokenizer.encode(text), eos], tokenizer.dtype)

    def encoded(group: Sequence[Example]) -> list[TokenPair]:
        return [TokenPair(tokens(example.source), tokens(example.target)) for example in group]

    groups = (examples[start : start + AT_ONCE] for start in range(0, len(examples), AT_ONCE))
    with stage("tokenizing", len(examples)) as progress:
        pairs = itertools.chain.from_iterable(by_threads(encoded, groups))
        for number, (example, pair) in enumerate(zip(examples, pairs, strict=True), 1):
            if max(map(len, pair)) <= config.max_length:
                kept.append((example, pair))
            elif config.on_error == "stop":
                lengths = f"source of {len(pair.source)} and target of {len(pair.target)} tokens, end tokens included"
                raise UserError(f"{example.where}: {lengths}; data.max_length is {config.max_length}")
            if number % AT_ONCE == 0:
                progress(number)
    if not kept:
        raise UserError(f"data.max_length: none of {len(examples)} pairs has {config.max_length} tokens or fewer")
    return kept


def _digest(*parts: Sequence[Example]) -> str:
    """Returns one digest of the sentence pairs of several splits."""
    return digest("\0".join("".join(f"{e.source}\t{e.target}\n" for e in part) for part in parts).encode())


def _pairs(config: DataConfig) -> Corpus:
    """Reads a tab-separated file, such as Anki's (seed 000)."""
    path = folder_at(config.path, "data.path")
    content = read_text_file(path, "data.path")
    lines = text_files.lines_of(content)
    header = [name.strip() for name in lines[0].decode("utf-8", "replace").split("\t")]
    columns = [name.strip() for name in config.columns.split(",")] if config.columns else header
    if not config.columns and not {config.source, config.target} <= {*header}:
        text_files.decoded(lines[0], path.name)  # raises a clearer error if the line is not UTF-8
        wanted = f"expected tab-separated columns {config.source} and {config.target}, or data.columns, such as en,fr"
        raise UserError(f"{path.name}:1: {wanted}; got {shortened(', '.join(header))}")
    source, target = (columns.index(one_of(getattr(config, s), columns, f"data.{s}")) for s in ("source", "target"))
    if twice := [name for name in (config.source, config.target) if columns.count(name) > 1]:
        raise UserError(f"{path.name}:1: two columns are named {twice[0]}; expected one")
    in_file, in_config = ([name.lower() for name in names] for names in (header, columns))
    first = 2 if in_file[: len(in_config)] == in_config else 1  # line 1 may name the columns
    if first == 1 and {*in_config} <= {*in_file}:
        raise UserError(f"{path.name}:1: the columns are {', '.join(in_file)}; data.columns has {', '.join(in_config)}")
    if len(header) == len(columns) + 1 and header[0].replace(".", "").isdecimal():
        named = f"data.columns=number,{config.columns} names the first column too"
        raise UserError(f"{path.name}:1: expected text in {columns[0]}, got {header[0]}; {named}")
    if first == 2:
        say(one_line(f"{path.name}: the first line names the columns: {', '.join(columns)}"))
    sides = text_files.tab_separated(lines[first - 1 :], len(columns), source, target)
    examples, skipped = good_lines(sides, [path.name] * 2, config.on_error == "skip", first)
    return Corpus(*text_files.split_by_source(examples, config.held_out), skipped, {"data.path": digest(content)})


def _parallel(config: DataConfig) -> Corpus:
    """Reads two line-aligned files for each split, such as Multi30k's."""
    folder = folder_at(config.path, "data.path")
    parts, digests = [], dict[str, str]()
    for split in SPLITS:
        names = [f"{getattr(config, split)}.{side}" for side in (config.source, config.target)]
        contents = [read_text_file(folder / name, f"data.{split}") for name in names]
        sources, targets = map(text_files.lines_of, contents)
        if len(sources) != len(targets):
            raise UserError(f"{names[0]} has {len(sources)} lines, {names[1]} {len(targets)}")
        parts.append(good_lines(zip(sources, targets, strict=True), names, config.on_error == "skip"))
        digests |= dict(zip(names, map(digest, contents), strict=True))
    return _of_parts(parts, digests)


def _tfds(config: DataConfig) -> Corpus:
    """Reads a data set that TFDS downloads."""
    from fxf.data.public_sets import read_public

    splits = [getattr(config, split) for split in SPLITS]
    manifest, pairs_of = read_public(config.path, {"source": config.source, "target": config.target}, splits)
    names, skip = [[f"{config.path}:{split}"] * 2 for split in splits], config.on_error == "skip"
    parts = [good_lines(pairs, both, skip) for pairs, both in zip(pairs_of, names, strict=True)]
    return _of_parts(parts, {"data.path": digest(repr(manifest).encode())})


def _of_parts(parts: Sequence[tuple[list[Example], int]], digests: dict[str, str]) -> Corpus:
    """Makes a corpus from each split's examples and number of skipped lines."""
    train, validation, test = (examples for examples, _ in parts)
    return Corpus(train, validation, test, sum(skipped for _, skipped in parts), digests)


def _phrasebook(config: DataConfig) -> Corpus:
    """Returns fxf's own phrase book, from English into French or Spanish."""
    one_of(config.target, ("fr", "es"), "data.target")
    phrases = enumerate(phrasebook.phrases(config.target), 1)
    pairs = [(phrase.split, Example(phrase.source, phrase.target, f"phrasebook:{n}")) for n, phrase in phrases]
    train, validation, test = ([example for its, example in pairs if its == split] for split in SPLITS)
    return Corpus(train, validation, test, 0, {"phrasebook": _digest(train, validation, test)})


def _six(config: DataConfig) -> Corpus:
    """Returns the six English–Spanish pairs as each of the three splits."""
    examples = [Example(source, target, f"six:{number}") for number, (source, target) in enumerate(phrasebook.SIX, 1)]
    return Corpus(examples, examples, examples, 0, {"six": _digest(examples)})


class RegisteredCorpus(NamedTuple):
    """The function that reads a corpus, and which of the corpus-specific keys it reads."""

    read: Callable[[DataConfig], Corpus]
    keys: tuple[str, ...] = ()


CORPORA: Choices[RegisteredCorpus] = Choices(
    phrasebook=RegisteredCorpus(_phrasebook, ("target",)),
    six=RegisteredCorpus(_six),
    pairs=RegisteredCorpus(_pairs, ("path", "columns", "source", "target", "held_out")),
    parallel=RegisteredCorpus(_parallel, ("path", "source", "target", "train", "validation", "test")),
    tfds=RegisteredCorpus(_tfds, ("path", "source", "target", "train", "validation", "test")),
)

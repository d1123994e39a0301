"""A phrasebook: English sentences with their French or Spanish translations, made by a small grammar.

The English sentence determines the translation: "you" is always tu or tú, "I", "we" and "they" are always masculine,
and the grammar has one wording where French or Spanish would allow two.

Held-out sentences test combinations, not words. The combinations are pairs of a noun and its verb or adjective
(`fxf.phrasebook.grammar.combinations`). The CRC32 of its English words puts 1 in 20 pairs into validation, and 1 in 20
into test. A sentence with a test pair is a test sentence; of the others, one with a validation pair is a validation
sentence; the rest are for training. So training sentences may have both words of a held-out pair, but never the pair.
Each held-out split keeps its first `HELD_OUT_LIMIT` sentences; the others are dropped.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple
from zlib import crc32

from fxf.phrasebook import english, french, spanish
from fxf.phrasebook.grammar import Clause, combinations, noun_phrases
from fxf.phrasebook.patterns import clauses

DRAWS = 52_000
HELD_OUT_LIMIT = 2_400
LENGTHS = range(3, 13)
SENTENCES: dict[str, Callable[[Clause], str]] = {
    "fr": french.sentence,
    "es": spanish.sentence,
}

SIX: list[tuple[str, str]] = [
    ("thank you very much", "muchas gracias"),
    ("see you tomorrow", "hasta mañana"),
    ("where is the station", "dónde está la estación"),
    ("i am very hungry", "tengo mucha hambre"),
    ("the bill please", "la cuenta por favor"),
    ("we live near here", "vivimos cerca de aquí"),
]


class Phrase(NamedTuple):
    """A sentence and its translation. `held_out` is "validation" or "test", or "" for training."""

    source: str
    target: str
    held_out: str


@cache
def phrasebook(language: str) -> tuple[Phrase, ...]:
    """Returns the phrasebook of English and `language`, "fr" or "es", in a fixed order; a process makes it once.

    The English sentences are distinct, and the same for both languages.
    """
    translate = SENTENCES[language]
    phrases: dict[str, Phrase] = {}
    counts = {"": 0, "validation": 0, "test": 0}
    for clause in clauses(DRAWS):
        source = english.sentence(clause)
        if source in phrases or not sensible(clause) or len(source.split()) not in LENGTHS:
            continue
        held_out = split(clause)
        if held_out and counts[held_out] == HELD_OUT_LIMIT:
            continue
        counts[held_out] += 1
        phrases[source] = Phrase(source, translate(clause), held_out)
    return tuple(phrases.values())


def sensible(clause: Clause) -> bool:
    """Returns whether all nouns of `clause` differ, unlike in "the king greets the king"."""
    named = [phrase.noun.english for phrase in noun_phrases(clause)]
    return len(set(named)) == len(named)


def split(clause: Clause) -> str:
    """Returns the split that `clause` belongs to: "test", "validation", or "" for training."""
    splits = {split_of_pair(noun, word) for noun, word in combinations(clause)}
    return next((held_out for held_out in ("test", "validation") if held_out in splits), "")


@cache
def split_of_pair(noun: str, word: str) -> str:
    """Returns the split of the pair of the English words `noun` and `word`."""
    return {0: "validation", 1: "test"}.get(crc32(f"{noun} {word}".encode()) % 20, "")

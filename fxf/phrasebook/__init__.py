"""A phrasebook: English sentences with their French or Spanish translations, made by a small grammar.

The English sentence settles the translation: "you" is always tu or tú, "I", "we" and "they" are always masculine, and
where French or Spanish would allow two wordings, the grammar knows one.

Held-out sentences test combinations, not words. Each pair of a noun and the verb or adjective that goes with it (the
`combinations` of `fxf.phrasebook.grammar`) belongs to validation or to test for 1 in 20 pairs each, by the CRC32
of its English words. A sentence with a pair of the test share is a test sentence; else, with a pair of the validation
share, a validation sentence; else it is for training. So no training sentence holds a held-out pair, though it may
hold either word of it. Each held-out split keeps its first `HELD_OUT_LIMIT` sentences; the others are dropped.
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
    """Returns the phrasebook of English and `language`, "fr" or "es", always in the same order; made once a process.

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
    """Whether `clause` names no noun twice, as "the king greets the king" does."""
    named = [phrase.noun.english for phrase in noun_phrases(clause)]
    return len(set(named)) == len(named)


def split(clause: Clause) -> str:
    """Returns the split that `clause` belongs to: "test", "validation", or "" for training."""
    shares = {share(noun, word) for noun, word in combinations(clause)}
    return next((held_out for held_out in ("test", "validation") if held_out in shares), "")


@cache
def share(noun: str, word: str) -> str:
    """Returns the split that holds the combination of `noun` and `word`, in English."""
    return {0: "validation", 1: "test"}.get(crc32(f"{noun} {word}".encode()) % 20, "")

"""The phrase book: English sentences with French and Spanish translations, a corpus that comes with fxf.

phrasebook.tsv.xz has a line for each sentence: split, English, French, Spanish. The authors of fxf generated it from a
small grammar; it has the license of fxf. The English sentence determines the translation: "you" is always tu or tú, and
"I", "we" and "they" are always masculine. Held-out sentences test combinations, not words: each pairs a noun with a
verb or an adjective as no training sentence does, but both words occur in training.
"""

import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

SIX = [line.split("\t") for line in Path(__file__).with_name("six.tsv").read_text(encoding="utf-8").splitlines()]


class Phrase(NamedTuple):
    """A sentence and its translation. `split` is "train", "validation" or "test"."""

    split: str
    source: str
    target: str


@cache
def phrases(language: str) -> tuple[Phrase, ...]:
    """Returns the phrase book from English into `language`, "fr" or "es". Both have the same English sentences."""
    table = lzma.decompress(Path(__file__).with_name("phrasebook.tsv.xz").read_bytes()).decode()
    header, *rows = (line.split("\t") for line in table.splitlines())
    return tuple(Phrase(row[0], row[1], row[header.index(language)]) for row in rows)


def english() -> str:
    """Returns the English sentences, one on each line."""
    return "".join(f"{phrase.source}\n" for phrase in phrases("fr"))

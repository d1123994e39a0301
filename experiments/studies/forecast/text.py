"""Writes the lines of a file of sentence pairs in a pseudorandom order.

python -m experiments.studies.forecast.text fra.txt sentences.txt

Tatoeba's file is sorted by length, and repeats many sentences. Here lines are sorted by the digest of their English
sentence, so equal sentences are adjacent, and the end of the text, which is held out, repeats none of its start.
"""

import sys
from pathlib import Path
from zlib import crc32


def ordered(lines: list[str]) -> list[str]:
    """Returns lines `English TAB French` by the digest of their English."""
    return sorted(lines, key=lambda line: (crc32(line.partition("\t")[0].encode()), line))


if __name__ == "__main__":
    pairs, text = map(Path, sys.argv[1:])
    text.write_text("\n".join([*ordered(pairs.read_text(encoding="utf-8").splitlines()), ""]), encoding="utf-8")

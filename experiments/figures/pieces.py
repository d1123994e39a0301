"""Figures in a page: made from kept results, found in the page, and the numbers that nothing accounts for.

A piece is a text of the page with its figures marked by `figure`. White space in it stands for any white space, so a
page may break its lines anywhere.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

OPEN, CLOSE = "\ue000", "\ue001"  # around a figure
SHOWN = r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?"  # a number in a page
WRITTEN = r"(\d{4}-\d\d-\d\d|-?[\d,.]*\d(?:e[-+]?\d+)?)"  # what stands where a figure belongs: a date or a number

# What makes a number no figure, besides what a page lists itself.
RULES = {
    "a block of code": r"```(?!text)\w*\n(?:.*\n)*?```",
    "code in a line": r"`[^`\n]+(?:\n[^`\n]+)?`",
    "a command": r"^(?:    )?(?:[A-Z_]+=\S* )?(?:fxf [a-z]+ -|python (?:-m )?\S+ -|pip install)(?:.*\\\n)*.*$",
    "a link": r"\]\([^)]*\)|https?://\S+",
    "a name that begins with a letter, such as GPT-2, float32 or v5e:2x4": r"(?<![\w.,-])[A-Za-z][\w-]*\d[\w.:-]*",
    "a name and a number": r"\b(?:Python|CUDA|Llama|Gemma|Qwen|issue)\s+(?:≥ )?\d+(?:\.\d+)*",
    "the name of a seed": r"(?<![\d.,])00[0-4]\b(?!\.\d)",
    "the year of a citation": r"\b[A-Z][\w’-]+(?:\s+et\s+al\.|\s+and\s+[A-Z]\w+)\s+\(?(?:19|20)\d\d\b",
    "the year of a citation of one author": r"\b(?:Gros|Koehn|Lai|Robbins|Shazeer|Ville)\s+(?:19|20)\d\d\b",
    "a number of arXiv": r"\barXiv[:\s]\s*\d{4}\.\d{5}(?:,\s+\d{4}\.\d{5})*",
    "the number of an item": r"^\d+\. ",
}


def figure(value: Any, form: str = "") -> str:
    """Returns a value as text in a format of Python, marked as a figure."""
    return f"{OPEN}{value:{form}}{CLOSE}"


class Lines(NamedTuple):
    """Whole lines of a page, for example a table: from the line that begins it to the next empty line or fence."""

    text: str


class Conclusion(NamedTuple):
    """A piece that the kept results must bear out."""

    text: str
    holds: bool


Piece = str | Lines | Conclusion


class Page(NamedTuple):
    """What accounts for the numbers of a page.

    Attributes:
      pieces: texts and lines with figures from kept results or from the code.
      said: texts whose numbers are no results of ours, by the reason why.
    """

    pieces: Sequence[Piece]
    said: Mapping[str, Sequence[str]] = {}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> Lines:
    """Returns the lines of a Markdown table.

    Args:
      right: a letter for each column, r for those that are right-aligned; the others are left-aligned.
    """
    under = ["---:" if i < len(right) and right[i] == "r" else "---" for i in range(len(header))]
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (header, *rows)]
    return Lines("\n".join([lines[0], f"|{'|'.join(under)}|", *lines[1:]]))


def filled(text: str, page: Page) -> str:
    """Returns the text of a page with all figures as the kept results have them."""
    for piece in page.pieces:
        if isinstance(piece, Lines):
            if (span := _lines(text, piece)) is not None:
                text = text[: span[0]] + plain(piece.text) + text[span[1] :]
            continue
        marked = piece if isinstance(piece, str) else piece.text
        figures = _figures(marked)
        for found in reversed(list(_pattern(marked).finditer(text))):
            for number, value in reversed(list(enumerate(figures, 1))):
                text = text[: found.start(number)] + value + text[found.end(number) :]
    return text


def wrong(text: str, page: Page, numbers_in: str = "") -> list[str]:
    """Returns a line for each figure that differs from the kept results, and for each number without a source.

    Args:
      numbers_in: the text with parts that need no source blank, at the same places; by default all of it counts.
    """
    found, covered = [], []
    for piece in page.pieces:
        if isinstance(piece, Lines):
            span = _lines(text, piece)
            found += [] if span else [f"these lines are missing: {plain(piece.text).splitlines()[0]}"]
            if span and text[slice(*span)] != plain(piece.text):
                pairs = zip(text[slice(*span)].splitlines(), plain(piece.text).splitlines(), strict=False)
                old, new = next(((a, b) for a, b in pairs if a != b), ("lines", "other lines"))
                found.append(f"line {_line(text, span[0])}: the kept results give '{new}', not '{old}'")
            covered += [span] if span else []
            continue
        marked = piece if isinstance(piece, str) else piece.text
        matches = list(_pattern(marked).finditer(text))
        found += [] if matches else [f"this is missing: {plain(marked)}"]
        if isinstance(piece, Conclusion) and not piece.holds:
            found.append(f"the kept results contradict this: {plain(marked)}")
        for match in matches:
            for number, value in enumerate(_figures(marked), 1):
                covered.append(match.span(number))
                if match[number] != value:
                    where = _line(text, match.start(number))
                    found.append(f"line {where}: the kept results give {value}, not {match[number]}")
    for reason, texts in page.said.items():
        for each in texts:
            spans = [match.span() for match in _pattern(each).finditer(text)]
            found += [] if spans else [f"this is missing ({reason}): {each}"]
            covered += spans
    return found + [
        f"line {line}: nothing accounts for {number}" for line, number in _others(numbers_in or text, covered)
    ]


def plain(text: str) -> str:
    """Returns a text without the marks of its figures."""
    return text.replace(OPEN, "").replace(CLOSE, "")


def _others(text: str, covered: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    """Yields line and text of each number that is in no span and that no rule accounts for."""
    rest = text
    for rule in RULES.values():
        rest = blank(rule, rest)
    for match in re.finditer(SHOWN, rest):
        if not any(start <= match.start() and match.end() <= end for start, end in covered):
            yield _line(text, match.start()), match[0]


def blank(rule: str, text: str) -> str:
    """Returns a text with spaces in place of all that a rule matches, except for line ends."""
    return re.sub(rule, lambda match: re.sub(r".", " ", match[0]), text, flags=re.MULTILINE)


def only_docstrings(code: str) -> str:
    """Returns Python code with all lines but docstrings and the assignment of EXPECTED blank, at the same places."""
    kept: set[int] = set()
    for node in ast.walk(ast.parse(code)):
        body = getattr(node, "body", None)
        text = body[0] if isinstance(node, ast.Module | ast.FunctionDef) and body else None
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            kept |= set(range(text.lineno, (text.end_lineno or 0) + 1))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "EXPECTED":
            kept |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = code.split("\n")
    return "\n".join(line if number in kept else " " * len(line) for number, line in enumerate(lines, 1))


def _pattern(marked: str) -> re.Pattern[str]:
    """Returns what finds a piece in a page; each figure is a group."""
    parts = re.split(f"{OPEN}.*?{CLOSE}", marked)
    literal = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts]
    # A number that begins or ends the piece must not be a part of a longer one.
    return re.compile(r"(?<![\d.,])" + WRITTEN.join(literal) + r"(?!\d|[.,]\d)")


def _figures(marked: str) -> list[str]:
    return re.findall(f"{OPEN}(.*?){CLOSE}", marked)


def _lines(text: str, piece: Lines) -> tuple[int, int] | None:
    """Returns where the lines of a piece stand in a page, whatever they say after the first."""
    first = plain(piece.text).split("\n")[0]
    match = re.search(rf"^{re.escape(first)}$(?:\n(?!```)[^\n]+)*", text, re.MULTILINE)
    return match.span() if match else None


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1

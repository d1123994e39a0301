"""Tables as plain text, CSV and Markdown, with Markdown's markup escaped."""

import csv
import html
import io
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fxf.base.errors import one_line
from fxf.reports.run_files import NO_VALUE, is_no_value, is_number

Row = dict[str, Any]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row. Columns are left-aligned, the last one right-aligned."""
    *widths, last = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([*map(str.ljust, row, widths), row[-1].rjust(last)]) for row in rows]


def to_csv(rows: Sequence[Row]) -> str:
    """Returns a table with a column for each name that any row has. Missing cells are empty."""
    names, file = list(dict.fromkeys(name for row in rows for name in row)), io.StringIO()
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    csv.writer(file, lineterminator="\n").writerows([[_for_csv(cell) for cell in line] for line in lines])
    return file.getvalue()


def _for_csv(value: Any) -> Any:
    """Returns a number unchanged, "" for NaN, infinite and null, or a text on one line."""
    if is_no_value(value):
        return ""
    return value if isinstance(value, int | float) else one_line(str(value))


def to_markdown(rows: Sequence[Row], columns: Iterable[str], bold: Collection[tuple[int, str]] = ()) -> str:
    """Returns a table of the columns that some row has. Numbers are right-aligned; floats have four digits.

    A number that is NaN, infinite or null is NO_VALUE.

    Args:
      bold: the cells in bold, as (index of the row, column).
    """
    shown = [name for name in dict.fromkeys(columns) if any(name in row for row in rows)]
    right = [all(is_no_value(x) or is_number(x) for x in (row[name] for row in rows if name in row)) for name in shown]
    lines = [list(map(_cell, shown)), ["---:" if number else "---" for number in right]]
    for i, row in enumerate(rows):
        cells = {name: _cell(row.get(name, "")) for name in shown}
        lines.append([f"**{cell}**" if (i, name) in bold else cell for name, cell in cells.items()])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rounded(value: float, digits: int = 4) -> str:
    """Returns a number with so many digits; a large one, such as a speed, has zeros instead of an exponent."""
    return f"{float(f'{value:.{digits}g}'):.15g}"


def _cell(value: Any) -> str:
    """Returns a value as Markdown text on one line, with Markdown's own characters escaped."""
    if is_no_value(value):
        return NO_VALUE
    text = rounded(value) if isinstance(value, float) else one_line(str(value))
    return re.sub(r"([\\`*|\[\]])", r"\\\1", html.escape(text, quote=False))

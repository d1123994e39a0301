"""Tables as plain text."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a line for each row, with cells aligned in columns; the last column is right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        return "  ".join([*cells[:-1], row[-1].rjust(widths[-1])])

    return [line(row) for row in rows]

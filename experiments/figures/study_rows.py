"""Rows of a study's table, and what a page says of them."""

from collections.abc import Sequence
from typing import Any

from experiments.figures.kept import Row
from experiments.figures.pieces import figure

CITED = "in the papers that the text cites"


def share(value: float) -> str:
    """Returns a share with two digits, and with four from 0.995 on, so that only 1 reads as 1."""
    return f"{value:.2f}" if 0.1 <= value < 0.995 else f"{value:.4g}" if value > 0.5 else f"{value:.2g}"


def cell(rows: Sequence[Row], name: str = "exact_match") -> str:
    return ", ".join(share(row[name]) for row in rows)


def where(rows: Sequence[Row], **keys: Any) -> list[Row]:
    """Returns the rows that have these values in the columns that end so."""
    return [row for row in rows if all(row[name.replace("__", ".")] == value for name, value in keys.items())]


def of(rows: Sequence[Row], name: str) -> list[Any]:
    """Returns the values of a column in order, each once."""
    return list(dict.fromkeys(row[name] for row in rows))


def training(config: Any) -> str:
    """Returns the words with which a page says how long a config trains."""
    return f"{figure(config.train.steps, ',')} steps of {figure(config.train.batch_size)}"


def listed(values: Sequence[Any]) -> str:
    return ", ".join(map(figure, values))

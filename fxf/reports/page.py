"""A self-contained HTML page: its style, code and data are inline, and it loads nothing from a network."""

import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fxf.base.files import to_json

# Only inline content is allowed; a live page may also fetch data from its own server.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
LIVE = "; connect-src 'self'"
# Within a script element these would begin markup, or end a line of JavaScript.
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
SHARED = ("elements.js", "charts.js")  # scripts of all pages
MOST_POINTS = 400  # of a curve
MOST_CHARACTERS = 2000  # of a text


def page(title: str, data: dict[str, Any], scripts: Sequence[str], live: bool = False) -> str:
    """Returns a page that `scripts` and the shared scripts build from `data`.

    Args:
      data: JSON; numbers that are not finite become null.
      scripts: names of files beside this one.
    """
    code = "\n".join(_file(name) for name in (*SHARED, *scripts))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}{LIVE if live else ""}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{html.escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{_file('page.css')}</style>\n</head>\n<body>\n"
        "<noscript>This page draws its charts with JavaScript.</noscript>\n"
        f'<script type="application/json" id="data">{as_json(data)}</script>\n'
        f"<script>\n{code}</script>\n</body>\n</html>\n"
    )


def as_json(data: Any) -> str:
    """Returns JSON that is safe within a script element, whatever texts it holds."""
    return to_json(data, separators=(",", ":")).translate(_ESCAPED)


def thinned(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Returns at most MOST_POINTS of the points (x, value), in order: the lowest and the highest of each segment."""
    if len(points) <= MOST_POINTS:
        return [list(point) for point in points]
    length = -(-2 * len(points) // (MOST_POINTS - 2))
    kept = {0, len(points) - 1}
    for start in range(0, len(points), length):
        segment = range(start, min(start + length, len(points)))
        kept |= {min(segment, key=lambda i: points[i][1]), max(segment, key=lambda i: points[i][1])}
    return [list(points[i]) for i in sorted(kept)]


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")

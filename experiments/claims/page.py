"""Makes the tables of CLAIMS.md from kept results, and lists the jobs that measure them."""

from pathlib import Path
from typing import Any

from experiments.claims import others, pairs
from experiments.claims.arms import ARMS
from experiments.runner import RESULTS, ROOT
from fxf.base.config import one_of
from fxf.base.files import read_json
from fxf.reports.tables import to_markdown

KEPT, PAGE = RESULTS / "claims", ROOT / "CLAIMS.md"
PAIRS = {claim.name: claim for claim in pairs.DEBATED}
TABLES: dict[str, tuple[Any, ...]] = {
    "debated": pairs.DEBATED,
    "seeds": tuple(others.of_seeds()),
    "published": others.PUBLISHED,
}
HEADERS = {
    "debated": ("claim", "source", "effect", "verdict", "command"),
    **{name: ("figure", "source", "fxf (rule)", "verdict", "command") for name in ("seeds", "published")},
}
JOBS = [*ARMS, *others.TRAINED]


def jobs_of(name: str) -> list[str]:
    """Returns the jobs of a claim, or the job of that name.

    Raises:
      UserError: there is neither.
    """
    if name in PAIRS:
        return list(dict.fromkeys(PAIRS[name].arms))
    return [one_of(name, [*JOBS, *PAIRS], "--only")] if name != "none" else []


def tables(kept: Path = KEPT) -> dict[str, str]:
    """Returns the tables of the page by name, as the kept results have them."""
    results = {path.stem: read_json(path, "a kept result") for path in kept.glob("*.json")}
    found = {}
    for name, claims in TABLES.items():
        cells = ((c.says, c.source, *c.outcome(results), c.command) for c in claims)
        found[name] = to_markdown([dict(zip(HEADERS[name], row, strict=True)) for row in cells], HEADERS[name])
    return found

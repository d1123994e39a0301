"""The pages of the seeds, and the files of all their figures."""

import json
import time
from pathlib import Path
from typing import Any

from experiments.seeds import contradictions, seed_000, seed_001, seed_002, seed_003, seed_004
from experiments.seeds.claims import HEADER, Found, Row, Seed, rows
from fxf.files import digest, file_digest, read_json, write_atomically
from fxf.pages.page import as_json, page
from fxf.pages.text_tables import to_markdown
from fxf.runs.code_version import code_digest

MODULES = (seed_004, seed_003, seed_000, seed_002, seed_001, contradictions)
SEEDS: dict[str, Seed] = {module.SEED.number: module.SEED for module in MODULES}
HERE = Path(__file__).parent
SCRIPTS = ("charts.js", HERE / "seeds.js")


def look_at(seed: Seed, folder: Path) -> list[Row]:
    """Looks at a seed, unless this code has done so before, prints its rows and writes its page."""
    path, start = folder / f"{seed.number}.json", time.perf_counter()
    code = _code(seed)
    kept = read_json(path, "the figures of a seed") if path.exists() else {}
    if kept.get("code") == code:
        found = Found(kept["figures"], kept["parts"])
    else:
        found = seed.look(folder)
        write_atomically(path, as_json({"code": code, **found._asdict()}))
    each = rows(seed, found.figures)
    for row in each:
        verdict, what, says, _, gives, _ = row.cells()
        print(
            f"{seed.number}  {verdict}: {what}: the seed says {says}; fxf gives {gives} ({row.claim.rule})", flush=True
        )
    write_atomically(folder / f"{seed.number}.html", page(seed.title, _contents(seed, each, found.parts), SCRIPTS))
    print(f"{folder / seed.number}.html  {time.perf_counter() - start:.0f} s", flush=True)
    return each


def _code(seed: Seed) -> str:
    """Returns a digest of what a seed's figures depend on: the code of fxf, the configs, and the files here."""
    files = sorted([*HERE.glob("*.py"), *(HERE.parents[1] / "configs").glob("*.py")])
    return digest("\n".join([seed.number, code_digest(), *map(file_digest, files)]).encode())


def _contents(seed: Seed, each: list[Row], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what a page shows, as JSON."""
    links = [[other.number, f"{other.number}.html"] for other in SEEDS.values() if other is not seed]
    title = seed.title if seed is contradictions.SEED else f"Seed {seed.number}: {seed.title}"
    return {
        "title": title,
        "about": "Each row holds fxf to a statement. Below are the systems themselves, run in small.",
        "links": links,
        "header": HEADER,
        "rows": [row.cells() for row in each],
        "parts": parts,
    }


def write_figures(folder: Path, found: dict[str, list[Row]]) -> None:
    """Writes every figure with its verdict as JSON and as Markdown."""
    figures = {number: {row.claim.name: row.gives for row in each} for number, each in found.items()}
    write_atomically(folder / "figures.json", json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    names = ("seed", "verdict", *HEADER[1:])
    cells = [dict(zip(names, [number, *row.cells()], strict=True)) for number, each in found.items() for row in each]
    write_atomically(folder / "figures.md", to_markdown(cells, names))

"""Claims and figures of a checkout whose kept results are changed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.hostile.case import Case, accepted, case, failed, refused
from experiments.hostile.fixtures import BAD_JSON, BINARY, ROOT
from experiments.hostile.steps import Step, append, change, remove, rewrite, write

# fmt: off

RESULTS = "experiments/results"
CLAIM = f"{RESULTS}/claims/swiglu.json"
PAGE = "claims --only=none"
OPTIONS: dict[str, Any] = {"own_process": True, "writes": r"\.md$|since\.json$|^configs|^experiments"}


def checkout(box: Path) -> None:
    """Puts the pages and the kept results of the checkout into the folder."""
    for name in ("configs", "experiments"):
        (box / name).unlink()
        shutil.copytree(ROOT / name, box / name, ignore=shutil.ignore_patterns("__pycache__", "benchmarks"))
    shutil.copytree(ROOT / "docs", box / "docs")
    for path in ROOT.glob("*.md"):
        shutil.copy(path, box / path.name)


def figures(name: str, *steps: Step, parts: tuple[str, ...], make: Callable[..., Any] = failed) -> Case:
    return case(f"figures: {name}", "figures", make(*parts), checkout, *steps, **OPTIONS)


def claims(name: str, *steps: Step, parts: tuple[str, ...], command: str = PAGE) -> Case:
    return case(f"claims: {name}", command, refused(*parts), checkout, *steps, **OPTIONS)


def claim(name: str, keys: str, value: Any) -> Case:
    return claims(name, change(CLAIM, keys, value), parts=("swiglu",))


CASES = [
    case("figures: as they are", "figures", accepted(lines=0), checkout, **OPTIONS),
    *(
        figures(f"a result that is {what}", write(f"{RESULTS}/anki/result.json", text), parts=("anki",), make=refused)
        for what, text in BAD_JSON.items()
    ),
    figures("a result that is gone", remove(f"{RESULTS}/anki/result.json"), parts=("anki",), make=refused),
    figures("a result without a figure", change(f"{RESULTS}/anki/result.json", "bleu", ...), parts=("README.md",),
            make=refused),
    figures("a result of a word", change(f"{RESULTS}/anki/result.json", "bleu", "x"), parts=("README.md",),
            make=refused),
    figures("older figures that are a list", write(f"{RESULTS}/older.json", "[]"), parts=("older.json",), make=refused),
    figures("a table without rows", rewrite(
        "experiments/studies/turns/table.csv", lambda text: text.splitlines()[0] + "\n"
    ), parts=("README.md",), make=refused),
    figures("a table without a column", rewrite(
        "experiments/studies/turns/table.csv", lambda text: text.replace("exact_match", "exact", 1)
    ), parts=("turns",), make=refused),
    figures("a table that is binary", write("experiments/studies/turns/table.csv", BINARY), parts=("turns",),
            make=refused),
    figures("a page that is gone", remove("README.md"), parts=("README.md",), make=refused),
    figures("a page that is binary", write("docs/trials.md", BINARY), parts=("docs/trials.md",), make=refused),
    figures("a figure that somebody typed", append("docs/trials.md", "\nIt takes 17.3 seconds.\n"), parts=("17.3",)),
    case("figures: of words", "figures all", refused("all"), checkout, **OPTIONS),
    case("claims: as they are", PAGE, accepted("CLAIMS.md"), checkout, **OPTIONS),
    *(claims(f"figures that are {what}", write(CLAIM, text), parts=("swiglu",)) for what, text in BAD_JSON.items()),
    claim("no runs", "runs", []),
    claim("runs that are a number", "runs", 3),
    claim("a run that is a number", "runs", [3]),
    claim("a run of a word", "runs", [{"test_loss": "good"}] * 8),
    claim("made by a number", "made_by", 3),
    claim("one run fewer", "runs", [{"test_loss": 1.0}]),
    claims("a claim that is none", parts=("swiglo", "swiglu"), command="claims --only=swiglo"),
    claims("no worker", parts=("--workers",), command="claims --only=none --workers=0"),
    claims("into a bucket", parts=("s3://",), command="claims --only=none --workdir=s3://bucket/x"),
    claims("with words", parts=("swiglu",), command="claims swiglu"),
]

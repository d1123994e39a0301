"""Every page, and what accounts for its numbers."""

import re
from collections.abc import Callable, Collection
from pathlib import Path

from experiments.figures import configs, docs, race, readme, results, studies
from experiments.figures.kept import Kept
from experiments.figures.pieces import Page, blank, filled, only_docstrings, wrong
from fxf.errors import UserError
from fxf.files import read_file

PAGES: dict[str, Callable[[Kept], Page]] = {
    **readme.PAGES,
    **docs.PAGES,
    **results.PAGES,
    **race.PAGES,
    **studies.PAGES,
    **configs.PAGES,
}
# Parts of a study's page that are no results that somebody typed.
STUDY = re.compile(r"experiments/studies/\w+/README\.md")
PLAN = r"\A(?:.*\n)*?\*\*Test\*\*, written before the runs(?:.*\n)*?(?=\*\*Command\*\*|\Z)"
CONCLUDED = r"\n## Result\n\n(?:.*\n)*"  # by the result.py of the study, as its own test checks
WRITTEN_WHOLE = ("docs/keys.md", "CLAIMS.md")  # by a program, as a test of theirs checks


def names(root: Path) -> list[str]:
    """Returns the pages of a checkout: of text, and the config files."""
    found = [
        *root.glob("*.md"),
        *root.glob("docs/*.md"),
        *root.glob("experiments/**/README.md"),
        *root.glob("configs/**/*.py"),
    ]
    return sorted({path.relative_to(root).as_posix() for path in found} - set(WRITTEN_WHOLE))


def differences(root: Path, only: Collection[str] = ()) -> list[str]:
    """Returns a line for each figure that the kept results do not give, and for each number without a source.

    Args:
      only: the pages to read; all by default.
    """
    kept, found = Kept(root), []
    for name in only or names(root):
        page, text = page_of(name, kept) if name in PAGES else Page([]), read(root / name)
        found += [f"{name}: {line}" for line in wrong(text, page, _only_texts(root / name, text))]
    return found


def page_of(name: str, kept: Kept) -> Page:
    """Returns what accounts for the numbers of a page.

    Raises:
      UserError: a kept result is missing, or lacks what the page needs.
    """
    try:
        return PAGES[name](kept)
    except UserError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{name}: the kept results do not give its figures: {what}") from error


def read(path: Path) -> str:
    """Returns the text of a page.

    Raises:
      UserError: there is none.
    """
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no text in UTF-8: {error}") from None


def _only_texts(path: Path, text: str) -> str:
    """Returns the text of a page in which all that shows no results is blank, at the same places."""
    if path.suffix == ".py":
        return only_docstrings(text)
    if STUDY.search(path.as_posix()):
        text = blank(PLAN, text)
        return blank(CONCLUDED, text) if (path.parent / "result.py").exists() else text
    return text


def rewrite(root: Path, only: Collection[str] = ()) -> list[str]:
    """Writes the figures of the kept results into the pages, and returns the names of those that changed."""
    kept, changed = Kept(root), []
    for name in only or PAGES:
        text = read(root / name)
        if (new := filled(text, page_of(name, kept))) != text:
            (root / name).write_text(new)
            changed.append(name)
    return changed

"""Builds the documentation as a site in build/site, from the pages and the docstrings: make docs.

The pages keep their places, so that their links work. A file to which a page links is copied with it. For each module
of fxf a page of reference is written, which mkdocstrings fills.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/pages"
LINK = re.compile(r"\]\(([^)#\s]+)|<img[^>]+src=\"([^\"]+)\"")


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in sorted(with_what_they_link(pages())):
        target = PAGES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    config = (ROOT / "docs/mkdocs.yml").read_text() + "  - Reference:\n"
    for folder, modules in itertools.groupby(documented(), lambda path: path.parent.name):
        config += f"      - {folder}:\n" + "".join(f"          - {write_reference(path)}\n" for path in modules)
    (ROOT / "build/mkdocs.yml").write_text(config)
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--config-file={ROOT / 'build/mkdocs.yml'}"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # a notice of the theme
    sys.exit(subprocess.run(words, cwd=ROOT, env=quiet, check=False).returncode)


def pages() -> Iterator[Path]:
    """Yields the pages of text that the repository has."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CLAIMS.md", "CONTRIBUTING.md"))
    for folder in ("docs", "experiments"):
        yield from (ROOT / folder).rglob("*.md")


def with_what_they_link(paths: Iterator[Path]) -> set[Path]:
    """Returns the pages and each file to which they link. A link to a folder is to the page in it."""
    found = set(paths)
    for page in list(found):
        for groups in LINK.findall(page.read_text()):
            target = (page.parent / next(filter(None, groups))).resolve()
            if target.is_file() and target.is_relative_to(ROOT):
                found.add(target)
    return found


def documented() -> list[Path]:
    """Returns the modules of fxf that have a text, by folder."""
    modules = (path for path in (ROOT / "fxf").rglob("*.py") if path.name != "__main__.py" and path.read_text().strip())
    return sorted(modules, key=lambda path: (path.parent, path.name))


def write_reference(path: Path) -> str:
    """Writes the page of a module, and returns its entry in the list of pages."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    page = f"reference/{'/'.join(parts[1:])}.md".replace("__init__", "index")
    (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / page).write_text(f"# {name}\n\n::: {name}\n")
    return f"{name}: {page}"


if __name__ == "__main__":
    main()

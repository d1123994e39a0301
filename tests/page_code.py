"""The Python code of README and docs, as the files that the pages ask a reader to write."""

import re

from helpers import table
from small_runs import ROOT

PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")))
FILES = [(name, of["page"], of["number"]) for of, name in table("files of pages")]


def code_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def write_files(folder):
    for name, page, number in FILES:
        (folder / name).write_text(code_of(page)[number])


def ran(page, number, names):
    """Runs a block of code with these names, and returns the output that its comments state."""
    code = code_of(page)[number]
    exec(code, names)
    return re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)

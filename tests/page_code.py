"""The Python code of README and docs, as the files that the pages let a reader write."""

import re

from small_runs import ROOT

PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")))
# The file, its page, and the number of the code block there.
FILES = (
    ("sort.py", "docs/own_task.md", 0),
    ("idea.py", "README.md", 0),
    ("mine.py", "docs/extending.md", 0),
    ("shift.py", "docs/extending.md", 2),
    ("parallel.py", "docs/extending.md", 3),
    ("small.py", "docs/extending.md", 4),
    ("mlp.py", "docs/flax.md", 0),
    ("pairs.py", "docs/own_parts.md", 0),
    ("make_data.py", "docs/first_week.md", 0),
    ("week.py", "docs/first_week.md", 1),
)


def code_of(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def write_files(folder):
    for name, page, number in FILES:
        (folder / name).write_text(code_of(page)[number])


def ran(page, number, names):
    """Runs a block of code with these names, and returns what it is to print, as its comments say."""
    code = code_of(page)[number]
    exec(code, names)
    return re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)

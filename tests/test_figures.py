"""The numbers on the pages are those of kept results: docs/figures.json maps each number to its file.

"exact"   page: file: a text of the page with {} for figures: the places of these in the file, one or a list; with an
          empty list the file has the text as it is. A place is names and numbers of items, as a > b > 0; of a list,
          NAME=VALUE & … takes such rows; mean, min, max, deviation and count put rows together; ÷ and * compute
"found"   page: the beginning of a table, paragraph or block: the files in which each of its numbers is found, as it is
          rounded there or in another unit; "but" has those that are no results, such as sizes and published figures
"""

import csv
import json
import re
from statistics import mean, stdev

import pytest

from small_runs import ROOT

FIGURES = json.loads((ROOT / "docs/figures.json").read_text())
EXACT = [
    (page, file, text) for page, files in FIGURES["exact"].items() for file, texts in files.items() for text in texts
]
FOUND = [(page, start) for page, blocks in FIGURES["found"].items() for start in blocks]
REDUCED = {"mean": mean, "min": min, "max": max, "deviation": stdev, "count": len}
NUMBER = r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?"
# Code, names such as H100, GPT-2 and CTranslate2, and link targets.
NAMES = r"`[^`]*`|\b[A-Za-z][\w-]*\d[\w.:]*|(?<=\])\([^)]*\)"


def read(name):
    """Returns the contents of the files of this name under experiments/; * matches several."""
    found = []
    for path in sorted((ROOT / "experiments").glob(name)):
        text = path.read_text()
        if path.suffix == ".json":
            found.append(json.loads(text))
        elif path.suffix == ".jsonl":
            found.append([json.loads(line) for line in text.splitlines()])
        elif path.suffix == ".csv":
            found.append([{k: number(v) for k, v in row.items()} for row in csv.DictReader(text.splitlines())])
        else:
            found.append(text)
    assert found, name
    return found


def number(cell):
    return float(cell) if re.fullmatch(NUMBER, cell) else cell


def value_at(items, place):
    """Returns the value at a place of figures.json."""
    if " ÷ " in place:
        above, below = (value_at(items, part) for part in place.split(" ÷ "))
        return above / below
    names, _, factor = place.partition(" * ")
    for name in names.split(" > "):
        if name.isdigit():
            items = [item[int(name)] for item in items]
            continue
        items = [row for item in items for row in (item if isinstance(item, list) else [item])]
        if name in REDUCED:
            items = [REDUCED[name](items)]
        elif "=" in name and name not in items[0]:
            wanted = [pair.split("=") for pair in name.split(" & ")]
            items = [row for row in items if all(str(row[key]) == value for key, value in wanted)]
        else:
            items = [item[name] for item in items]
    (value,) = items
    return value * float(factor) if factor else value


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("page", "file", "text"), EXACT, ids=lambda value: value.replace("/", "-")[:40])
def test_a_figure_of_a_page_is_that_of_a_kept_result(page, file, text):
    places = FIGURES["exact"][page][file][text]
    if not places:
        assert all(text in content for content in texts_of(file))
    values = [value_at(read(file), place) for place in ([places] if isinstance(places, str) else places)]
    assert words(text.format(*values) if values else text) in words((ROOT / page).read_text())


def numbers_of(text):
    """Returns the numbers of a text, as written."""
    return re.findall(NUMBER, re.sub(NAMES, " ", text))


def are_found(numbers, files, units=(1,)):
    """Returns the numbers that no number of these files, times a unit, rounds to."""
    values = {
        abs(float(n.replace(",", ""))) for file in files for text in texts_of(file) for n in re.findall(NUMBER, text)
    }

    def is_found(shown):
        digits = len(shown.partition(".")[2].partition("e")[0])
        value = abs(float(shown.replace(",", "")))
        return any(abs(v * unit - value) <= 0.5000001 * 10.0**-digits for v in values for unit in units)

    return [shown for shown in dict.fromkeys(numbers) if not is_found(shown)]


def texts_of(name):
    """Returns the texts of the files of a name, without the commas of tables."""
    paths = sorted((ROOT / "experiments").glob(name))
    assert paths, name
    return [re.sub(",", " ", path.read_text()) if path.suffix == ".csv" else path.read_text() for path in paths]


@pytest.mark.parametrize(("page", "start"), FOUND, ids=lambda value: value.replace("/", "-")[:40])
def test_every_number_of_a_table_is_in_its_kept_results(page, start):
    text, said = (ROOT / page).read_text(), FIGURES["found"][page][start]
    assert text.count(f"\n{start}") == 1
    block = re.split(r"\n\s*\n|\n```", text[text.index(f"\n{start}") + 1 :])[0]
    assert all(number in numbers_of(block) for number in said.get("but", {}))
    results = [n for n in numbers_of(block) if n not in said.get("but", {})]
    assert are_found(results, said["in"], said.get("units", [1])) == []


def test_a_number_that_no_kept_result_has_is_named():
    assert are_found(["1.50", "1,500", "7,306", "99.9"], ["results/bench/again.json"]) == ["1.50", "1,500"]


def test_kept_results_name_what_made_them():
    kept = ROOT / "experiments"
    for folder in {path.parent for name in ("result.json", "table.csv") for path in kept.rglob(name)}:
        (path,) = [path for path in (folder / "made_by.json", folder / "plan.json") if path.exists()]
        made = json.loads(path.read_text())
        assert {"git_commit", "machine", "versions"} <= made.keys()
        assert re.fullmatch(r"[0-9a-f]{40}", made["git_commit"]), f"{folder}: from code that no commit has"

"""Studies: pages have the tables and verdicts that follow from kept runs, and verdicts change with the rows."""

import json
import re

import pytest

from experiments.runner import filled
from experiments.studies import study
from experiments.studies.__main__ import STUDIES, module_of
from experiments.studies.study import filled_places, rows_of
from fxf.runs.configs import read_config, read_sweep
from fxf.sweeps.points import make_points
from small_runs import new_process
from test_figures import are_found, numbers_of

KEPT = [name for name in STUDIES if (study.FOLDER / name / "runs.jsonl").exists()]
WORDS_OF_A_PAGE, OF_ALL = 600, 6000


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_has_the_tables_and_the_verdicts_that_follow_from_the_runs(name):
    page, module, rows = study.FOLDER / name / "README.md", module_of(name), rows_of(name)
    assert filled(page, filled_places(module, rows)) == page.read_text()
    said = re.findall(r"\*\*([^*]+)\*\*", page.read_text().split("## What follows")[1])
    assert said == [verdict.words for verdict in module.verdicts(rows)]


def test_each_number_of_an_answer_in_the_list_of_studies_is_on_its_page():
    for row in (study.FOLDER / "README.md").read_text().splitlines():
        if link := re.search(r"\]\((\w+/README\.md)\)", row):
            answer = row.split("|")[3]
            assert are_found(numbers_of(answer), [f"studies/{link[1]}"]) == [], answer


def test_pages_are_short():
    words = {path.parent.name: len(path.read_text().split()) for path in study.FOLDER.glob("**/README.md")}
    assert [name for name, n in words.items() if n > WORDS_OF_A_PAGE] == []
    assert sum(words.values()) <= OF_ALL


@pytest.mark.parametrize("name", KEPT)
def test_the_table_has_the_points_of_the_sweep_and_the_figures_of_its_runs(name):
    with new_process():
        every = make_points(read_config(f"studies/{name}").to_dict(), read_sweep(f"studies/{name}"))
    assert [point.name for point in every] == [row["point"] for row in rows_of(name)]
    kept = [json.loads(line) for line in (study.FOLDER / name / "runs.jsonl").read_text().splitlines()]
    points = [run["point"] for run in kept]
    rows = [row for row in rows_of(name) if row["point"] in points or row["status"] != "no result"]
    assert points == [row["point"] for row in rows]
    for run, row in zip(kept, rows, strict=True):
        assert {"git_commit", "versions", "machine"} <= run.keys() and "guests" not in run  # its files have paths
        assert all(value == row[name] for name, value in run["result"].items() if name in row)
        assert all(value == row[name] for name, value in run["overrides"].items())


def test_a_claim_that_fails_is_undecided_if_an_optimum_is_not_bracketed():
    found = [study.Verdict(1.0, holds).if_bracketed(True, known).words for holds in (1, 0) for known in (1, 0)]
    assert found == ["holds", "holds", "does not hold", "undecided: not bracketed"]
    assert module_of("width").verdicts([row for row in rows_of("width") if row[study.RATE] > 2**-9])[1].holds is None


def test_points_that_did_not_start_keep_their_figures_if_the_sweep_has_other_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "FOLDER", tmp_path)
    for folder, text in {"kept": "point,longer,loss\np,0.5,1.5\n", "sweep": "point,loss\np,\n"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "table.csv").write_text(text)
    study.keep("kept", tmp_path / "sweep")
    assert rows_of("kept") == [{"point": "p", "longer": 0.5, "loss": 1.5}]

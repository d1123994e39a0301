"""Studies: pages have the tables and verdicts that follow from the kept runs, and a verdict turns with its rows."""

import json
import re

import pytest

from experiments.runner import filled
from experiments.studies import study
from experiments.studies.__main__ import STUDIES, module_of
from experiments.studies.forecast import result as forecast
from experiments.studies.study import RATE, best, filled_places, rows_of
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
        assert {"git_commit", "versions", "machine"} <= run.keys()
        assert all(value == row[name] for name, value in run["result"].items() if name in row)
        assert all(value == row[name] for name, value in run["overrides"].items())


def test_a_kind_is_taken_at_the_rate_with_the_highest_mean_and_at_the_lowest_of_equal_ones():
    shares = {0.1: (0.2, 0.9), 0.2: (0.6, 0.7), 0.4: (0.7, 0.6)}
    rows = [{"kind": "a", RATE: rate, "share": share} for rate in (0.4, 0.1, 0.2) for share in shares[rate]]
    rows += [{"kind": "b", RATE: 0.1, "share": 0.3}, {"kind": "b", RATE: 0.2}]  # the last has no result
    found = best(rows, ("kind",), lambda cell: round(cell.mean("share"), 6))
    assert {kind: cell.rate for (kind,), cell in found.items()} == {"a": 0.2, "b": 0.1}
    assert found["a",].values("share") == [0.6, 0.7]


def runs_of_a_law(floor, scale, power, share=1.0):
    """Returns rows of small runs whose losses follow the law, and of a larger one with `share` of the law's loss."""
    rows = [{"model.d_model": n, "seed": 0, "parameters": 100 * n * n, "train.steps": 7 * n * n} for n in (3, 5, 7, 9)]
    rows += [{"model.d_model": 20, "seed": 0, "parameters": 14_160, "train.steps": 2800}]
    for row in rows:
        row["test_loss"] = floor + scale * forecast.compute(row) ** -power
    rows[-1]["test_loss"] *= share
    return rows


@pytest.mark.parametrize("floor", [0.4, 0.0])
def test_a_law_is_found_in_losses_that_follow_it(floor):
    small, large = forecast.small_and_large(runs_of_a_law(floor, 0.7, 0.2))
    assert large["model.d_model"] == 20 and len(small) == 4
    assert forecast.fit(small, floor > 0) == pytest.approx((floor, 0.7, 0.2), rel=1e-4)


@pytest.mark.parametrize(("share", "holds"), [(1.015, True), (1.025, False)])
def test_a_forecast_holds_within_the_bound_and_is_undecided_beyond_it(share, holds):
    first, second = forecast.verdicts(runs_of_a_law(0.4, 0.7, 0.2, share))
    assert (first.holds, second.holds) == (holds or None, True)  # one rate: undecided

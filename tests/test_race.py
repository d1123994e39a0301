"""The race: what its entries name, and when an entry reaches its target."""

import pytest

from experiments.race import __main__
from experiments.race.entries import ENTRIES, PAGE, bound, record, table
from experiments.runner import filled
from fxf.verbs.flags import Parser

LOSSES = [1.50, 1.54, 1.52, 1.48, 1.51]  # mean 1.51, standard deviation 0.02236


def rows(name, losses):
    return [{"entry": name, "seconds": 9.0 + i, "validation_loss": x, "gigaflops": 99} for i, x in enumerate(losses)]


def test_the_bound_is_that_of_a_table_of_students_t():
    assert bound(LOSSES) == pytest.approx(1.51 + 2.132 * 0.02236 / 5**0.5, abs=1e-4)


def test_an_entry_reaches_its_target_by_its_bound_and_not_by_its_mean():
    name = "characters:fast_160"
    above = [x + ENTRIES[name] - 1.52 for x in LOSSES]  # the mean is below the target
    assert [record(name, rows(name, losses))[""] for losses in (LOSSES, above)] == ["reached", "missed"]
    assert record(name, rows(name, LOSSES))["seconds"] == "11.0 (9.0 to 13.0)"


def test_the_page_has_the_tables_of_the_kept_results():
    assert filled(PAGE, {"record": table()}) == PAGE.read_text()


@pytest.mark.thorough
def test_an_entry_runs_with_each_seed_and_its_row_has_seconds_loss_and_speed(capsys):
    __main__.main(Parser("race", __main__).parse(["--text=README.md", "--only=fast", "--seeds=2"]))
    found = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in found] == [["characters:fast", "1.88", str(seed)] for seed in (0, 1)]
    assert all(float(figure) > 0 for row in found for figure in row[3:])

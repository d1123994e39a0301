"""The race: what its entries name, and when an entry reaches its target."""

import pytest

from experiments.race import __main__
from experiments.race.entries import PAGE, table
from experiments.runner import filled
from fxf.verbs.flags import Parser


def test_the_page_has_the_tables_of_the_kept_results():
    assert filled(PAGE, {"record": table()}) == PAGE.read_text()


@pytest.mark.thorough
def test_an_entry_runs_with_each_seed_and_its_row_has_seconds_loss_and_speed(capsys):
    __main__.main(Parser("race", __main__).parse(["--text=README.md", "--only=fast", "--seeds=2"]))
    found = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in found] == [["characters:fast", "1.88", str(seed)] for seed in (0, 1)]
    assert all(float(figure) > 0 for row in found for figure in row[3:])

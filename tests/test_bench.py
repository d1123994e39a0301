"""The benchmark's table, by ways that take no time."""

import pytest


def test_ways_take_turns_and_the_first_turn_does_not_count():
    from experiments.benchmarks.rows import Measured, Row, Way, measured

    called = []

    def way(name, seconds):
        def run():
            called.append(name)
            return Measured(seconds[called.count(name) - 1])

        return Way(run, lambda: f"{name} after {len(called)}")

    ways = {"fxf": way("fxf", [99, 1, 4, 2]), "peer": way("peer", [99, 3, 3, 3])}
    found = measured(Row("work", "tokens/s", 12, {}, lambda facts: facts["fxf"]), ways, 3)
    assert found["figures"] == {
        "fxf": {"median": 6, "least": 3, "most": 12},
        "peer": {"median": 4, "least": 4, "most": 4},
    }
    assert found["note"] == "fxf after 8"
    assert called == ["fxf", "peer"] * 4


@pytest.mark.parametrize(("unit", "ratio"), [("tokens/s", "0.50"), ("s", "2.00")])
def test_the_table_says_how_many_times_as_good_fxf_is_also_where_a_peer_wins(unit, ratio):
    from experiments.benchmarks.rows import markdown

    figures = {"fxf": {"median": 2.0, "least": 1.0, "most": 3.0}, "peer": {"median": 4.0, "least": 4.0, "most": 4.0}}
    lines = markdown([{"what": "work", "unit": unit, "figures": figures, "note": ""}]).splitlines()
    assert lines[2:] == [f"| work, {unit} | fxf | 2 | 1 to 3 |  |", f"|  | peer | 4 | 4 to 4 | {ratio} |"]
    assert "not measured: no torch" in markdown([{"what": "work", "error": "no torch"}])

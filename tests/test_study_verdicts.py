"""The verdict of each study turns with the rows of its runs."""

import pytest

from experiments.studies import __main__
from experiments.studies.forecast import result as forecast
from experiments.studies.study import rows_of

# Whatever is exchanged, the rates of recall stay too few, and a seed of the two others does not turn a verdict.
STUDIES = [name for name in __main__.STUDIES if name not in ("breadth", "length", "recall")]
CHOSEN = ("model.", "task.", "data.", "train.", "optimizer.", "seed", "point", "status")


def decided(module, rows):
    return [verdict.holds for verdict in module.verdicts(rows)]


@pytest.mark.parametrize("name", STUDIES)
def test_the_verdicts_of_a_study_turn_when_its_runs_exchange_their_results(name):
    module, rows, found = __main__.module_of(name), rows_of(name), set()
    for moved in (len(rows) // 2, len(rows) // 3, 1):
        exchanged = [
            {key: (row if key.startswith(CHOSEN) else other)[key] for key in row if key in other}
            for row, other in zip(rows, [*rows[moved:], *rows[:moved]], strict=True)
        ]
        found |= {
            number
            for number, (a, b) in enumerate(zip(decided(module, exchanged), decided(module, rows), strict=True))
            if a is not b
        }
    assert found


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
    assert decided(forecast, runs_of_a_law(0.4, 0.7, 0.2, share)) == [holds or None, True]  # one rate: undecided

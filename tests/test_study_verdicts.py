"""The verdict of each study turns with the rows of its runs."""

import pytest

from experiments.studies import __main__
from experiments.studies.breadth import result as breadth
from experiments.studies.forecast import result as forecast
from experiments.studies.length import result as length
from experiments.studies.recall import result as recall
from experiments.studies.study import rows_of

# Of these the tests below change the runs that their verdicts read; two rates leave those of recall open.
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


def test_a_problem_of_length_counts_only_if_it_holds_in_both_makings_of_the_study(monkeypatch):
    def making(*lower):
        names = ("task.problem", "seed", "model.positions")
        keys = [(problem, seed, "walks") for problem in length.CLAIMED for seed in range(5)]
        return [{**dict(zip(names, key, strict=True)), "exact_match_500": 1.0 - (key[:2] in lower)} for key in keys]

    low = making(("parity", 0), ("parity", 1))
    for now, earlier in ((making(), low), (low, making())):
        monkeypatch.setattr(length, "EARLIER", earlier)
        assert length.solved(now) == [name for name in length.CLAIMED if name != "parity"]
    assert length.solved(making(("parity", 0))) == list(length.CLAIMED)


def test_a_margin_is_that_of_the_best_seed_over_every_quoted_kind():
    def row(problem, share, seed=0):
        return {"task.problem": problem, breadth.FIGURE: share, "seed": seed}

    rows = [row("even_pairs", 1.0), row("parity", 0.4), row("parity", 0.527, seed=1), row("odds_first", 0.69)]
    rows += [{"task.problem": "bucket_sort", "seed": 0}]  # without a result
    assert breadth.margins(rows) == pytest.approx({"even_pairs": 0.0, "parity": 0.1, "odds_first": -0.3})
    assert [breadth.place(margin) for margin in (1.0, 0.9, 0.0, -0.1)] == [
        *("ahead", "ahead by less than a point", "level", "behind")
    ]
    (verdict,) = breadth.verdicts([*rows, row("odds_first", 0.704, seed=1)])
    assert (verdict.figure, verdict.holds) == (1, False)


@pytest.mark.parametrize(
    ("softmax", "linear_of_8", "rates", "verdicts"),
    [
        (1.0, 0.3, (0.1, 0.2, 0.4), [True, True]),
        (0.9, 0.3, (0.1, 0.2, 0.4), [False, True]),
        (1.0, 1.0, (0.1, 0.2, 0.4), [True, False]),
        (0.9, 0.3, (0.1, 0.2), [None, None]),  # the better of two rates is at an edge
    ],
)
def test_recall_is_decided_by_cells_whose_rate_is_between_two_others(softmax, linear_of_8, rates, verdicts):
    shares = {("softmax", pairs): softmax for pairs in (2, 8)} | {("linear", 2): 1.0, ("linear", 8): linear_of_8}
    rows = [
        {
            "model.attention": kind,
            "model.d_model": 32,
            "task.pairs": pairs,
            "optimizer.learning_rate": rate,
            "point": "",
        }
        | {"recalled": share if rate == 0.2 else share / 2}
        for (kind, pairs), share in shares.items()
        for rate in rates
    ]
    assert decided(recall, rows) == verdicts


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

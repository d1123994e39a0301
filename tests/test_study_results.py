"""What the page of a study says of its result is what a program computes from its table."""

import collections
import itertools
import json
import math

import pytest

from experiments.studies import beside_quoted, conclude
from experiments.studies.breadth import result as breadth
from experiments.studies.drawn import result as drawn
from experiments.studies.forecast import result as forecast
from experiments.studies.forecast.text import ordered
from experiments.studies.length import result as length
from experiments.studies.length.result import CLAIMED
from experiments.studies.qk_norm.result import sensitivity
from experiments.studies.ranking import result as ranking
from experiments.studies.recall.result import cells, smallest
from experiments.studies.width.result import best_rate, spread
from fxf.runs.command_line import read_config, read_sweep
from fxf.sweeps.points import make_points
from small_runs import new_process

RUN = [study for study in conclude.STUDIES if (conclude.FOLDER / study / "table.csv").exists()]  # the others are plans


@pytest.mark.parametrize("study", RUN)
def test_the_page_says_what_follows_from_the_table(study):
    page = (conclude.FOLDER / study / "README.md").read_text()
    _, heading, result = page.partition(conclude.HEADING)
    assert heading and result == conclude.module_of(study).text(conclude.rows_of(study))


@pytest.mark.parametrize("study", RUN)
def test_the_table_has_the_points_of_the_sweep_and_no_other(study):
    with new_process():
        points = make_points(read_config(f"studies/{study}").to_dict(), read_sweep(f"studies/{study}"))
    assert [point.name for point in points] == [row["point"] for row in conclude.rows_of(study)]


@pytest.mark.parametrize("study", RUN)
def test_the_figures_of_the_table_are_those_of_the_runs(study):
    kept = [json.loads(line) for line in (conclude.FOLDER / study / "runs.jsonl").read_text().splitlines()]
    points = [run["point"] for run in kept]
    rows = [row for row in conclude.rows_of(study) if row["point"] in points or row["status"] != "no result"]
    assert points == [row["point"] for row in rows]
    for run, row in zip(kept, rows, strict=True):
        assert {"git_commit", "versions", "machine"} <= run.keys()
        assert all(value == row[name] for name, value in run["result"].items() if name in row)
        assert all(value == row[name] for name, value in run["overrides"].items())


def test_the_problems_that_length_claims_are_those_with_several_seeds():
    rows = [row for row in conclude.rows_of("length") if row["model.positions"] == "walks"]
    runs = collections.Counter(row["task.problem"] for row in rows)
    assert {problem for problem, n in runs.items() if n > 1} == set(CLAIMED)


def test_a_problem_of_length_counts_only_if_it_holds_in_both_makings_of_the_study(monkeypatch):
    def making(**changed):
        runs = [
            {
                "task.problem": name,
                "seed": seed,
                "model.positions": "walks",
                "exact_match_500": 1.0,
                "point": f"{name}{seed}",
            }
            for name in CLAIMED
            for seed in range(5)
        ]
        return [{**run, "exact_match_500": changed.get(run["point"], 1.0)} for run in runs]

    monkeypatch.setattr(length, "EARLIER", making(parity0=0.9, parity1=0.9))
    assert length.solved(making()) == [name for name in CLAIMED if name != "parity"]
    assert "38 of 40 runs" in length.changes(making())
    assert length.changes(making()).endswith("parity seed 0 0.9 and 1, parity seed 1 0.9 and 1.")
    monkeypatch.setattr(length, "EARLIER", making())
    assert length.solved(making(parity0=0.9, parity1=0.9)) == [name for name in CLAIMED if name != "parity"]
    assert length.solved(making(parity0=0.9)) == list(CLAIMED)


def test_the_quoted_figures_have_the_mean_gain_that_the_abstract_tells():
    gains = [max(figures[6:]) - max(figures[:6]) for figures in breadth.PUBLISHED["accuracy"].values()]
    assert all(kind.startswith("randomized") is (i >= 6) for i, kind in enumerate(breadth.PUBLISHED["kinds"]))
    assert len(gains) == 15
    assert round(sum(gains) / 15, 1) == breadth.PUBLISHED["read"]["mean_gain"]


def test_without_positions_a_copied_string_is_as_right_as_its_most_frequent_symbol_is_frequent():
    def share(n):
        return sum(math.comb(n, k) * max(k, n - k) for k in range(n + 1)) / 2**n / n

    expected = 100 * sum(map(share, range(41, 501))) / 460
    for problem in ("reverse_string", "duplicate_string", "odds_first"):
        assert ranking.KINDS.quoted(problem, "none") == round(expected, 1)


def test_only_a_score_above_every_quoted_kind_is_ahead():
    def row(problem, share, seed=0):
        return {"task.problem": problem, breadth.FIGURE: share, "seed": seed}

    rows = [row("even_pairs", 1.0), row("parity", 0.4), row("parity", 0.527, seed=1), row("odds_first", 0.69)]
    assert breadth.ahead([*rows, {"task.problem": "bucket_sort", "seed": 0}]) == ["parity"]
    assert breadth.clearly_ahead([*rows, row("odds_first", 0.704, seed=1)]) == ["odds_first"]
    assert breadth.margins(rows) == pytest.approx({"even_pairs": 0.0, "parity": 0.1, "odds_first": -0.3})


def test_a_ranking_is_reproduced_by_a_pair_beyond_the_spread_of_seeds_and_contradicted_by_one_the_other_way():
    def rows(**seeds):
        keys = {"task.problem": "bucket_sort", "train.steps": 3}
        return [
            {**keys, "model.positions": kind, "seed": i, breadth.FIGURE: share}
            for kind, shares in seeds.items()
            for i, share in enumerate(shares)
        ]

    found = rows(none=(0.2, 0.21), sinusoidal=(0.2, 0.22), alibi=(0.3, 0.31))  # quoted in this order
    pairs = {("sinusoidal", "none"): "open", ("alibi", "none"): "reproduced", ("alibi", "sinusoidal"): "reproduced"}
    assert ranking.judged(found, "bucket_sort") == pairs
    assert ranking.reproduced(found) == ["bucket_sort"]
    against = rows(none=(0.4, 0.41), sinusoidal=(0.2, 0.22), alibi=(0.3, 0.31))
    assert ranking.judged(against, "bucket_sort")["alibi", "none"] == "contradicted"
    assert ranking.reproduced(against) == []
    assert set(ranking.judged(rows(alibi=(0.3,)), "bucket_sort").values()) == {"not run"}


def drawn_rows(drawn, rotary, sinusoidal, known=0.9):
    kinds = {("rotary", 2048): drawn, ("rotary", 0): rotary, ("sinusoidal", 0): sinusoidal}
    return [
        {
            **{"task.problem": "missing_duplicate", "model.positions": kind, "task.position_range": drawn_from},
            **{"seed": seed, breadth.FIGURE: share, "symbol_accuracy": known},
        }
        for (kind, drawn_from), shares in kinds.items()
        for seed, share in enumerate(shares)
    ]


@pytest.mark.parametrize(
    ("shares", "holds"),
    [
        (((0.7, 0.7, 0.8), (0.5, 0.5, 0.5), (0.4, 0.5, 0.5)), True),
        (((0.7, 0.7, 0.8), (0.5, 0.5, 0.8), (0.4, 0.5, 0.5)), False),  # within the span of seeds
        (((0.54, 0.54, 0.54), (0.5, 0.5, 0.5), (0.4, 0.5, 0.5)), False),  # by less than 5 points
        (((0.7, 0.7, 0.8), (0.5, 0.5, 0.5), (0.51, 0.52, 0.53)), True),  # quoted the other way, but within the span
        (((0.7, 0.7, 0.8), (0.5, 0.5, 0.5), (0.58, 0.58, 0.58)), False),  # sinusoids ahead of rotary, quoted behind
    ],
)
def test_a_ranking_of_drawn_positions_needs_both_gaps_and_no_pair_the_other_way(shares, holds):
    assert drawn.reproduced(drawn_rows(*shares)) == ["missing_duplicate"] * holds
    assert drawn.reproduced(drawn_rows(*shares, known=0.69)) == []  # the lengths of training are not learned
    assert drawn.reproduced(drawn_rows(*shares)[1:]) == []  # a run without a result


def test_the_second_test_of_drawn_positions_is_told_only_when_all_its_runs_have_a_result():
    rows = drawn_rows((0.7, 0.7, 0.8), (0.5, 0.5, 0.5), (0.4, 0.5, 0.5))
    assert drawn.second_test(rows[1:]) == "not all of its runs have a result"
    assert drawn.second_test(rows).endswith("is reproduced (missing_duplicate): it is not found again")
    names = ("missing_duplicate", "even_pairs", "bucket_sort", "reverse_string")
    four = [{**row, "task.problem": name} for name in names for row in rows]
    assert drawn.second_test(four).endswith("it is found again, on condition of the quoted figures")


def test_the_first_test_counts_its_own_problems_only():
    names = [f"problem {i}" for i in range(7)]
    rows = [{"task.problem": name, "seed": seed} for name in names for seed in range(2)]
    assert beside_quoted.problems(beside_quoted.of_first_test(rows)) == names[:5]


@pytest.mark.parametrize(("longer", "explains"), [((0.2, 0.26), "explains"), ((0.2, 0.24), "does not explain")])
def test_longer_runs_explain_a_contradiction_if_the_highest_is_above_all_without_positions(longer, explains):
    here = {"task.problem": "bucket_sort", "symbol_accuracy": 0.9, "train.steps": 3}
    short = [
        {**here, "model.positions": kind, "seed": seed, ranking.FIGURE: value}
        for kind, values in {"none": (0.23, 0.25), "sinusoidal": (0.9, 0.9)}.items()
        for seed, value in enumerate(values)
    ]
    more = {**here, "model.positions": "sinusoidal", "train.steps": 7, "optimizer.learning_rate": 0.1}
    rows = [*short, *({**more, "seed": seed, ranking.FIGURE: value} for seed, value in enumerate(longer))]
    assert f"training {explains} the contradiction" in ranking.second_test(rows)[1]
    assert ranking.scores(rows, "bucket_sort", "sinusoidal") == [90, 90]
    assert "not run" in ranking.second_test(short)[1]


def test_the_best_rate_is_the_lowest_place_of_a_parabola_over_logarithms():
    rates = [2.0**k for k in range(-5, 1)]
    assert best_rate({rate: (math.log2(rate) + 2.3) ** 2 for rate in rates}) == pytest.approx(2**-2.3)
    assert math.isnan(best_rate({rate: rate for rate in rates}))
    assert math.isnan(best_rate({0.5: 2.0, 1.0: 1.0, 2.0: math.inf}))
    assert math.isnan(spread([1.0, math.nan])) and spread([1.0, 3.0, 2.0]) == 3


def test_sensitivity_is_the_mean_loss_above_the_lowest():
    assert sensitivity({0.1: 3.0, 1.0: 2.0, 10.0: 5.5}) == pytest.approx(1.5)


def test_a_cell_is_the_rate_with_the_highest_mean_and_of_several_the_fastest():
    def row(rate, share, step, pairs=4, width=16):
        keys = {"model.attention": "linear", "model.d_model": width, "task.pairs": pairs}
        return {**keys, "optimizer.learning_rate": rate, "recalled": share, "solved_at": step}

    rows = [row(0.1, 0.99, 300), row(0.1, 0.5, 400), row(0.2, 0.99, 300), row(0.2, 0.99, 500), row(0.4, 0.99, 900)]
    rows += [row(0.4, 0.99, 100), row(0.1, 0.99, 100, pairs=8, width=32), row(0.1, 0.2, 100, pairs=8)]
    found = cells(rows)
    assert (found["linear", 16, 4].rate, found["linear", 16, 4].steps) == (0.2, [300, 500])
    assert (smallest(found, "linear", 4), smallest(found, "linear", 8)) == (16, 32)
    assert smallest(found, "softmax", 4) is None


def runs_of_a_law(floor, scale, power):
    """Returns rows of small runs whose losses follow the law, and of one that is larger and has no result yet."""
    rows = [{"model.d_model": n, "seed": 0, "parameters": 100 * n * n, "train.steps": 7 * n * n} for n in (3, 5, 7, 9)]
    for row in rows:
        row["test_loss"] = floor + scale * forecast.compute(row) ** -power
    return [*rows, {"model.d_model": 20, "seed": 0, "train.steps": 2800}]


@pytest.mark.parametrize(("law", "floor"), [(forecast.fit, 0.4), (forecast.LAWS["without a floor"], 0.0)])
def test_a_law_is_found_in_losses_that_follow_it(law, floor):
    small, large = forecast.small_and_large(runs_of_a_law(floor, 0.7, 0.2))
    assert large is None and len(small) == 4
    assert law(small) == pytest.approx((floor, 0.7, 0.2), rel=1e-4)


def test_a_forecast_that_misses_by_more_than_the_bound_does_not_hold():
    rows = runs_of_a_law(0.4, 0.7, 0.2)
    rows[-1]["parameters"] = 24 * 20**2 + 228 * 20  # the narrowest has 24 · 3² + 228 · 3
    assert forecast.amount_of(rows) == pytest.approx(forecast.compute(rows[-1]))
    expected = 0.4 + 0.7 * forecast.compute(rows[-1]) ** -0.2
    for share, verdict in ((1.015, "**holds**"), (1.025, "**does not hold**")):
        rows[-1]["test_loss"] = expected * share
        first, second = forecast.text(rows).splitlines()[-2:]
        assert verdict in first and f"{expected:.4f}" in first
        assert "**holds**" in second


def test_lines_with_equal_english_stand_together():
    lines = ["b\t1", "a\t2", "c\t3", "a\t1", "b\t0"]
    assert sorted(ordered(lines)) == sorted(lines)
    assert len(list(itertools.groupby(line[0] for line in ordered(lines)))) == 3


def test_points_that_have_not_begun_in_a_sweep_keep_what_is_there_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(conclude, "FOLDER", tmp_path)
    (tmp_path / "study").mkdir()

    def sweep(name, **losses):
        folder = tmp_path / name
        for point, loss in losses.items():
            (folder / point).mkdir(parents=True)
            record = {"config": {}, "overrides": {}, "identity": point}
            (folder / point / "config.json").write_text(json.dumps(record))
            (folder / point / "metrics.jsonl").write_text("")
            (folder / point / "result.json").write_text(json.dumps({"test_loss": loss}))
        rows = "".join(f"{point},{losses.get(point, '')}\n" for point in ("first", "second", "third"))
        (folder / "table.csv").write_text(f"point,test_loss\n{rows}")
        conclude.keep("study", folder)
        lines = [json.loads(line) for line in (tmp_path / "study/runs.jsonl").read_text().splitlines()]
        assert all(line["identity"] == line["point"] for line in lines)
        rows = conclude.rows_of("study")
        return [row.get("test_loss") for row in rows], [line["result"]["test_loss"] for line in lines]

    assert sweep("one", first=3, second=2) == ([3, 2, None], [3, 2])
    assert sweep("other", third=1) == ([3, 2, 1], [3, 2, 1])
    assert sweep("again", second=5) == ([3, 5, 1], [3, 5, 1])

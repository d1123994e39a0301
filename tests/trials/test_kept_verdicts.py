"""The kept results of experiments/benchmarks/verdicts.py, and what docs/trials.md says of them."""

import csv
import json

import numpy as np
import pytest

from fxf.trials.evidence import evidence
from small_runs import ROOT

KEPT = ROOT / "experiments/results/verdicts"
PAGE = (ROOT / "docs/trials.md").read_text()
TABLE = json.loads((KEPT / "table.json").read_text())
# The arms' runs of each kind, whether a pair has two seeds, and what is added to the other run's figure.
KINDS = {
    "null": ("reversal", "reversal", True, 0.0),
    "shifted": ("reversal", "reversal", True, -0.2),
    "changed": ("characters", "characters_changed", False, 0.0),
}


def rows(name):
    return list(csv.DictReader((KEPT / f"{name}.csv").read_text().splitlines()))


def test_the_example_of_the_page_is_the_kept_trial_and_follows_from_its_pairs():
    verdict = json.loads((KEPT / "example/verdict.json").read_text())
    assert "".join(f"    {line}\n" for line in verdict["lines"]) in PAGE
    found = evidence([float(row["difference"]) for row in rows("example/table")], verdict["level"])
    kept = [verdict[name] for name in ("effect", "low", "high", "p", "pairs")]
    np.testing.assert_allclose(found, kept, rtol=1e-9)
    for row in rows("example/table"):
        assert float(row["difference"]) == float(row["other"]) - float(row["first"])


def test_the_table_of_the_page_is_the_kept_one():
    assert (KEPT / "table.md").read_text() in PAGE


@pytest.mark.parametrize("row", TABLE["table"], ids=lambda row: f"{row['trials']}-{row['metric']}")
def test_the_verdicts_of_the_table_follow_from_the_kept_runs(row):
    first, other, two_seeds, shift = KINDS[row["trials"]]
    runs = [{int(run["seed"]): float(run[row["metric"]]) for run in rows(name)} for name in (first, other)]
    counts = {"lower": 0, "higher": 0, "neither": 0}
    for number, trial in enumerate(rows(f"{row['trials']}_{row['metric']}")):
        pairs = range(number * row["at most"], number * row["at most"] + int(trial["pairs"]))
        seeds = [(2 * i, 2 * i + 1) if two_seeds else (i, i) for i in pairs]
        differences = [runs[1][b] + shift - runs[0][a] for a, b in seeds]
        found = evidence(differences, TABLE["level"])
        assert found.is_clear or found.n == row["at most"]
        assert not found.n > 1 or not evidence(differences[:-1], TABLE["level"]).is_clear
        counts["lower" if found.high < 0 else "higher" if found.low > 0 else "neither"] += 1
    assert (counts["lower"], counts["higher"], sum(counts.values())) == (row["lower"], row["higher"], row["number"])

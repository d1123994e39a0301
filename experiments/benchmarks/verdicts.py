"""Measures how often verdicts of `fxf try` are right, on simulated pairs and on pairs drawn from kept runs.

    python -m experiments.benchmarks.verdicts                    # the tables, in about half a minute
    python -m experiments.benchmarks.verdicts --pool=reversal    # trains the pool first, in about two minutes
    python -m experiments.benchmarks.verdicts --planted=rate,mask  # runs these planted effects first

It simulates 20,000 trials for each distribution of differences; with equal means, any claim about the mean is false. A
pool has 256 runs of one tiny config that differ only in the seed; 5,000 trials draw both arms of their pairs from it,
each run at most once per trial, so every claim is false. Trials here run all their pairs (--whole); one that stops
early claims a mean no more often. The rule is that of `fxf.sweeps.evidence`, vectorized over trials
(tests/sweeps/test_kept_verdicts.py compares the two). Data and tables are in experiments/results/verdicts/.
"""

import fxf.base.listen  # noqa: F401  First of all.

import csv
import functools
import json
from argparse import Namespace
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks.verdict_runs import KEPT, PLANTED, POOLS, run_planted, train_pool
from experiments.runner import several
from fxf.base.config import one_of
from fxf.base.files import read_json, to_json, write_atomically
from fxf.reports.tables import Row, to_csv, to_markdown
from fxf.sweeps import evidence
from fxf.sweeps.evidence import CALM, CALM_AT, CHECK, FAILURES, LEVELS, LOOKS, SIGNS, WHOLE
from fxf.sweeps.settle import SEEDS_OF_A_RATE
from fxf.verbs.flags import Parser

Array = np.ndarray
exact_sign = functools.cache(evidence.exact_sign)  # thousands of trials share few splits
TRIALS, DRAWS = 20_000, 5_000


class Claims(NamedTuple):
    """Claims of T trials: 1, -1 or 0 each."""

    mean: Array
    uneven: Array
    signs: Array
    failures: Array
    ended: Array  # the number of pairs at which a trial without --whole stops


def claims(x_TN: Array, fails_TN: Array | None = None, seeds: int = 64) -> Claims:
    """Returns the claims of trials of at most `seeds` pairs.

    Args:
      x_TN: differences; NaN where a run failed.
      fails_TN: 1 where only the other run failed, -1 where only the first did; by default none failed.
    """
    x_TN, n_trials = x_TN[:, :seeds], len(x_TN)
    fails_TN = np.zeros(x_TN.shape, int) if fails_TN is None else fails_TN[:, :seeds]
    mean, uneven, signs, failures, ended = (np.zeros(n_trials, int) for _ in range(5))
    p = np.array([[exact_sign(a, b) <= FAILURES for b in range(seeds + 1)] for a in range(seeds + 1)])
    for look in (look for look in LOOKS if look <= seeds):
        x, fails = x_TN[:, :look], fails_TN[:, :look]
        above, below, needed = (x > 0).sum(1), (x < 0).sum(1), SIGNS.get(look, look + 1)
        signs = np.where(signs, signs, (above >= needed) * 1 - (below >= needed))
        more, less = (fails > 0).sum(1), (fails < 0).sum(1)
        failures = np.where(failures, failures, p[more, less] * np.sign(more - less))
        n, m, rms, student, hall = _mean_claims(x, LEVELS.get(look, 0.5))
        enough = n >= WHOLE * look
        if look in LEVELS:
            new = np.where(student == hall, student, 0)
            uneven = np.where(mean != 0, uneven, enough & (student != new))
            mean = np.where(mean == 0, enough * new, mean)
        calm = (
            (look == CALM_AT) & enough & ((abs(m) < CALM * rms / np.sqrt(np.maximum(n - 1, 1))) | (m == 0) & (rms == 0))
        )
        ends = (mean != 0) | (signs != 0) | (failures != 0) | calm | (look == seeds)
        ended = np.where((ended == 0) & ends, look, ended)
    return Claims(mean, uneven, signs, failures, ended)


def _mean_claims(x: Array, level: float) -> tuple[Array, ...]:
    """Returns count, mean and deviation of each row's known values, and the claims of both intervals."""
    known = ~np.isnan(x)
    n = np.maximum(known.sum(1), 2)
    m = np.where(known, x, 0).sum(1) / n
    deviation = np.where(known, x - m[:, None], 0)
    rms = np.sqrt((deviation**2).sum(1) / n)
    safe = np.maximum(rms, 1e-300)
    g = ((deviation / safe[:, None]) ** 3).sum(1) / n
    df, z = n - 1, NormalDist().inv_cdf(1 - level / 2)
    s = safe * np.sqrt(n / df)
    y = np.sqrt(df * np.expm1((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df) / n)
    g = np.where(abs(g) < 1e-6, 1e-6, g)

    def hall(y: Array) -> Array:
        return 3 / g * (np.cbrt(1 + g * (y - g / (6 * n))) - 1)

    def claim(low: Array, high: Array) -> Array:
        return (low > 0) * 1 - (high < 0)

    return known.sum(1), m, rms, claim(m - s * y, m + s * y), claim(m - s * hall(y), m - s * hall(-y))


Shape = Callable[[np.random.Generator, int, int], Array]  # differences [T, N] of a generator, T and N


def _signs(rng: np.random.Generator, t: int, n: int) -> Array:
    return rng.choice([-1.0, 1.0], (t, n))


def _rare(share: float) -> Shape:
    """A gain of a fifth of `share` in most pairs, and in the rest a loss that makes the mean 0."""
    return lambda rng, t, n: (
        np.where(rng.random((t, n)) < share, 0.2 * share - 0.2, 0.2 * share) + rng.normal(0, 0.005, (t, n))
    )


def _lognormal(sigma: float, sign: int = 1) -> Shape:
    return lambda rng, t, n: sign * (rng.lognormal(-(sigma**2) / 2, sigma, (t, n)) - 1)


def _gaussian(mean: float) -> Shape:
    return lambda rng, t, n: rng.normal(mean, 1, (t, n))


def _tuned(rng: np.random.Generator, t: int, n: int, worse: float, effect: float) -> tuple[Array, Array]:
    """Arms that choose the best of three rates on tuning seeds; the other rates are `worse` standard deviations worse.

    Returns:
      The differences [T, N] between the other arm, which is `effect` worse at its best rate, and the first; and the
      same with each further rate of the first arm, and of the other, [2, 2, T, N].
    """
    excess = np.array([worse, 0, worse])
    first, other = excess[rng.normal(excess, SEEDS_OF_A_RATE**-0.5, (2, t, 3)).argsort(-1)] + [[[0]], [[effect]]]
    runs = rng.normal(0, 1, (2, 3, t, n)) + np.stack([first.T, other.T])[..., None]
    (a, *more_a), (b, *more_b) = runs
    return b - a, np.array([[b - each for each in more_a], [each - a for each in more_b]])


def _still(claim: Array, beside: Array) -> Array:
    """Returns which of T claims hold at each further rate of the arm that they call worse; lower is better."""
    x = np.where(claim[:, None] > 0, beside[1], beside[0])
    n, z = x.shape[-1], NormalDist().inv_cdf(1 - CHECK / 2)
    y = np.sqrt(np.expm1((z * (8 * n - 5) / (8 * n - 7)) ** 2 / (n - 1)) / n * (n - 1))
    return (x.mean(-1) * claim > x.std(-1, ddof=1) * y).all(0)


SYMMETRIC: dict[str, Shape] = {
    "Gaussian": _gaussian(0),
    "Student's t, 3": lambda rng, t, n: rng.standard_t(3, (t, n)),
    "±1": _signs,
    "two humps": lambda rng, t, n: _signs(rng, t, n) + rng.normal(0, 0.05, (t, n)),
    "arms of deviation 3 and 1": lambda rng, t, n: rng.normal(0, 3, (t, n)) - rng.normal(0, 1, (t, n)),
}
SKEWED: dict[str, Shape] = {
    "log-normal": _lognormal(1),
    "log-normal, negative": _lognormal(1, -1),
    "rare collapse, 10 %": _rare(0.1),
    "log-normal arms, 0.75 and 0.25": lambda rng, t, n: (
        rng.lognormal(-(0.75**2) / 2, 0.75, (t, n)) - rng.lognormal(-(0.25**2) / 2, 0.25, (t, n))
    ),
}
BEYOND: dict[str, Shape] = {
    "rare collapse, 8.5 %": _rare(0.085),
    "rare collapse, 5 %": _rare(0.05),
    "rare collapse, 3 %": _rare(0.03),
    # Beta(4.9, 0.1) and Beta(49, 1) have the mean 0.98.
    "accuracies near 1 (Beta)": lambda rng, t, n: rng.beta(4.9, 0.1, (t, n)) - rng.beta(49, 1, (t, n)),
    "log-normal, sigma 1.5": _lognormal(1.5),
}
POWER: dict[str, Shape] = {f"Gaussian, {d:g} deviations": _gaussian(d) for d in (0.25, 0.5, 1)}
# Failure rates of both arms, and the differences of pairs without a failure.
FAILING: dict[str, tuple[float, float, Shape]] = {
    "both fail in 10 %": (0.1, 0.1, _gaussian(0)),
    "both fail in 50 %": (0.5, 0.5, _gaussian(0)),
    "the other fails in 10 %, else gains": (0, 0.1, lambda rng, t, n: 0.02 + rng.normal(0, 0.005, (t, n))),
    "failures 30 % and 0": (0.3, 0, _gaussian(0)),
    "failures 50 % and 10 %": (0.5, 0.1, _gaussian(0)),
}
TUNED = {0: (0.2, 0.5, 0.8, 1.2, 2), 0.5: (0.2, 0.8, 2), 1: (0.2, 0.8, 2)}  # by effect, in standard deviations of a run
KINDS = {"null, symmetric": SYMMETRIC, "null, skewed": SKEWED, "null, beyond reach": BEYOND, "effect": POWER}
ON_THE_PAGE = ("differences", "mean, 32 pairs", "mean, 64", "signs", "failures, 64")


def simulated(n_trials: int = TRIALS, seed: int = 0) -> list[Row]:
    """Returns a row of percentages for each distribution."""
    rng, rows = np.random.default_rng(seed), []
    for kind, shapes in KINDS.items():
        rows += [row_of(kind, name, shape(rng, n_trials, 64)) for name, shape in shapes.items()]
    for name, (of_first, of_other, shape) in FAILING.items():
        first, other = (rng.random((n_trials, 64)) < share for share in (of_first, of_other))
        x = np.where(first | other, np.nan, shape(rng, n_trials, 64))
        rows.append(row_of("failures", name, x, other * 1 - first))
    for effect, others in TUNED.items():
        for worse in others:
            name = f"effect {effect:g}, other rates {worse:g} worse" if effect else f"other rates {worse:g} worse"
            x, beside = _tuned(rng, n_trials, 64, worse, effect)
            rows.append(row_of("effect, rates chosen" if effect else "null, rates chosen", name, x, beside=beside))
    return rows


def row_of(kind: str, name: str, x: Array, fails: Array | None = None, beside: Array | None = None) -> Row:
    """Returns the percentage of trials with each claim; with `beside`, only of claims that hold there too."""
    short, long = claims(x, fails, 32), claims(x, fails, 64)
    if beside is not None:
        short, long = _checked(short, beside[..., :32]), _checked(long, beside)
    share = {
        "mean, 32 pairs": short.mean,
        "mean, 64": long.mean,
        "too uneven, 32": (short.uneven != 0) & (short.mean == 0),
        "signs": short.signs,
        "mean or signs": (short.mean != 0) | (short.signs != 0),
        "failures, 64": long.failures,
        "ends at 8 or 16": short.ended < 32,
    }
    percent = {column: round(100 * float(np.mean(claimed != 0)), 2) for column, claimed in share.items()}
    return {"kind": kind, "differences": name, **percent}


def _checked(found: Claims, beside: Array) -> Claims:
    mean, signs = (np.where(_still(claim, beside), claim, 0) for claim in (found.mean, found.signs))
    return found._replace(mean=mean, signs=signs)


def pool_rows(n_trials: int = DRAWS, seed: int = 0) -> list[Row]:
    """Returns a row for each metric of each kept pool."""
    rng, rows = np.random.default_rng(seed), []
    for path in sorted(KEPT.glob("pool_*.csv")):
        runs = list(csv.DictReader(path.read_text().splitlines()))
        for figure in (name for name in runs[0] if name != "seed"):
            values = np.array([float(run[figure]) for run in runs])
            drawn = values[rng.permuted(np.tile(np.arange(len(values)), (n_trials, 1)), axis=1)[:, :128]]
            shown = f"{path.stem.removeprefix('pool_')}, {figure}: {values.min():.3g} to {values.max():.3g}"
            rows.append(row_of("null, real runs", shown, drawn[:, :64] - drawn[:, 64:]))
    return rows


def planted() -> dict[str, Any]:
    """Returns the outcomes of the kept trials of planted effects, by name."""
    return read_json(path, "kept trials") if (path := KEPT / "planted.json").exists() else {}


def planted_rows() -> list[Row]:
    """Returns a row for each kept planted effect."""
    columns = ("headline", "metric", "effect", "low", "high", "pairs")
    return [{"planted": name, **{column: of[column] for column in columns}} for name, of in planted().items()]


def page_table(rows: list[Row]) -> str:
    """Returns the table of docs/trials.md: fewer columns, and one decimal."""
    cells = [
        [f"{value:.1f}" if isinstance(value := row[c], float | int) else value for c in ON_THE_PAGE] for row in rows
    ]
    lines = [list(ON_THE_PAGE), ["---", *["---:"] * (len(ON_THE_PAGE) - 1)]]
    for i, row in enumerate(rows):
        if i == 0 or row["kind"] != rows[i - 1]["kind"]:
            lines.append([f"**{row['kind']}**", *[""] * (len(ON_THE_PAGE) - 1)])
        lines.append(cells[i])
    return "".join(f"|{'|'.join(line)}|\n" for line in lines)


def flags(parser: Parser) -> None:
    parser.flag("pool", several, [], f"first train these pools: {', '.join(POOLS)}")
    parser.flag("planted", several, (), f"first run these planted effects: {', '.join(PLANTED)}")


def main(args: Namespace) -> None:
    for name in args.pool:
        write_atomically(KEPT / f"pool_{name}.csv", to_csv(train_pool(one_of(name, POOLS, "--pool"))))
    for name in args.planted:
        found = {**planted(), one_of(name, PLANTED, "--planted"): run_planted(name)}
        write_atomically(KEPT / "planted.json", to_json(found, indent=1) + "\n")
    rows: dict[str, list[Row]] = {"table": [*simulated(), *pool_rows()], "planted": planted_rows()}
    record: dict[str, Any] = {"trials": TRIALS, "draws": DRAWS, **rows}
    write_atomically(KEPT / "table.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_atomically(KEPT / "page.md", page_table(rows["table"]))
    for name, of_table in rows.items():
        if of_table:
            write_atomically(KEPT / f"{name}.md", to_markdown(of_table, list(of_table[0])))
            print(to_markdown(of_table, list(of_table[0])))


if __name__ == "__main__":
    import sys

    from fxf.verbs.command import run_verb

    run_verb("python -m experiments.benchmarks.verdicts", "experiments.benchmarks.verdicts", sys.argv[1:])

"""The figures of the studies' pages, from each study's table.csv and config."""

from collections.abc import Callable
from statistics import mean

from experiments.figures import comparison_studies
from experiments.figures.kept import Kept
from experiments.figures.pieces import Conclusion, Page, figure
from experiments.figures.turns_study import turns
from experiments.studies.beside_quoted import of_first_test
from experiments.studies.breadth import result as breadth
from experiments.studies.drawn import result as drawn
from experiments.studies.forecast import result as forecast
from experiments.studies.length.result import solved
from experiments.studies.ranking import result as ranking
from experiments.studies.recall import result as recall
from experiments.studies.scan import result as scan
from experiments.studies.width.result import best_rate, losses
from fxf.tasks.length.problems import PROBLEMS

PLACE = "experiments/studies"


def overview(kept: Kept) -> Page:
    longest = kept.config("studies/turns").task
    strings = kept.config("studies/length").task
    by_width = {kind: losses(kept.table("width"), kind) for kind in ("with", "without")}
    (narrowest, *_, widest) = by_width["with"]
    rates = [[best_rate(by_rate) for by_rate in of_width.values()] for of_width in by_width.values()]
    recalled = recall.cells(kept.table("recall"))
    numbers, steps = sorted({pairs for _, _, pairs in recalled}), kept.config("studies/recall").train.steps
    least = {kind: [recall.smallest(recalled, kind, pairs) for pairs in numbers] for kind in recall.KINDS}
    few, many = map(figure, numbers)
    forecasts = kept.table("forecast")
    small, _ = forecast.small_and_large(forecasts)
    times = forecast.amount_of(forecasts) / max(map(forecast.compute, small))
    off = {law: 100 * share for law, share in forecast.errors(forecasts).items()}
    ours, ranked, of_range = (breadth.known(kept.table(study)) for study in ("breadth", "ranking", "drawn"))
    first, reproduced = of_first_test(ranked), ranking.reproduced(ranked)
    longer = {kind: mean(scan.shares(kept.table("scan"), kind, "longer")) for kind in (scan.ABSOLUTE, scan.RELATIVE)}
    return Page(
        [
            *comparison_studies.overview(kept),
            f"Exact match on longer commands is {figure(longer[scan.ABSOLUTE], '.2f')} with sinusoids and "
            f"{figure(longer[scan.RELATIVE], '.2f')} with rotary positions",
            f"to recall the values of {few} keys, and of {many}? | With linear attention {few} need width "
            f"{figure(least['linear'][0])}, and {figure(least['softmax'][1])} is not enough for {many}. Softmax "
            f"attention recalls {many} at width {figure(least['softmax'][1])}, and in no other cell "
            f"{figure(recall.SOLVED)} within {figure(steps, ',')} steps",
            Conclusion("is not enough for", least["linear"][1] is None),
            Conclusion("and in no other cell", recall.n_solved(recalled, "softmax") == 1),
            f"at {figure(strings.longest)} symbols after training on at most {figure(strings.max_length)}? | With "
            f"a bank of fixed walks {figure(len(solved(kept.table('length'))))} of {figure(len(PROBLEMS))}",
            f"by the table's own score? | With walks in {figure(len(breadth.clearly_ahead(ours)))} of "
            f"{figure(len(PROBLEMS))} problems, if the table, which is quoted from memory, is right",
            f"rank three kinds as that table does? | No: in {figure(len(ranking.reproduced(first)))} of the "
            f"{figure(len(ranking.problems(first)))} problems of its claim, and in "
            f"{figure(len(reproduced))} of all {figure(len(ranking.problems(ranked)))}, after "
            f"{figure(kept.config('studies/ranking').train.steps, ',')} steps, which teach little",
            Conclusion("No: in", len(ranking.reproduced(first)) < ranking.NEEDED),
            Conclusion("which teach little", not any(ranking.has_learned(ranked, name) for name in reproduced)),
            f"as that table has it? | In {figure(len(drawn.reproduced(of_range)))} of "
            f"{figure(len(drawn.problems(of_range)))} problems by at least {figure(drawn.GAP)} points, after "
            f"{figure(kept.config('studies/drawn').train.steps, ',')} steps of Muon",
            f"Do models of widths {figure(narrowest)} to {figure(widest)} share their best learning rate? | With "
            f"`base_width`, within a factor of {figure(max(rates[0]) / min(rates[0]), '.2f')}; without it, the best "
            f"rate is {figure(rates[1][0] / rates[1][-1], '.0f')} times lower at {figure(widest)}",
            f"Not within {figure(100 * forecast.BOUND, '.0f')} %: at {figure(times, '.0f')} times the compute the law "
            f"with a floor is {figure(off['with a floor'], '.1f')} % too high, and the one without "
            f"{figure(-off['without a floor'], '.1f')} % too low",
            Conclusion("Not within", abs(off["with a floor"]) > 100 * forecast.BOUND),
            f"Can a decoder reverse {figure(longest.longer + longest.max_length, ',')} symbols after training on at "
            f"most "
            f"{figure(longest.max_length)}?",
        ]
    )


def number_of_runs(study: str) -> Callable[[Kept], Page]:
    """Returns the page of a study whose result.py writes the rest."""
    return lambda kept: Page([f"{figure(len(kept.table(study)))} runs."])


PAGES: dict[str, Callable[[Kept], Page]] = {
    f"{PLACE}/README.md": overview,
    f"{PLACE}/turns/README.md": turns,
    **{
        f"{PLACE}/{study}/README.md": number_of_runs(study)
        for study in (
            "blocks",
            "characters",
            "expressive",
            "forecast",
            "length",
            "positions",
            "qk_norm",
            "recall",
            "scan",
            "width",
        )
    },
}

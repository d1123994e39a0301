"""The figures of the studies' pages, from each study's table.csv and config."""

import math
from collections.abc import Callable, Sequence
from statistics import mean

from experiments.figures.kept import Kept, Row
from experiments.figures.length_studies import positions, turns
from experiments.figures.pieces import Conclusion, Page, figure, table
from experiments.figures.study_rows import CITED, cell, listed, of, training, where
from experiments.studies.breadth import result as breadth
from experiments.studies.forecast import result as forecast
from experiments.studies.length.result import solved
from experiments.studies.ranking import result as ranking
from experiments.studies.recall import result as recall
from experiments.studies.scan import result as scan
from experiments.studies.width.result import best_rate, losses
from fxf.tasks.length.problems import PROBLEMS

PLACE = "experiments/studies"


def overview(kept: Kept) -> Page:
    characters, positions = kept.table("characters"), kept.table("positions")
    bits = bits_by_kind(characters)
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
    ours, ranked = (breadth.known(kept.table(study)) for study in ("breadth", "ranking"))
    longer = {kind: mean(scan.shares(kept.table("scan"), kind, "longer")) for kind in (scan.ABSOLUTE, scan.RELATIVE)}
    return Page(
        [
            f"Exact match on longer commands is {figure(longer[scan.ABSOLUTE], '.2f')} with sinusoids and "
            f"{figure(longer[scan.RELATIVE], '.2f')} with rotary positions",
            f"to recall the values of {few} keys, and of {many}? | With linear attention {few} need width "
            f"{figure(least['linear'][0])}, and {figure(least['softmax'][1])} is not enough for {many}. Softmax "
            f"attention recalls {many} at width {figure(least['softmax'][1])}, but not everything else within "
            f"{figure(steps, ',')} steps",
            Conclusion("is not enough for", least["linear"][1] is None),
            Conclusion("but not everything else", recall.lowest_share(recalled) < recall.SOLVED),
            f"at {figure(strings.longest)} symbols after training on at most {figure(strings.max_length)}? | With "
            f"a bank of fixed walks {figure(len(solved(kept.table('length'))))} of {figure(len(PROBLEMS))}",
            f"by the table's own score? | With walks in {figure(len(breadth.clearly_ahead(ours)))} of "
            f"{figure(len(PROBLEMS))} problems, if the table, which is quoted from memory, is right",
            f"rank three kinds as that table does? | In {figure(len(ranking.reproduced(ranked)))} of "
            f"{figure(len(ranking.problems(ranked)))} problems, after "
            f"{figure(kept.config('studies/ranking').train.steps, ',')} steps",
            f"Do models of widths {figure(narrowest)} to {figure(widest)} share their best learning rate? | With "
            f"`base_width`, within a factor of {figure(max(rates[0]) / min(rates[0]), '.2f')}; without it, the best "
            f"rate is {figure(rates[1][0] / rates[1][-1], '.0f')} times lower at {figure(widest)}",
            f"Not within {figure(100 * forecast.BOUND, '.0f')} %: at {figure(times, '.0f')} times the compute the law "
            f"with a floor is {figure(off['with a floor'], '.1f')} % too high, and the one without "
            f"{figure(-off['without a floor'], '.1f')} % too low",
            Conclusion("Not within", abs(off["with a floor"]) > 100 * forecast.BOUND),
            f"Rotary, by {figure(second(bits) - bits['rotary'], '.2f')} bits; ALiBi is no better than trained "
            f"sinusoids",
            f"only stretched sinusoids reach {figure(max(row['exact_match_30'] for row in positions), '.2f')}",
            f"Can a decoder reverse {figure(longest.longer + longest.max_length, ',')} symbols after training on at "
            f"most "
            f"{figure(longest.max_length)}?",
        ]
    )


def blocks(kept: Kept) -> Page:
    rows, config = kept.table("blocks"), kept.config("studies/blocks")
    kinds, rates = of(rows, "model.block"), of(rows, "optimizer.learning_rate")
    cells = [
        [f"{rate:g}", *(cell(where(rows, model__block=kind, optimizer__learning_rate=rate)) for kind in kinds)]
        for rate in rates
    ]
    means = {
        (kind, rate): mean(row["exact_match"] for row in where(rows, model__block=kind, optimizer__learning_rate=rate))
        for kind in kinds
        for rate in rates
    }
    best = all(means["post_norm", rate] == max(means[kind, rate] for kind in kinds) for rate in rates)
    at = {
        kind: {
            rate: [row["exact_match"] for row in where(rows, model__block=kind, optimizer__learning_rate=rate)]
            for rate in rates
        }
        for kind in kinds
    }
    only = [kind for kind in kinds if min(at[kind][rates[-1]]) >= 0.99] == ["post_norm"]
    gap = means["post_norm", rates[1]] - means["pre_norm", rates[1]]
    close = gap < max(at["pre_norm"][rates[1]]) - min(at["pre_norm"][rates[1]])
    slower = all(means["idea", rate] == min(means[kind, rate] for kind in kinds) for rate in rates)
    return Page(
        [
            f"{figure(len(rows))} runs: three forms, three learning rates, three seeds; three blocks of width "
            f"{figure(config.model.d_model)}, {training(config)} sequences of at most {figure(config.task.max_length)} "
            f"symbols out of {figure(config.task.n_tokens)}, warm-up of {figure(config.optimizer.warmup_steps)} steps.",
            f"Exact match on {figure(config.task.examples, ',')} held-out sequences, for {seeds(rows)}:",
            table(["learning rate", "pre_norm (the definition)", "post_norm", "idea"], cells, "r"),
            Conclusion("its mean is best at every learning rate", best),
            Conclusion(
                f"At {figure(rates[1])} it and the definition differ by less than the definition's seeds", close
            ),
            Conclusion(f"it is the only form whose seeds all reach 0.99 at {figure(rates[-1])}", only),
            Conclusion("but reaches less in these steps at every learning rate", slower),
        ],
        {"the bound of a conclusion": ["all reach 0.99 at"]},
    )


def seeds(rows: Sequence[Row]) -> str:
    return "seeds " + ", ".join(figure(seed) for seed in of(rows, "seed"))


def bits_by_kind(rows: Sequence[Row]) -> dict[str, float]:
    """Returns the mean bits per character of each kind of positions."""
    kinds = of(rows, "model.positions")
    return {kind: mean(row["bits_per_character"] for row in where(rows, model__positions=kind)) for kind in kinds}


def second(bits: dict[str, float]) -> float:
    return sorted(bits.values())[1]


def characters(kept: Kept) -> Page:
    rows, config = kept.table("characters"), kept.config("studies/characters")
    bits = bits_by_kind(rows)
    kinds = sorted(bits, key=lambda kind: -bits[kind])
    cells = [
        [kind, *(f"{row['bits_per_character']:.2f}" for row in where(rows, model__positions=kind))] for kind in kinds
    ]
    gained = bits["sinusoidal"] - bits["sinusoidal_trained"]
    return Page(
        [
            f"{figure(len(rows))} runs: six kinds, two seeds; two blocks of width {figure(config.model.d_model)}, "
            f"windows of "
            f"{figure(config.task.length)} characters of the phrase book's English, {training(config)} windows.",
            f"Bits per character of the text's last {figure(100 * config.data.test, '.0f')} %, which training does "
            f"not see:",
            table(["positions", *(f"seed {seed}" for seed in of(rows, "seed"))], cells, "lrr"),
            Conclusion(
                f"rotary positions are best by {figure(second(bits) - bits['rotary'], '.2f')} bits",
                min(bits, key=lambda kind: bits[kind]) == "rotary",
            ),
            Conclusion(
                "ALiBi is no better than trained sinusoids", abs(bits["alibi"] - bits["sinusoidal_trained"]) < 0.01
            ),
            Conclusion("is worse than both", bits["learned"] > max(bits["sinusoidal"], bits["alibi"])),
            f"in {figure(config.train.steps)} steps it has not learned",
            f"If it starts from sinusoids, training it gains {figure(gained, '.2f')} bits",
            Conclusion("A model without positions is worst", max(bits, key=lambda kind: bits[kind]) == "none"),
        ]
    )


def expressive(kept: Kept) -> Page:
    rows, config = kept.table("expressive"), kept.config("studies/expressive")
    of_kind = {kind: where(rows, model__attention=kind) for kind in of(rows, "model.attention")}
    bases, delays = of(rows, "task.base"), of(rows, "task.delay")
    cells = [
        [str(base), str(delay), *(cell(where(each, task__base=base, task__delay=delay)) for each in of_kind.values())]
        for base in bases
        for delay in delays
    ]
    solved = {kind: [row for row in each if row["exact_match"] >= 0.99] for kind, each in of_kind.items()}
    others = [row for row in rows if row["exact_match"] < 0.99]
    small = [row for row in rows if row["task.base"] == bases[0] or row["task.delay"] == delays[0]]
    return Page(
        [
            f"{figure(len(rows))} runs: bases {listed(bases)}; delays {listed(delays)}; three seeds; one block of "
            f"width "
            f"{figure(config.model.d_model)} with {figure(config.model.n_heads)} heads, {training(config)} series.",
            f"the share of contexts whose whole continuation is right, for {seeds(rows)}:",
            table(["base", "delay", *of_kind], cells, "rr"),
            Conclusion(
                f"Both kinds learn base {figure(bases[0])} and delay {figure(delays[0])} in every run",
                all(row["exact_match"] >= 0.99 for row in small),
            ),
            Conclusion(
                f"softmax attention solves {figure(len(solved['softmax']))} of the "
                f"{figure(len(of_kind['softmax']))} runs, expressive attention {figure(len(solved['expressive']))}",
                len(solved["softmax"]) > len(solved["expressive"]),
            ),
            f"Of the {figure(len(others))} other runs, {figure(ending(others, 1))} end after "
            f"{figure(config.train.steps, ',')} steps with the loss of a guess, ln base, and "
            f"{figure(ending(others, 2))} with",
            f"have at most {figure(config.task.examples)} contexts, training shows them all",
        ],
        {
            "the formula of a definition": ["z²/(1+z²)", "ln (base / 2)"],
            CITED: ["reach 100 % where softmax"],
            "the bound from which a run counts as solved": ["exact match of at least 0.99"],
        },
    )


def ending(rows: Sequence[Row], part: int) -> int:
    """Returns how many runs end within 0.05 of the loss of a guess among a part of the numbers."""
    return sum(abs(row["train_loss"] - math.log(row["task.base"] / part)) < 0.05 for row in rows)


def number_of_runs(study: str) -> Callable[[Kept], Page]:
    """Returns the page of a study whose result.py writes the rest."""
    return lambda kept: Page([f"{figure(len(kept.table(study)))} runs."])


PAGES: dict[str, Callable[[Kept], Page]] = {
    f"{PLACE}/README.md": overview,
    f"{PLACE}/blocks/README.md": blocks,
    f"{PLACE}/characters/README.md": characters,
    f"{PLACE}/expressive/README.md": expressive,
    f"{PLACE}/positions/README.md": positions,
    f"{PLACE}/turns/README.md": turns,
    **{
        f"{PLACE}/{study}/README.md": number_of_runs(study)
        for study in ("forecast", "length", "qk_norm", "recall", "scan", "width")
    },
}

"""Exact match of each form of block with and without a warm-up, by depth, at its best rate."""

from pathlib import Path

from experiments.studies.study import (
    SOLVED,
    Cell,
    Line,
    Row,
    Verdict,
    best,
    bracketed,
    by_exact_match,
    by_rate,
    chart,
    listed,
    table,
)

NAMES = ("model.n_layers", "model.block", "optimizer.warmup_steps")
KINDS = {"pre_norm": "tab:blue", "post_norm": "tab:orange", "idea": "tab:green"}
NEEDED, ALIKE, DEEPER, BEHIND = 0.2, 0.05, 0.1, 0.02
Cells = dict[tuple[int, str, int], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs for each depth, block and warm-up at the rate with the highest mean exact match."""
    return best(rows, NAMES, by_exact_match)


def shares(found: Cells, depth: int, kind: str) -> list[float]:
    """Returns the mean exact match without and with a warm-up."""
    return [cell.mean("exact_match") for (d, k, _), cell in sorted(found.items()) if (d, k) == (depth, kind)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = cells(rows)
    depths = sorted({depth for depth, _, _ in found})
    shallow, deep = depths
    of = {(depth, kind): shares(found, depth, kind) for depth in depths for kind in KINDS}
    gains = {place: after - before for place, (before, after) in of.items()}
    idea = min(max(of[depth, "idea"]) - max(of[depth, "pre_norm"]) for depth in depths)
    deeper = gains[deep, "post_norm"] - gains[shallow, "post_norm"]
    lead = of[deep, "pre_norm"][0] - of[deep, "post_norm"][1]
    is_between = bracketed(rows, NAMES, by_exact_match)

    def between(depths: list[int], *kinds: str) -> bool:
        return all(inside for (depth, kind, _), inside in is_between.items() if depth in depths and kind in kinds)

    return [
        Verdict(gains[deep, "post_norm"], gains[deep, "post_norm"] >= NEEDED).if_bracketed(
            between([deep], "post_norm")
        ),
        Verdict(gains[deep, "pre_norm"], gains[deep, "pre_norm"] <= ALIKE).if_bracketed(between([deep], "pre_norm")),
        Verdict(deeper, deeper > DEEPER).if_bracketed(between(depths, "post_norm")),
        Verdict(lead, lead >= -ALIKE).if_bracketed(between([deep], "pre_norm", "post_norm")),
        Verdict(idea, idea >= -BEHIND).if_bracketed(between(depths, "idea", "pre_norm")),
    ]


def tables(rows: list[Row]) -> dict[str, str]:
    header = ["blocks", "form", "warm-up", "rate", "exact match"]
    order = sorted(cells(rows).items(), key=lambda item: (item[0][0], [*KINDS].index(item[0][1]), item[0][2]))
    lines = [[*map(str, key), f"{cell.rate:g}", listed(cell.values("exact_match"))] for key, cell in order]
    return {"result": table(header, lines)}


def conclusion(rows: list[Row]) -> list[str]:
    found, is_between = cells(rows), bracketed(rows, NAMES, by_exact_match)
    shallow, deep = sorted({depth for depth, _, _ in found})
    post, pre, deeper, lead, idea = verdicts(rows)
    without, with_warmup = shares(found, deep, "pre_norm")[0], shares(found, deep, "post_norm")[1]
    solved = sum(cell.mean("exact_match") >= SOLVED for cell in found.values())
    return [
        f"{deep} post-norm blocks gain {post.figure:+.3f} by the warm-up: the first claim is {post}.",
        f"{deep} pre-norm blocks gain {pre.figure:+.3f} by it: the second is {pre}.",
        f"{deep} post-norm blocks gain {deeper.figure:+.3f} more than {shallow}: the third is {deeper}.",
        f"{deep} pre-norm blocks without a warm-up have {without:.3f}, post-norm blocks with one {with_warmup:.3f}: "
        f"the fourth {lead}.",
        f"At the better warm-up of each, the idea is up to {-idea.figure:.3f} below pre-norm blocks: the fifth is "
        f"{idea}.",
        f"The best rate is the lowest or the highest tried in {len(found) - sum(is_between.values())} of {len(found)} "
        f"cases, and {solved} have a mean of at least {SOLVED}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots mean exact match by rate, a panel for each depth; dashed lines are without a warm-up."""
    panels: dict[str, list[Line]] = {}
    for (depth, kind, warmup), of in sorted(by_rate(rows, NAMES).items()):
        means, style = [cell.mean("exact_match") for cell in of], "o-" if warmup else "o--"
        line = Line(f"{kind}, warm-up {warmup}", [cell.rate for cell in of], means, style, KINDS[kind])
        panels.setdefault(f"{depth} blocks", []).append(line)
    chart(path, panels, xscale="log", xlabel="learning rate", ylabel="exact match, mean of two seeds")

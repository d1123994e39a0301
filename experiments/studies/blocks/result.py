"""What each form of block learns with and without a warm-up, by depth, at its best rate."""

from pathlib import Path
from typing import Any

from experiments.studies.cells import RATE, SOLVED, Cell, best, by_rate, listed, mean_of, records, steps_to, verdict
from experiments.studies.conclude import Row, mean, table

NAMES = ("model.n_layers", "model.block", "optimizer.warmup_steps")
KINDS = ("pre_norm", "post_norm", "idea")
NEEDED, ALIKE, DEEPER, BEHIND = 0.2, 0.05, 0.1, 0.02
TRAINS = 2.5  # nats; a guess among the symbols and the end has about 2.9
Cells = dict[tuple[int, str, int], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs of each depth, block and warm-up at the rate with the highest mean exact match."""
    return best(rows, NAMES, mean_of("exact_match"))


def share(found: Cells, depth: int, kind: str, warmup: int) -> float:
    return mean(found[depth, kind, warmup].values("exact_match"))


def depths(found: Cells) -> list[int]:
    return sorted({depth for depth, _, _ in found})


def longest(found: Cells) -> int:
    """Returns the warm-up of the runs that have one."""
    return max(warmup for _, _, warmup in found)


def gain(found: Cells, depth: int, kind: str) -> float:
    """Returns by how much the mean exact match is higher with a warm-up, each at its best rate."""
    return share(found, depth, kind, longest(found)) - share(found, depth, kind, 0)


def learns(found: Cells, depth: int, kind: str) -> list[bool]:
    """Returns whether the mean exact match is at least a half, without and with a warm-up."""
    return [share(found, depth, kind, warmup) >= 0.5 for warmup in (0, longest(found))]


def idea_less_definition(found: Cells) -> list[float]:
    """Returns the mean exact match of the idea less that of pre-norm, each with its better warm-up, at each depth."""

    def better(depth: int, kind: str) -> float:
        return max(share(found, depth, kind, warmup) for warmup in (0, longest(found)))

    return [better(depth, "idea") - better(depth, "pre_norm") for depth in depths(found)]


def highest_that_trains(rows: list[Row], depth: int, kind: str, warmup: int) -> float | None:
    """Returns the highest rate at which all seeds end with a training loss below `TRAINS`, or None."""
    of_rates = by_rate(rows, NAMES)[depth, kind, warmup]
    return max((cell.rate for cell in of_rates if max(cell.values("train_loss", float("inf"))) < TRAINS), default=None)


def text(rows: list[Row]) -> str:
    found, of_runs = cells(rows), records("blocks")
    lines = []
    for depth in depths(found):
        for kind in KINDS:
            for warmup in (0, longest(found)):
                cell = found[depth, kind, warmup]
                steps = [steps_to(of_runs[row["point"]], "exact_match") for row in cell.rows]
                reached = ", ".join("–" if step is None else str(step) for step in steps)
                figures = [listed(cell.values(name, float("nan"))) for name in ("exact_match", "train_loss")]
                lines.append([str(depth), kind, str(warmup), f"{cell.rate:g}", *figures, reached])
    header = ["blocks", "form", "warm-up", "rate", "exact match", "training loss", "steps to 0.99"]
    return (
        f"Each at its best rate, two seeds:\n\n{table(header, lines)}\n![exact match by learning rate](plot.png)\n\n"
        f"## Conclusion\n\n{_conclusion(rows, found)}"
    )


def _conclusion(rows: list[Row], found: Cells) -> str:
    shallow, deep = depths(found)
    warmup, needs = longest(found), gain(found, deep, "post_norm")
    post, pre = share(found, deep, "post_norm", warmup), share(found, deep, "pre_norm", 0)
    differences = idea_less_definition(found)
    return (
        f"- {deep} post-norm blocks gain {needs:+.3f} by the warm-up: the first claim {verdict(needs >= NEEDED)}.\n"
        f"- {deep} pre-norm blocks gain {gain(found, deep, 'pre_norm'):+.3f} by it: the second claim "
        f"{verdict(gain(found, deep, 'pre_norm') <= ALIKE)}.\n"
        f"- {shallow} post-norm blocks gain {gain(found, shallow, 'post_norm'):+.3f}: the third claim "
        f"{verdict(needs - gain(found, shallow, 'post_norm') > DEEPER)}.\n"
        f"- {deep} pre-norm blocks without a warm-up have {pre:.3f} and post-norm blocks with one {post:.3f}: the "
        f"fourth claim {verdict(pre >= post - ALIKE)}.\n"
        f"- The idea, with its better warm-up, has {listed(differences, '+.3f')} more than pre-norm blocks at depths "
        f"{', '.join(map(str, depths(found)))}: the fifth claim {verdict(min(differences) >= -BEHIND)}.\n"
        f"{_seen(rows, found)}"
    )


def _seen(rows: list[Row], found: Cells) -> str:
    """Returns what the table shows beside the test."""
    deep, rates = depths(found)[-1], {row[RATE] for row in rows}
    trains = {
        (kind, warmup): f"{highest_that_trains(rows, deep, kind, warmup) or 0:g}"
        for kind in KINDS
        for warmup in (0, longest(found))
    }
    said = "; ".join(f"{kind} {trains[kind, 0]} and {trains[kind, longest(found)]}" for kind in KINDS)
    at_edge = sum(cell.rate == max(rates) for cell in found.values())
    return (
        f"- Not a part of the test: the highest rate at which both seeds of {deep} blocks end with a training loss "
        f"below {TRAINS}, without and with a warm-up, is {said} (0: none).\n"
        f"- The best rate is the highest tried in {at_edge} of {len(found)} cases, and "
        f"{sum(share(found, *key) >= SOLVED for key in found)} reach a mean of {SOLVED}. So the order is that "
        "after these steps; what more steps would give is open.\n"
    )


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the mean exact match by rate, a picture for each depth; without a warm-up the line is dashed."""
    from matplotlib.figure import Figure

    found = by_rate(rows, NAMES)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes: Any = None
    colors = dict(zip(KINDS, ("tab:blue", "tab:orange", "tab:green"), strict=True))
    all_depths = sorted({depth for depth, _, _ in found})
    for place, depth in enumerate(all_depths):
        axes = figure.add_subplot(1, len(all_depths), place + 1, sharey=axes, title=f"{depth} blocks")
        for (at, kind, warmup), of in found.items():
            if at == depth:
                means = [mean(cell.values("exact_match")) for cell in of]
                label = f"{kind}, warm-up {warmup}"
                axes.plot([c.rate for c in of], means, "o-" if warmup else "o--", color=colors[kind], label=label)
        axes.set(xscale="log", xlabel="learning rate", ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("exact match, mean of two seeds")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=120)

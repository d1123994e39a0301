"""Judges the ideas of configs/ideas beside one base, on the two tasks of configs/judged.py, by `fxf try`.

python -m experiments.ideas
python -m experiments.ideas --only=text-fire --workers=2
python -m experiments.ideas --only=reversal-fire --again
python -m experiments.ideas --only=none

With --again a judged idea has new pairs where the rate may decide: the worse side with the best of its other rates. The
last one only fills the table of docs/ideas.md from what is kept. The rules, which stand before the runs: the test
loss of the text, and the exact match of the reversal; three learning rates of each side with seeds of their own, and up
to two more beyond; steps for equal FLOPs; 32 pairs, without an early end. A run of the reversal has failed if its exact
match is below 0.02. All trials of a task share the base's runs.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.runner import RESULTS, ROOT, filled, made_now
from fxf.base.errors import UserError
from fxf.base.files import read_json, to_json, write_atomically
from fxf.reports.figures import HIGHER
from fxf.reports.tables import to_markdown
from fxf.sweeps.plan import RATE, Arm, Budget, changed, make_plan, other_config
from fxf.sweeps.trial import carry_out
from fxf.sweeps.verdict import WORSE, Verdict

KEPT, RUNS, PAGE = RESULTS / "ideas", ROOT / "runs/ideas", ROOT / "docs/ideas.md"
METRICS, FAILED = {"text": "-test_loss", "reversal": "+exact_match"}, {"text": None, "reversal": 0.02}
PAIRS = 32
HEADER = ("idea", "the paper says", "text", "reversal", "steps")
HEADER_AGAIN = ("trial", "rate", "verdict")
AGAIN = "again"
SAYS = {  # of models up to millions of times as large
    "canon": "deeper reasoning; without positions as good as with",
    "cope": "lower perplexity; counting and copying out of distribution",
    "differential": "the loss of a model half as large again; better recall",
    "fire": "lower loss, and better on sequences longer still",
    "forgetting": "lower loss than rotary positions; longer sequences",
    "gated_attention": "lower loss, steadier training at higher rates",
    "hyper_connections": "lower loss at equal tokens, for little compute",
    "layer_scale": "deep models train; little at few layers",
    "looped": "a model's in-context learning by under a tenth of its weights",
    "mixture_of_depths": "lower loss at equal compute",
    "multi_token": "better code of large models, and no gain of small ones",
    "ngpt": "the same loss in 4 to 20 times fewer steps",
    "parallel": "faster steps; a little worse when small, level when large",
    "product_keys": "a loss below that of twice the layers",
    "sigmoid": "the loss of softmax, in faster kernels",
    "sink_logits": "no attention parked on the first token",
    "squared_relu": "lower loss at equal compute",
    "stick_breaking": "lower loss than rotary positions; longer sequences",
    "t5_bias": "a learned number for ranges of distances",
    "talking_heads": "lower perplexity, for a slower step",
    "unet": "better images of diffusion models",
    "value_residual": "lower loss of deep models",
    "xpos": "lower loss on longer sequences",
    "z_loss": "steadier training of large models; deeper ones by dropped layers",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="TASK or TASK-IDEA")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    ideas = sorted(path.stem for path in (ROOT / "configs/ideas").glob("*.py"))
    for task in METRICS:
        for idea in ideas:
            name = f"{task}-{idea}"
            is_new = args.only in (None, task) and not (KEPT / f"{name}.json").exists()
            if is_new or args.only == name:
                try:
                    keep(name, judged(task, idea, f"{task}-{ideas[0]}", args.workers, args.again), args.again)
                except UserError as error:
                    print(f"{name}: {error}", flush=True)
    write_atomically(PAGE, filled(PAGE, tables()))


def judged(task: str, idea: str, base: str, workers: int, again: bool = False) -> Verdict:
    """Returns the verdict of an idea. The runs of the base are those of the trial `base`, if that has been made.

    Args:
      again: with the kept rates and steps, but the worse side with the best of its other rates.
    """
    name = f"{task}-{idea}"
    arms = {arm: Arm(*other_config(f"judged:{path}", {})) for arm, path in {"first": task, "other": name}.items()}
    folder, there = RUNS / AGAIN / name if again else RUNS / name, RUNS / base
    if again:
        found = kept()[name]
        changes = {arm: dict(settled["changes"]) for arm, settled in found["settled"].items()}
        changes[worse(found)][RATE] = best_other_rate(found, worse(found))
        arms = {arm: changed(arms[arm], changes[arm]) for arm in arms}
    elif not folder.exists():
        for run in (*there.glob("first-*"), *there.glob("rates/first-*")):
            shutil.copytree(run, folder / run.relative_to(there))
    rates, match = (1, "steps") if again else (3, "flops")
    rules: dict[str, Any] = {"metric": METRICS[task], "failed": FAILED[task], "rates": rates, "match": match}
    plan = make_plan(arms["first"], arms["other"], folder, **rules)
    return carry_out(plan, folder, Budget(PAIRS, minutes=600, whole=True, workers=workers))


def worse(found: Mapping[str, Any]) -> str:
    """Returns the arm that a kept trial calls worse."""
    return "other" if found["verdict"].startswith(WORSE) else "first"


def best_other_rate(found: Mapping[str, Any], arm: str) -> float:
    """Returns the best of the rates that an arm of a kept trial was tried with and did not get."""
    settled, sign = found["settled"][arm], 1 if found["better"] == HIGHER else -1
    figures = {rate: sign * figure for rate, figure in settled["tried"] if rate != settled["changes"][RATE]}
    return max(figures, key=figures.__getitem__)


def keep(name: str, verdict: Verdict, again: bool = False) -> None:
    """Writes the figures of a trial and those of each pair."""
    pairs = [[pair.first, pair.other] for pair in verdict.pairs]
    figures = {"made_by": made_now(), **verdict.figures(), "lines": verdict.lines(), "figures_of_pairs": pairs}
    folder = KEPT / AGAIN if again else KEPT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(to_json(figures, indent=2) + "\n")
    print(f"{name}: {verdict.headline}", flush=True)


def kept(folder: Path = KEPT) -> dict[str, dict[str, Any]]:
    """Returns the kept figures by the names of the trials."""
    return {path.stem: read_json(path, "a kept result") for path in sorted(folder.glob("*.json"))}


def tables() -> dict[str, str]:
    """Returns the tables of the page by name, as the kept results have them."""
    return {"ideas": table(kept()), "again": table_again(kept(), kept(KEPT / AGAIN)), "counts": counts(kept())}


def table_again(before: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Returns a row for each trial that was made again: which side had which rate instead of which, and the verdict."""
    rows = []
    for name, found in results.items():
        arm = worse(before[name])
        rates = best_other_rate(before[name], arm), before[name]["settled"][arm]["changes"][RATE]
        side = f"{'idea' if arm == 'other' else 'base'} at {rates[0]:g}, not {rates[1]:g}"
        rows.append(dict(zip(HEADER_AGAIN, (name.replace("-", ", "), side, cell(found)), strict=True)))
    return to_markdown(rows, HEADER_AGAIN)


def counts(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns how many ideas have each verdict on each task."""
    verdicts = sorted({found["verdict"] for found in results.values()})
    rows = [
        {"verdict": verdict}
        | {task: sum(results[f"{task}-{idea}"]["verdict"] == verdict for idea in SAYS) for task in METRICS}
        for verdict in verdicts
    ]
    return to_markdown(rows, ("verdict", *METRICS))


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a row for each idea: what its paper says, and effect and verdict on each task."""
    rows = []
    for idea, says in SAYS.items():
        of_tasks = [results.get(f"{task}-{idea}") for task in METRICS]
        steps = [found["settled"]["other"]["changes"]["train.steps"] for found in of_tasks if found]
        cells = (idea, says, *map(cell, of_tasks), " and ".join(map(str, steps)))
        rows.append(dict(zip(HEADER, cells, strict=True)))
    return to_markdown(rows, HEADER)


def cell(found: Mapping[str, Any] | None) -> str:
    """Returns a verdict with its effect and interval, where there is one, and the runs that failed."""
    if found is None:
        return "not judged"
    effect = ""
    if found["low"] is not None:
        effect = f"; {found['effect']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"
    failed = "; {first} and {other} of 32 failed".format(**found["failed"]) if any(found["failed"].values()) else ""
    return f"{found['headline']}{effect}{failed}"


if __name__ == "__main__":
    main()

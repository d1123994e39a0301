"""Compares each idea of configs/ideas with one base, on the two tasks of configs/judged.py, by `fxf try`.

python -m experiments.ideas
python -m experiments.ideas --only=text-fire --workers=2
python -m experiments.ideas --only=none

The last command only fills the table of docs/ideas.md from kept results. The rules were fixed before the runs: the
metrics are the test loss of the text and the exact match of the reversal; three learning rates per side, with seeds of
their own, and up to two more beyond; steps for equal FLOPs; 32 pairs, without early stopping. A run of the reversal has
failed if its exact match is below 0.02. All trials of a task share the base's runs.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from experiments.runner import RESULTS, ROOT, filled, made_now
from fxf.base.errors import UserError
from fxf.base.files import read_json, to_json, write_atomically
from fxf.reports.tables import to_markdown
from fxf.sweeps.plan import Arm, Budget, make_plan, other_config
from fxf.sweeps.trial import run_trial
from fxf.sweeps.verdict import Verdict

KEPT, RUNS, PAGE = RESULTS / "ideas", ROOT / "runs/ideas", ROOT / "docs/ideas.md"
METRICS, FAILED = {"text": "-test_loss", "reversal": "+exact_match"}, {"text": None, "reversal": 0.02}
PAIRS = 32
HEADER = ("idea", "the paper says", "text", "reversal", "steps")
SAYS = {  # about models up to millions of times as large
    "canon": "deeper reasoning; without positions as good as with",
    "cope": "lower perplexity; counting and copying out of distribution",
    "differential": "the loss of a model half as large again; better recall",
    "fire": "lower loss, and better on longer sequences",
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
    "sink_logits": "no attention sink on the first token",
    "squared_relu": "lower loss at equal compute",
    "stick_breaking": "lower loss than rotary positions; longer sequences",
    "t5_bias": "a learned bias per range of distances",
    "talking_heads": "lower perplexity, for a slower step",
    "unet": "better images from diffusion models",
    "value_residual": "lower loss of deep models",
    "xpos": "lower loss on longer sequences",
    "z_loss": "steadier training of large models; deeper ones by dropped layers",
}

TRIALS = {f"{task}-{idea}": (task, idea) for task in METRICS for idea in SAYS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*METRICS, *TRIALS, "none"], metavar="TASK or TASK-IDEA")
    parser.add_argument("--workers", type=int, default=1)
    args, failed = parser.parse_args(), False
    for name, (task, idea) in TRIALS.items():
        if args.only == name or (args.only in (None, task) and not (KEPT / f"{name}.json").exists()):
            try:
                keep(name, judged(task, idea, args.workers))
            except UserError as error:
                failed = True
                print(f"{name}: {error}", flush=True)
    write_atomically(PAGE, filled(PAGE, tables()))
    sys.exit(failed)


def judged(task: str, idea: str, workers: int) -> Verdict:
    """Returns the verdict on an idea. It takes the base's runs from the trial of the first idea, if that exists."""
    folder, base_folder = RUNS / f"{task}-{idea}", RUNS / f"{task}-{next(iter(SAYS))}"
    for pattern in ("first-*", "rates/first-*", "checks/first-*"):
        for run in base_folder.glob(pattern):
            if not (there := folder / run.relative_to(base_folder)).exists():
                shutil.copytree(run, there)
    first, other = (Arm(*other_config(f"judged:{path}", {})) for path in (task, f"{task}-{idea}"))
    plan = make_plan(first, other, folder, metric=METRICS[task], failed=FAILED[task], rates=3, match="flops")
    return run_trial(plan, folder, Budget(PAIRS, minutes=600, whole=True, workers=workers))


def keep(name: str, verdict: Verdict) -> None:
    """Writes the results of a trial and of each pair."""
    pairs = [[pair.first, pair.other] for pair in verdict.pairs]
    figures = {"made_by": made_now(), **verdict.figures(), "lines": verdict.lines(), "figures_of_pairs": pairs}
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(to_json(figures, indent=2) + "\n")
    print(f"{name}: {verdict.headline}", flush=True)


def kept() -> dict[str, dict[str, Any]]:
    """Returns the kept results by the names of the trials."""
    return {path.stem: read_json(path, "a kept result") for path in sorted(KEPT.glob("*.json"))}


def tables() -> dict[str, str]:
    """Returns the tables of the page by name, as the kept results have them."""
    return {"ideas": table(kept()), "counts": counts(kept())}


def counts(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the number of ideas with each verdict, by task."""
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
    """Returns a verdict with its effect and interval, if there is one, and the number of failed runs."""
    if found is None:
        return "not judged"
    effect = ""
    if found["low"] is not None:
        effect = f"; {found['effect']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"
    failed = "; {first} and {other} of 32 failed".format(**found["failed"]) if any(found["failed"].values()) else ""
    return f"{found['headline']}{effect}{failed}"


if __name__ == "__main__":
    main()

"""Judges the ideas of configs/ideas beside one base, on the two tasks of configs/judged.py, by `fxf try`.

python -m experiments.ideas
python -m experiments.ideas --only=text-fire --workers=2

The rules, which stand before the runs: the test loss of the text, and the exact match of the reversal; three learning
rates of each side with seeds of their own, and up to two more beyond; steps for equal FLOPs; 32 pairs, without an early
end. A run of the reversal has failed if its exact match is below 0.02. All trials of a task share the base's runs.
"""

import argparse
from pathlib import Path
from typing import Any

from experiments.runner import RESULTS, ROOT, made_now
from fxf.errors import UserError
from fxf.files import read_json, to_json
from fxf.trials.plan import Arm, Budget, Rules, make_plan, other_config
from fxf.trials.trial import carry_out
from fxf.trials.verdict import Verdict

KEPT, RUNS = RESULTS / "ideas", ROOT / "runs/ideas"
METRICS, FAILED = {"text": "-test_loss", "reversal": "+exact_match"}, {"text": None, "reversal": 0.02}
PAIRS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="TASK or TASK-IDEA")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    ideas = sorted(path.stem for path in (ROOT / "configs/ideas").glob("*.py"))
    for task in METRICS:
        for idea in ideas:
            name = f"{task}-{idea}"
            if args.only in (None, task, name) and not (KEPT / f"{name}.json").exists():
                try:
                    keep(name, judged(task, idea, f"{task}-{ideas[0]}", args.workers))
                except UserError as error:
                    print(f"{name}: {error}", flush=True)


def judged(task: str, idea: str, base: str, workers: int) -> Verdict:
    """Returns the verdict of an idea. The runs of the base are those of the trial `base`."""
    name = f"{task}-{idea}"
    arms = [Arm(*other_config(f"judged:{argument}", {})) for argument in (task, name)]
    rules = Rules(METRICS[task], FAILED[task], 3, "flops", "" if name == base else str(RUNS / base))
    folder = RUNS / name
    plan = make_plan(arms[0], arms[1], folder, rules)
    return carry_out(plan, folder, Budget(PAIRS, minutes=600, whole=True, workers=workers))


def keep(name: str, verdict: Verdict) -> None:
    """Writes the figures of a trial and those of each pair."""
    pairs = [[pair.first, pair.other] for pair in verdict.pairs]
    figures = {"made_by": made_now(), **verdict.figures(), "lines": verdict.lines(), "figures_of_pairs": pairs}
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.json").write_text(to_json(figures, indent=2) + "\n")
    print(f"{name}: {verdict.headline}", flush=True)


def kept(folder: Path = KEPT) -> dict[str, dict[str, Any]]:
    """Returns the kept figures by the names of the trials."""
    return {path.stem: read_json(path, "a kept result") for path in sorted(folder.glob("*.json"))}


if __name__ == "__main__":
    main()

"""What a finished run reports: the figures of result.json, and the printed form of its samples."""

from typing import Any

from fxf import weights
from fxf.errors import printable
from fxf.machine import memory
from fxf.reports.figures import HIGHER, LOWER
from fxf.runs.experiment import Experiment
from fxf.training.record import Record


def sample_text(prompt: str, expected: str | None, answer: str, cut_off: bool = False) -> str:
    """Returns the printed form of a sample: one line, or the lines of its text if it has no prompt."""
    mark = "   (cut off)" if cut_off else ""
    if not prompt:
        return "\n".join(map(printable, answer.split("\n"))) + mark
    wrong = expected is not None and answer != expected
    return printable(f"{prompt}  →  {answer}{mark}" + (f"   (expected: {expected})" if wrong else ""))


def scoring_of(experiment: Experiment) -> dict[str, Any]:
    """Returns what config.json says of the scores, so that runs are ranked only where they score the same.

    `better` has the direction of the task's figures, `unit` that of its losses, and `scored` what the task says of the
    data that it scores.
    """
    task, best = experiment.task, experiment.checkpoint.best
    names = [name for name in task.metrics if {name, f"-{name}"} - {*task.metrics}]  # both: the user chooses
    better = {name.removeprefix("-"): LOWER if name.startswith("-") else HIGHER for name in [*names, best] if name}
    unit = "nats" if experiment.model.loss.of_logits else experiment.config["model"]["name"]
    scored = task.scored_data()
    return {"better": better, "unit": unit, **({} if scored is None else {"scored": scored})}


def result_of(
    experiment: Experiment, record: Record, step: int, figures: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Returns the flat object of result.json; `step` is the step of the tested checkpoint."""
    spent = {name: round(value, 3) for name, value in seconds.items()}
    return {
        "task": experiment.config["task"]["name"],
        "steps": record.step,
        "seed": experiment.seed,
        "parameters": weights.count(experiment.model.spec),
        **({"best_step": step} if experiment.checkpoint.best else {}),
        **figures,
        "train_loss": record.train_loss,
        **({"skipped_steps": record.skipped} if experiment.train.skip_nonfinite else {}),
        "tokens_per_second": round(record.tokens / seconds["train"]),
        "train_seconds": spent["train"],
        "compile_seconds": spent["compile"],
        "evaluate_seconds": spent["evaluate"],
        "wall_seconds": spent["wall"],
        **memory.held_on_a_device(),
    }

"""What a finished run reports: the figures of result.json."""

from typing import Any

from fxf import weights
from fxf.machine import memory
from fxf.runs.experiment import Experiment
from fxf.training.loop import Record


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

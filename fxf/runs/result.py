"""What a run reports: the scores of its weights, the figures of result.json, and the printed form of its samples."""

from typing import Any, NamedTuple

from fxf.base import memory, weights
from fxf.base.config import flatten
from fxf.base.errors import UserError, printable
from fxf.reports.figures import HIGHER, LOWER
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import Experiment
from fxf.training import processes
from fxf.training.fine_tuning import evaluated_params
from fxf.training.log import MetricsLog, goodput
from fxf.training.record import Record
from fxf.training.state import TrainState


class Scores(NamedTuple):
    """Scores the weights of a run, and logs the samples among the figures."""

    experiment: Experiment
    evaluators: Evaluators
    log: MetricsLog

    def validation(self, state: TrainState) -> dict[str, Any]:
        """Returns the figures of a state's validation."""
        best = self.experiment.checkpoint.best.removeprefix("-")
        found = plain(self.experiment.task.validate(self.evaluators(evaluated_params(state))))
        if best and best not in found:
            raise UserError(f"checkpoint.best: the validation has no {best}; it has {', '.join(found)}")
        return self.log.without_samples(int(state.step), found)

    def test(self, params: weights.Params, step: int) -> dict[str, Any]:
        """Returns the figures of the test, and prints its samples."""
        self.log.begin("testing", step)
        tested = plain(self.experiment.task.test(self.evaluators(params)))
        tested.pop("answers", None)
        if processes.is_first() and (samples := tested.get("samples")):
            print("\n".join(sample_text(*sample) for sample in samples), end="\n\n")  # the result stands apart
        return self.log.without_samples(step, tested, test=True)


def plain(figures: dict[str, Any]) -> dict[str, Any]:
    """Returns figures by name, NumPy's and JAX's numbers as those of Python."""
    return {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in figures.items()}


def sample_text(prompt: str, expected: str | None, answer: str, cut_off: bool = False) -> str:
    """Returns the printed form of a sample: one line, or the lines of its text if it has no prompt."""
    mark = "   (cut off)" if cut_off else ""
    if not prompt:
        return "\n".join(map(printable, answer.split("\n"))) + mark
    wrong = expected is not None and answer != expected
    return printable(f"{prompt}  →  {answer}{mark}" + (f"   (expected: {expected})" if wrong else ""))


def scoring_of(experiment: Experiment) -> dict[str, Any]:
    """Returns what config.json says of the scores, so that runs are ranked only where they score the same.

    `better` has the direction of the task's figures, `unit` that of its losses, and `scored` what tells the data that
    it scores from others.
    """
    task, best = experiment.task, experiment.checkpoint.best
    names = [name for name in task.metrics if {name, f"-{name}"} - {*task.metrics}]  # both: the user chooses
    better = {name.removeprefix("-"): LOWER if name.startswith("-") else HIGHER for name in [*names, best] if name}
    unit = "nats" if experiment.model.loss.of_logits else experiment.model_config.name
    return {"better": better, "unit": unit, "scored": scored_of(experiment)}


def scored_of(experiment: Experiment) -> dict[str, Any]:
    """Returns what the task says of the data that it scores, or else its keys and the digests of its data."""
    if (scored := experiment.task.scored_data()) is not None:
        return scored
    keys = {key: value for key, value in flatten(experiment.config) if key.startswith(("task.", "data."))}
    others = ("task.metrics", "data.path", "data.prepared")  # a path counts by its content
    return {key: value for key, value in keys.items() if key not in others} | experiment.task.digests()


def result_of(
    experiment: Experiment, record: Record, step: int, figures: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Returns the flat object of result.json; `step` is the step of the tested checkpoint."""
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
        **{f"{name}_seconds": round(seconds[name], 3) for name in ("train", "compile", "evaluate", "wall")},
        "goodput": round(goodput(seconds), 4),
        **memory.held_on_a_device(),
    }

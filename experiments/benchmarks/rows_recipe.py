"""The row of a whole training on real text."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rows import Row, Rows, Settings, Way

from fxf.config import section
from fxf.data.text import encoded_text
from fxf.errors import UserError
from fxf.face.runs import read_config
from fxf.machine.devices import require_devices
from fxf.runs.experiment import build
from fxf.tasks import TASKS
from fxf.training.log import Clock
from fxf.training.step import make_train_steps


class Recipe:
    """A config's whole training on a text, which ends with its validation loss."""

    def __init__(self, argument: str, settings: Settings) -> None:
        config = read_config(f"characters:{argument}")
        config.data.path = settings.text
        self.experiment = build(config)
        self.steps = 20 if settings.quick else self.experiment.train.steps
        self.layout = self.experiment.layout()
        assert self.experiment.task.batch is not None
        trainer = self.experiment.trainer(self.layout)
        self.train_steps = make_train_steps(trainer, self.experiment.task.batch, self.steps)
        self.evaluator = self.experiment.evaluator(Clock(0.0), self.layout)

    def text(self) -> Any:
        config: Any = section(TASKS["language_model"].sections["data"], self.experiment.config["data"], "data")
        return encoded_text(config, None, self.experiment.max_len + 1)

    def train(self) -> float:
        """Trains a new model, and returns its validation loss, in nats per character."""
        state, numbers = self.experiment.new_state(self.layout), self.experiment.hyperparameters()
        state, _ = self.train_steps(state, numbers, np.int32(self.steps))
        return self.experiment.task.validate(self.evaluator(state.params))["validation_loss"]


def recipe(settings: Settings) -> Iterator[Row]:
    """nanoGPT's whole recipe for a CPU on real text; the note has the validation losses. Takes minutes, and --text."""
    if not settings.text:
        raise UserError("--text: missing; the row recipe trains on it")

    def ours(argument: str) -> Way:
        require_devices()
        recipe, losses = Recipe(argument, settings), list[float]()
        return Way(lambda: losses.append(recipe.train()), lambda: losses[-1])

    def theirs() -> Way:
        from peers_gpt import NanoGPT

        text, losses = Recipe("nanogpt_cpu", settings).text(), list[float]()
        peer = NanoGPT(text.tokenizer.vocab_size, text.tokens("train"), text.tokens("validation"))
        return Way(lambda: losses.append(peer.train(20 if settings.quick else 0)), lambda: losses[-1])

    for argument in ("nanogpt_cpu", "fast"):
        ways: dict[str, Callable[[], Way]] = {"fxf": functools.partial(ours, argument), "PyTorch": theirs}
        yield Row(f"characters:{argument}, all of training and validation", "s", 0, ways, _losses)


def _losses(losses: dict[str, float]) -> str:
    return ", ".join(f"{name} validation loss {value:.3f}" for name, value in losses.items())


ROWS: dict[str, Rows] = {"recipe": recipe}

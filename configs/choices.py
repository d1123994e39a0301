"""Direct preference optimization of a run of `completions`, on lines with a chosen and a rejected answer.

fxf train --config=choices:RUN --config.data.path=choices.jsonl --workdir=runs/preferring

A line is such as {"prompt": "2 + 2 =", "chosen": " 4", "rejected": " 5"}; data.source, data.target and task.rejected
name the fields. The objective is that of `objectives/preferences`, in which the tokens of the prompt cancel. The scores
are those of the chosen answers. train.batch_size counts pairs of answers.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from completions import Completions, CompletionsConfig
from ml_collections import ConfigDict
from objectives import preferences

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.data.batches import Arrays, padded
from fxf.data.corpus import DataConfig, TokenPair, read_corpus, tokenize
from fxf.data.tokenizer import Special
from fxf.reports.run_files import read
from fxf.tasks import RegisteredTask


@dataclasses.dataclass(frozen=True)
class ChoicesConfig(CompletionsConfig):
    """The `task` section for `choices:CHOICES`."""

    rejected: str = key("rejected", "the field of the answer that is not preferred")


def in_turn(pairs: Sequence[TokenPair], shape: tuple[int, int, int], special: Special) -> Arrays:
    """Returns the arrays of 2 N rows of a decoder: the row of each chosen answer, and then that of the rejected one."""
    rows, length = [row for pair in pairs for row in pair], max(shape[1:])
    targets, mask = padded(rows, 2 * shape[0], length, special.pad)
    inputs = np.pad(targets, ((0, 0), (1, 0)), constant_values=special.bos)[:, :-1]
    return {"inputs": inputs, "targets": targets, "weights": mask.astype(np.float32)}


class Choices(Completions):
    """Pairs of answers to learn from; validation and test complete prompts."""

    def arrays(self, part: str) -> Callable[..., Arrays]:
        return in_turn if part == "train" else super().arrays(part)

    def pairs(self, part: str) -> list[TokenPair]:
        if part != "train":
            return super().pairs(part)
        data = dataclasses.replace(self.data, target=self.config.rejected)
        tokenized = tokenize(data, self.tokenizer, read_corpus(data).train)
        rejected = {example.where: self.row(example).target for example, _ in tokenized}
        chosen = {example.where: row.target for example, row in self.tokenized(part)}
        return [TokenPair(row, rejected[where]) for where, row in chosen.items() if where in rejected]


CHOICES = RegisteredTask({"task": ChoicesConfig, "data": DataConfig}, Choices, ("transformer_lm",))


def get_config(run: str) -> ConfigDict:
    if (task := read(Path(run)).task) not in ("completions:COMPLETIONS", "choices:CHOICES"):
        raise UserError(f"{run}: expected a run of completions, got one of {task}")
    config = preferences.get_config(run)
    with config.unlocked():
        config.task.update(name="choices:CHOICES", rejected="rejected")
        config.model.name = "objectives.preferences:PREFERRING"
        config.data.update(name="completions:JSON_LINES", source="prompt", target="chosen")
    return config

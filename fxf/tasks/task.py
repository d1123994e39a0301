"""The contract between a task and the experiment that runs it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.models.decode_config import DecodeConfig
from fxf.models.model import Batch
from fxf.models.steps import Prompts
from fxf.tasks.prompts import Decoded, PromptGroup, of_each_prompt, one_group, padded_prompts

NO_END = -1  # no token ends a sequence
FIRST = 0  # the token that a decoder reads first, unless a prompt says otherwise


class RunInfo(NamedTuple):
    """The parts of a run that a task may read besides its own section: others, and the run folder if there is one."""

    train: Any
    data: Any = None
    seed: int = 0
    folder: Path | None = None


class Evaluator(NamedTuple):
    """A model with its params, as a task uses it.

    Attributes:
      decode: `decode(groups)` returns (tokens, scores) of each `PromptGroup`. Tokens are int32 [N, W, max_tokens], W
        hypotheses of each prompt with the best first. An end token fills all places after it. Scores are [N, W], or
        None.
      loss: `loss(batch) -> (loss_sum, weight_sum)`, without dropout or smoothing: the sums of the cross-entropy of the
        targets, whatever loss trains the model; of a model whose outputs are not logits, those of its own loss.
      logits: `logits(batch)` [B, T, V].
      in_nats: whether the loss is that cross-entropy, in nats.
      stream: `stream(group)` yields the new tokens of the only prompt of a group so far, time and again.
    """

    decode: Callable[[Sequence[PromptGroup]], Sequence[Decoded]]
    loss: Callable[[Mapping[str, Any]], tuple[float, float]]
    logits: Callable[[Mapping[str, Any]], np.ndarray]
    in_nats: bool = True
    stream: Callable[[PromptGroup], Iterator[list[int]]] | None = None

    def top(self, prompts: Prompts, max_tokens: int) -> np.ndarray:
        """Returns the best hypothesis of each prompt, int32 [N, max_tokens]."""
        ((tokens_NWU, _),) = self.decode([PromptGroup((), prompts, max_tokens)])
        return tokens_NWU[:, 0]


class Task:
    """A task: the data to learn from and the scoring. Each is a subclass, built from its section and a `RunInfo`.

    Building a task raises a UserError if its data or its tokenizer cannot be read or made.

    A task that only trains and scores has `vocab_size`, `longest`, `metrics`, `validate`, and either `batch` or
    `batches`. A task that answers prompts also has `encode` or `to_prompts`, and `to_text`; it sets `generates`. A task
    that can be probed has `to_batch`. `has` says which of these a task defines.

    Attributes:
      vocab_size: the number of tokens, which are 0 … vocab_size - 1.
      longest: the number of tokens in the longest sequence that a model must read in training and scoring.
      metrics: names of figures of `validate` by which a checkpoint can be chosen. The highest figure is the best, or
        the lowest where the name has a - in front.
      end_token: the token that ends a generated sequence.
      around: the tokens that the model, or its encoder, reads in front of a text and after it, None for none.
      generates: whether scores or answers take tokens that the model generates.
      files: texts that a run of this task keeps in its folder, by file name.
    """

    vocab_size: int
    longest: int
    metrics: tuple[str, ...]
    end_token: int = NO_END
    around: tuple[int | None, int | None] = (FIRST, None)
    generates: bool = False
    files: Mapping[str, str] = {}

    @classmethod
    def has(cls, name: str) -> bool:
        """Returns whether the class defines the method of this name itself, beyond what every task has."""
        return getattr(cls, name) is not getattr(Task, name)

    # Training.

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        """Returns the batch of a step; a pure function that runs on the device."""
        raise NotImplementedError

    def batches(self) -> Any:
        """Returns a Grain iterator with a batch for each step, whose position can be saved, in place of `batch`.

        A process has its own rows of each batch (`fxf.data.order.share`).
        """
        raise NotImplementedError

    def largest_batch(self) -> Any:
        """Returns the shapes and types of the largest batch, with the rows of all processes; by default the first."""
        if not self.has("batches"):
            return jax.eval_shape(self.batch, random_key(0), np.int32(0))
        shares = [next(self.batches())] * jax.process_count()
        return jax.eval_shape(lambda: jax.tree.map(lambda *x: jnp.concatenate(x), *shares))

    def batch_shapes(self) -> Sequence[Any]:
        """Returns the shapes and types of batches of each length, the largest first; by default all have one length."""
        return [self.largest_batch()]

    # The data.

    def figures(self) -> dict[str, Any]:
        """Returns the figures of the data that are known before training, by plain names."""
        return {}

    def digests(self) -> dict[str, str]:
        """Returns digests of the data by name, if the config does not determine the data."""
        return {}

    def scored_data(self) -> dict[str, Any] | None:
        """Returns what tells the data of `validate` and `test` from others, by name, such as a digest of a text.

        Runs are ranked only if it is the same. None stands for the sections `task` and `data` and the digests.
        """
        return None

    # Scoring.

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the figures of the validation data by plain names. Choices during a run depend on them.

        They may hold `samples`, as those of `test`.
        """
        raise NotImplementedError

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the figures that a run reports. By default they are those of `validate`.

        They may hold a list `samples` of (prompt, expected, answer). The prompt is "" if there is none, and expected is
        None if no answer is the right one. A fourth item says whether the answer was cut off before its end token. They
        may hold a list `answers` of all (prompt, right answers, answer).
        """
        return self.validate(evaluator)

    def test_pairs(self, evaluator: Evaluator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Returns what `test` does, of pairs of a prompt and a right answer."""
        raise NotImplementedError

    # Prompts and answers.

    def encode(self, text: str) -> list[int]:
        """Returns the tokens that a decoder reads for a prompt. Raises a UserError if a text is not a prompt."""
        raise NotImplementedError

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        """Returns the prompts of N texts, in groups that are decoded together; a text in no group has an empty answer.

        Args:
          max_tokens: the largest number of new tokens; 0 means as many as fit.
          max_len: the number of the model's positions.

        Raises:
          UserError: a text is not a prompt; the line has its number.
        """
        (group,) = one_group(padded_prompts(of_each_prompt(self.encode, texts)), max_tokens, max_len)
        n_tokens = group.prompts["tokens"].shape[1] + group.max_tokens
        return [group._replace(prompts=group.prompts | self.placed(group.prompts["lengths"], n_tokens))]

    def placed(self, lengths_N: np.ndarray, n_tokens: int) -> dict[str, np.ndarray]:
        """Returns the positions [N, n_tokens] of prompts of these lengths and new tokens, if the task sets them."""
        return {}

    def decode(self, evaluator: Evaluator, groups: Sequence[PromptGroup]) -> Sequence[Decoded]:
        """Returns the tokens and scores for each group of prompts. By default the model generates them.

        Answers to a user's texts come from it. For scores `validate` calls it, or `evaluator`.
        """
        return evaluator.decode(groups)

    def rules(self, decode: DecodeConfig) -> dict[str, Any]:
        """Returns `end_token` and `words` of a `Decoder`, from the texts of the `decode` section.

        Raises:
          UserError: the section has a text of which the task knows no tokens.
        """
        for name in ("ends", "banned", "prefix"):
            if getattr(decode, name):
                raise UserError(f"decode.{name}: only a task on text, which has a tokenizer, reads it")
        return {"end_token": self.end_token}

    def to_text(self, text: str, tokens: list[int]) -> str:
        """Returns the answer to a text, from the new tokens before the end token."""
        raise NotImplementedError

    def to_batch(self, text: str, answer: str) -> Batch:
        """Returns the batch of one row, without padding, in which the model reads a text and its answer."""
        raise NotImplementedError

    def token_name(self, token: int) -> str:
        """Returns a token as text."""
        return str(token)


def language_model_batch(targets_BT: jax.Array, weights_BT: jax.Array, first: int = 0) -> Batch:
    """Returns the batch of a decoder. Its inputs are the token `first` and the targets without the last one."""
    inputs_BT = jnp.pad(targets_BT, ((0, 0), (1, 0)), constant_values=first)[:, :-1]
    return {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}

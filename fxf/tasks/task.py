"""The contract between a task and the experiment that runs it."""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.decoding.steps import Prompts
from fxf.models.model import Batch
from fxf.tasks.prompts import Decoded, PromptGroup
from fxf.training.step import TrainConfig

NO_END = -1  # no token ends a sequence
FIRST = 0  # the token that a decoder reads first, unless a prompt says otherwise


class RunInfo(NamedTuple):
    """The parts of a run that a task may read besides its own section. `folder` is the run folder, if there is one."""

    train: TrainConfig
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
    """

    decode: Callable[[Sequence[PromptGroup]], Sequence[Decoded]]
    loss: Callable[[Mapping[str, Any]], tuple[float, float]]
    logits: Callable[[Mapping[str, Any]], np.ndarray]
    in_nats: bool = True

    def top(self, prompts: Prompts, max_tokens: int) -> np.ndarray:
        """Returns the best hypothesis of each prompt, int32 [N, max_tokens]."""
        ((tokens_NWU, _),) = self.decode([PromptGroup((), prompts, max_tokens)])
        return tokens_NWU[:, 0]


class Task(abc.ABC):
    """A task: the data to learn from and the scoring. Each is a subclass, built from its section and a `RunInfo`.

    Building a task raises a UserError if its data or its tokenizer cannot be read or made.

    A task that only trains and scores has `vocab_size`, `longest`, `metrics`, `validate`, and either `batch` or
    `batches`. A task that answers prompts also has `to_prompts` and `to_text`, and sets `generates`. A task that can
    be probed has `to_batch`.

    Attributes:
      vocab_size: the number of tokens, which are 0 … vocab_size - 1.
      longest: the number of tokens in the longest sequence that a model must read in training and scoring.
      metrics: names of figures of `validate` by which a checkpoint can be chosen. The highest figure is the best, or
        the lowest where the name has a - in front.
      end_token: the token that ends a generated sequence.
      around: the tokens that the model, or its encoder, reads in front of a text and after it, None for none.
      generates: whether scores or answers take tokens that the model generates.
      files: texts that a run of this task keeps in its folder, by file name.
      batch: `batch(key, step)` returns the batch of a step; it is a pure function that runs on the device.
      batches: `batches()` returns a Grain iterator with a batch for each step, of which a process has its own rows
        (`fxf.data.order.share`); its position can be saved.
      largest_batch: returns the shapes of the largest batch; needed if `batch` does not determine them.
      figures: returns the figures of the data that are known before training, by plain names.
      digests: returns digests of the data by name, if the config does not determine the data.
      scored_data: returns what tells the data of `validate` and `test` from others, by name, such as a digest of a
        text. Runs are ranked only if it is the same. By default it is the sections `task` and `data` and the digests.
      test_pairs: `test_pairs(evaluator, pairs)` returns what `test` does, of pairs of a prompt and a right answer.
      to_prompts: `to_prompts(texts, max_tokens, max_len)` returns the prompts of N texts, in groups that are decoded
        together; a text in no group has the empty answer. `max_tokens` 0 means as many as fit; `max_len` is the number
        of the model's positions. It raises a UserError, with the text's number, if a text is not a prompt.
      to_text: `to_text(text, tokens)` returns the answer to a text, from the new tokens before the end token.
      to_batch: `to_batch(text, answer)` returns the batch of one row, without padding, in which the model reads both.
      token_name: returns a token as text.
    """

    vocab_size: int
    longest: int
    metrics: tuple[str, ...]
    end_token: int = NO_END
    around: tuple[int | None, int | None] = (FIRST, None)
    generates: bool = False
    files: Mapping[str, str] = {}
    batch: Callable[[jax.Array, jax.Array], Batch] | None = None
    batches: Callable[[], Any] | None = None
    largest_batch: Callable[[], Any] | None = None
    figures: Callable[[], dict[str, Any]] = dict
    digests: Callable[[], dict[str, str]] = dict
    scored_data: Callable[[], dict[str, Any]] | None = None
    test_pairs: Callable[[Evaluator, Sequence[tuple[str, str]]], dict[str, Any]] | None = None
    to_prompts: Callable[[list[str], int, int], Sequence[PromptGroup]] | None = None
    to_text: Callable[[str, list[int]], str] | None = None
    to_batch: Callable[[str, str], Batch] | None = None
    token_name: Callable[[int], str] = str

    @abc.abstractmethod
    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the figures of the validation data by plain names. Choices during a run depend on them.

        They may hold `samples`, as those of `test`.
        """

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the figures that a run reports. By default they are those of `validate`.

        They may hold a list `samples` of (prompt, expected, answer), or of what `sample` returns. The prompt is "" if
        there is none, and expected is None if no answer is the right one. They may hold a list `answers` of all
        (prompt, right answers, answer).
        """
        return self.validate(evaluator)

    def decode(self, evaluator: Evaluator, groups: Sequence[PromptGroup]) -> Sequence[Decoded]:
        """Returns the tokens and scores for each group of prompts. By default the model generates them."""
        return evaluator.decode(groups)


def sample(prompt: str, expected: str | None, answer: str, cut_off: bool) -> tuple[Any, ...]:
    """Returns a sample for `Task.test`; behind an answer that was cut off before its end token stands True."""
    return (prompt, expected, answer, True) if cut_off else (prompt, expected, answer)


def language_model_batch(targets_BT: jax.Array, weights_BT: jax.Array, first: int = 0) -> Batch:
    """Returns the batch of a decoder. Its inputs are the token `first` and the targets without the last one."""
    inputs_BT = jnp.pad(targets_BT, ((0, 0), (1, 0)), constant_values=first)[:, :-1]
    return {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}

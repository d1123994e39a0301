"""The contract between a task and the experiment that runs it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.decoding.steps import Prompts
from fxf.models.model import Batch
from fxf.training.step import TrainConfig


class Setting(NamedTuple):
    """What a task may read of its experiment besides its own section; `folder` is the run's, where there is one."""

    train: TrainConfig
    data: Any = None
    seed: int = 0
    folder: Path | None = None


# What continues prompts: `predict(prompts, max_tokens)` to int32 tokens [N, W, max_tokens] of W hypotheses each, the
# best first and what follows an end token filled with it, and their scores [N, W] or None.
Predict = Callable[[Prompts, int], tuple[np.ndarray, np.ndarray | None]]

# Text and, of a beam search, its score.
Answer = tuple[str, float | None]


class Scorer(NamedTuple):
    """A model with its params, as a task scores it.

    Attributes:
      predict: continues prompts.
      loss: `loss(batch) -> (loss_sum, weight_sum)`, by the model's loss without dropout or smoothing.
      logits: `logits(batch)` [B, T, V].
      in_nats: the loss is in nats, that of logits.
    """

    predict: Predict
    loss: Callable[[Mapping[str, Any]], tuple[float, float]]
    logits: Callable[[Mapping[str, Any]], np.ndarray]
    in_nats: bool = True

    def best(self, prompts: Prompts, max_tokens: int) -> np.ndarray:
        """Returns the best continuation of each prompt, int32 [N, max_tokens]."""
        return self.predict(prompts, max_tokens)[0][:, 0]


class Task(NamedTuple):
    """What to learn and how to score it. It makes batches in one of two ways, by `batch` or by `batches`.

    Attributes:
      vocab_size: tokens are 0 … vocab_size - 1.
      longest: tokens in the longest sequence that a model must read to be trained and scored.
      end_token: the token that ends a generated sequence.
      metrics: names of figures of `validate` by which a checkpoint can be chosen: the better the higher, or with a -
        in front the better the lower.
      validate: `validate(scorer) -> figures` by plain names, on data kept apart for choices made during a run.
      test: the same for the figures that a run reports; it may add a list `samples` of (prompt, expected, answer),
        the prompt "" where there is none, and expected None where no answer is the right one.
      respond: `respond(scorer, texts, max_tokens, max_len) -> answers`, of each text the best first; max_tokens 0 for
        as many as fit, max_len the positions of the model. Raises UserError, with its number, for what is no prompt.
      read: `read(prompt, answer) -> batch`, what the model reads of one text and an answer to it, without padding.
      name: returns a token as a reader sees it.
      batch: `batch(key, step)`, a pure function that runs on the device.
      batches: `batches()`, a Grain iterator of the run's batches, one a step, whose position can be saved.
      largest_batch: returns the shapes of the largest batch, of a task whose `batch` alone does not tell them.
      sample_bytes: of the host's memory that scoring holds at once, at least.
      figures: returns what is known of the data before training: plain names to figures.
      digests: returns digests of the data, by name; nothing where the config says all of them.
      files: what a run of this task carries with it, texts by file name.
      generates: scores or answers take tokens that the model generates.
    """

    vocab_size: int
    longest: int
    end_token: int
    metrics: tuple[str, ...]
    validate: Callable[[Scorer], dict[str, Any]]
    test: Callable[[Scorer], dict[str, Any]]
    respond: Callable[[Scorer, list[str], int, int], list[list[Answer]]]
    read: Callable[[str, str], Batch]
    name: Callable[[int], str]
    batch: Callable[[jax.Array, jax.Array], Batch] | None = None
    batches: Callable[[], Any] | None = None
    largest_batch: Callable[[], Any] | None = None
    sample_bytes: int = 0
    figures: Callable[[], dict[str, Any]] = dict
    digests: Callable[[], dict[str, str]] = dict
    files: Mapping[str, str] = {}
    generates: bool = True


def is_number(word: str, least: int, most: int) -> bool:
    """Returns whether a word of a prompt is a whole number in that range."""
    return word.isdecimal() and len(word) <= 18 and least <= int(word) <= most  # Python reads 4,300 digits at most


def to_answers(
    tokens_NWT: np.ndarray, scores_NW: np.ndarray | None, end_token: int, decode: Callable[[list[int]], str]
) -> list[list[Answer]]:
    """Returns the text of each hypothesis, up to its end token, with its score; without those that do not exist."""
    answers: list[list[Answer]] = []
    for i, hypotheses in enumerate(tokens_NWT.tolist()):
        texts = [decode(tokens[: tokens.index(end_token)] if end_token in tokens else tokens) for tokens in hypotheses]
        scores = [None] * len(texts) if scores_NW is None else scores_NW[i].tolist()
        answers.append([(text, score) for text, score in zip(texts, scores, strict=True) if score != -float("inf")])
    return answers


def language_model_batch(targets_BT: jax.Array, weights_BT: jax.Array) -> Batch:
    """Returns the batch of a decoder: what it reads is the targets behind token 0, without the last one."""
    inputs_BT = jnp.pad(targets_BT, ((0, 0), (1, 0)))[:, :-1]
    return {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}

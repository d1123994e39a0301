"""The interface between a task and the experiment that runs it."""

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
from fxf.tasks.prompts import Decoded, PromptGroup, map_prompts, one_group, padded_prompts

NO_END = -1  # no token ends a sequence
FIRST = 0  # the token that a decoder reads first, unless a prompt says otherwise


class RunInfo(NamedTuple):
    """What a task may read besides its own section: the other sections, and the run folder if there is one."""

    train: Any
    data: Any = None
    seed: int = 0
    folder: Path | None = None


class Evaluator(NamedTuple):
    """A model with its params, as a task uses it.

    Attributes:
      decode: `decode(groups)` returns (tokens, scores) of each `PromptGroup`. Tokens are int32 [N, W, max_tokens]: W
        hypotheses of each prompt, the best first. Every position after an end token repeats it. Scores are [N, W], or
        None.
      loss: `loss(batch) -> (loss_sum, weight_sum)`, without dropout or label smoothing. It is the cross-entropy of the
        targets, whatever loss trains the model; if the model's outputs are not logits, it is the model's own loss.
      logits: `logits(batch)` [B, T, V].
      in_nats: whether the loss is that cross-entropy, in nats.
      stream: `stream(group)` yields, again and again, all new tokens so far of the group's only prompt.
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
    """Training data and their scoring. Each task is a subclass, built from its config section and a `RunInfo`.

    Building a task raises a UserError if its data or tokenizer cannot be read or made.

    A task that only trains and scores has `vocab_size`, `longest`, `metrics`, `validate`, and either `batch` or
    `batches`. A task that answers prompts also has `encode` or `to_prompts`, and `to_text`; it sets `generates`. A task
    that can be probed has `to_batch`. `has` tells whether a task defines one of these.

    Attributes:
      vocab_size: the number of tokens, which are 0 … vocab_size - 1.
      longest: the number of tokens in the longest sequence that a model must read in training and scoring.
      metrics: the metrics of `validate` that can choose a checkpoint. Higher is better, or lower if the name begins
        with -.
      end_token: the token that ends a generated sequence.
      around: the tokens that the model, or its encoder, reads before and after a text, None for none.
      generates: whether the model generates tokens for scores or answers.
      files: files that a run of this task keeps in its folder: content by name.
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
        """Returns whether the class overrides this method of `Task`."""
        return getattr(cls, name) is not getattr(Task, name)

    # Training.

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        """Returns the batch of a step. Pure; runs on the device, under `jax.jit`."""
        raise NotImplementedError

    def batches(self) -> Any:
        """Returns a Grain iterator over the batches of the steps, in place of `batch`. Its position can be saved.

        Nothing else of a task is saved, and the iterator runs ahead of the steps: no batch may depend on what a
        validation found. Each process reads its own rows of a batch (`fxf.data.order.share`). Batches may differ in
        rows and length; each shape compiles a program.
        """
        raise NotImplementedError

    def largest_batch(self) -> Any:
        """Returns the shapes and dtypes of the largest batch of all processes; by default, of the first batch."""
        if not self.has("batches"):
            return jax.eval_shape(self.batch, random_key(0), np.int32(0))
        shares = [next(self.batches())] * jax.process_count()
        return jax.eval_shape(lambda: jax.tree.map(lambda *x: jnp.concatenate(x), *shares))

    def batch_shapes(self) -> Sequence[Any]:
        """Returns the shapes and dtypes of the batches of each length, the largest first; by default of one length."""
        return [self.largest_batch()]

    # The data.

    def figures(self) -> dict[str, Any]:
        """Returns statistics of the data, by plain names; they are known before training."""
        return {}

    def digests(self) -> dict[str, str]:
        """Returns digests of the data by name, if the config does not determine the data."""
        return {}

    def scored_data(self) -> dict[str, Any] | None:
        """Returns what identifies the data of `validate` and `test`, by name, such as a digest of a text.

        Only runs that agree in it are ranked. None stands for the sections `task` and `data` and the digests, each of
        which replaces the key of its name: with a digest `data.path`, a path counts by its content.
        """
        return None

    # Scoring.

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the metrics of the validation data, by plain names. Choices during a run depend on them.

        `samples` may be among them, as in `test`.
        """
        raise NotImplementedError

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the metrics that a run reports; by default those of `validate`.

        Two lists may be among them: `samples` of (prompt, expected, answer) and `answers` of all (prompt, right
        answers, answer). A sample without a prompt has "", one without a right answer has None. A fourth item of a
        sample says whether the answer was cut off before its end token.
        """
        return self.validate(evaluator)

    def test_pairs(self, evaluator: Evaluator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Returns the metrics of `test` for these pairs of a prompt and its right answer."""
        raise NotImplementedError

    # Prompts and answers.

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a prompt for the decoder. Raises a UserError if the text is not a prompt."""
        raise NotImplementedError

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        """Returns the prompts of texts, in groups that are decoded together. A text in no group has an empty answer.

        Args:
          max_tokens: maximum number of new tokens; 0: as many as fit.
          max_len: the number of the model's positions.

        Raises:
          UserError: a text is not a prompt. The message has its number.
        """
        (group,) = one_group(padded_prompts(map_prompts(self.encode, texts)), max_tokens, max_len)
        n_tokens = group.prompts["tokens"].shape[1] + group.max_tokens
        return [group._replace(prompts=group.prompts | self.placed(group.prompts["lengths"], n_tokens))]

    def placed(self, lengths_N: np.ndarray, n_tokens: int) -> dict[str, np.ndarray]:
        """Returns the positions [N, n_tokens] of prompts and their new tokens, if the task sets positions."""
        return {}

    def decode(self, evaluator: Evaluator, groups: Sequence[PromptGroup]) -> Sequence[Decoded]:
        """Returns the tokens and scores of each group of prompts. By default the model generates them.

        `fxf generate` calls it. `validate` may call it or `evaluator.decode`.
        """
        return evaluator.decode(groups)

    def rules(self, decode: DecodeConfig) -> dict[str, Any]:
        """Returns the arguments `end_token` and `words` of a `Decoder`, from the texts of the `decode` section.

        Raises:
          UserError: the task has no tokens for a text of the section.
        """
        for name in ("ends", "banned", "prefix"):
            if getattr(decode, name):
                raise UserError(f"decode.{name}: only a task on text, which has a tokenizer, reads it")
        return {"end_token": self.end_token}

    def to_text(self, text: str, tokens: list[int]) -> str:
        """Returns the answer to a text. `tokens` are the new ones before the end token."""
        raise NotImplementedError

    def to_batch(self, text: str, answer: str) -> Batch:
        """Returns a batch of one row without padding: a text and its answer, as the model reads them."""
        raise NotImplementedError

    def token_name(self, token: int) -> str:
        """Returns the name of a token, for display."""
        return str(token)


def language_model_batch(targets_BT: jax.Array, weights_BT: jax.Array, first: int = 0) -> Batch:
    """Returns the batch of a decoder. Its inputs are the targets shifted right, with `first` in front."""
    inputs_BT = jnp.pad(targets_BT, ((0, 0), (1, 0)), constant_values=first)[:, :-1]
    return {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}

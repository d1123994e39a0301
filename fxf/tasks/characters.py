"""Language modelling of a text, by characters or by the tokens of another tokenizer."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.data.text import draw_windows, scoring_windows
from fxf.data.tokenizer import BOS, PAD, UNK
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.prompts import PromptGroup, one_group, padded_prompts
from fxf.tasks.task import Evaluator, RunInfo, language_model_batch
from fxf.tasks.text_task import TextTask

TOKENS_AT_ONCE = 8192
SAMPLES = 3


@dataclasses.dataclass(frozen=True)
class CharactersConfig:
    """The `task` section for `characters`."""

    name: Literal["characters"] = key("characters", "the task to learn")
    length: int = key(128, "number of tokens that the model reads; it predicts the next token after each", minimum=2)
    bos: bool = key(True, "the first token is <bos>, from which the model learns to begin; if false, all are text")
    score: Literal["all", "last"] = key("all", "tokens of a window that count: all, or only the last (seed 002)")


class Characters(TextTask):
    """Prediction of the next token of a text.

    A batch holds windows that start anywhere in the training part. In scoring, every token that counts has a token of
    the text before it in its window. The exception is the first token of the text, which counts only behind <bos>. A
    model whose loss is not a cross-entropy reports `accuracy`, the share of tokens that it ranks first, and no bits.
    """

    generates = True
    metrics = ("-validation_loss", "-bits_per_character")

    def __init__(self, config: CharactersConfig, run: RunInfo) -> None:
        assert BOS == 0
        self.config, self.batch_size, self.longest = config, run.train.batch_size, config.length
        self.window = config.length if config.bos else config.length + 1
        self.context = (
            config.length - config.bos if config.score == "last" else 0
        )  # tokens in front of the one that counts
        super().__init__(run, self.window)

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        del step
        windows_BT = draw_windows(key, self.text.tokens("train"), (self.batch_size, self.window))
        return self.batch_of(windows_BT, jnp.ones(windows_BT.shape))

    def batch_of(self, tokens_BT: Any, weights_BT: Any) -> Batch:
        """Returns the batch of windows of the text, given the weights of their tokens."""
        scored = np.ones((1, self.config.length), np.float32)
        if self.config.score == "last":
            scored[:, :-1] = 0
        if self.config.bos:
            return language_model_batch(tokens_BT, weights_BT * scored)
        return {"inputs": tokens_BT[:, :-1], "targets": tokens_BT[:, 1:], "weights": weights_BT[:, 1:] * scored}

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        return self.evaluate(evaluator, "validation", "validation_loss")

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        figures = self.evaluate(evaluator, "test", "test_loss" if self.data.test else "validation_loss")
        texts = dict.fromkeys(map(self.tokenizer.decode, self.sample(evaluator)))  # greedy samples are all the same
        return {**figures, "samples": [("", None, "\n---\n".join(texts))]}

    def evaluate(self, evaluator: Evaluator, part: str, loss_name: str) -> dict[str, float]:
        """Returns the loss and the bits per character, or the accuracy, of a part of the text."""
        tokens_NT, weights_NT = scoring_windows(self.text.tokens(part), self.window)
        rows = min(len(tokens_NT), max(1, TOKENS_AT_ONCE // self.config.length))
        missing = ((0, -len(tokens_NT) % rows), (0, 0))
        tokens = np.pad(tokens_NT, missing, constant_values=PAD).reshape(-1, rows, self.window)
        weights = np.pad(weights_NT, missing).reshape(tokens.shape)
        batches = [jax.device_get(self.batch_of(*pair)) for pair in zip(tokens, weights, strict=True)]
        loss_sum, weight_sum = np.sum([evaluator.loss(batch) for batch in batches], axis=0)
        loss = float(loss_sum / weight_sum)
        if evaluator.in_nats:
            characters_a_token = len(getattr(self.text.parts(), part)) / len(self.text.tokens(part))
            return {loss_name: loss, "bits_per_character": loss / math.log(2) / characters_a_token}
        right = [((evaluator.logits(b).argmax(-1) == b["targets"]) * b["weights"]).sum() for b in batches]
        return {loss_name: loss, "accuracy": float(sum(right) / weight_sum)}

    def sample(self, evaluator: Evaluator) -> list[list[int]]:
        """Returns the tokens of generated texts.

        If only the last token counts in training, each begins with a piece of the text of the context's length, to
        which the model adds `length` tokens, one at a time.
        """
        if self.config.score == "all":
            nothing = padded_prompts([self.inputs([])] * SAMPLES)
            return evaluator.top(nothing, self.config.length).tolist()
        tokens = self.text.tokens("test")
        starts = np.linspace(0, len(tokens) - self.context, SAMPLES).astype(int)
        rows = [tokens[start : start + self.context].tolist() for start in starts]
        for _ in range(self.config.length):
            new = evaluator.top(padded_prompts([self.inputs(row[-self.context :]) for row in rows]), 1)
            rows = [[*row, *token] for row, token in zip(rows, new.tolist(), strict=True)]
        return rows

    def inputs(self, tokens: list[int]) -> list[int]:
        """Returns the tokens that the model reads for a text. Without <bos>, an empty text becomes a new line."""
        return [BOS, *tokens] if self.config.bos else tokens or self.tokenizer.encode("\n")[:1] or [UNK]

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        rows = self.encode_prompts(texts)
        for number, row in enumerate(rows, 1):
            if len(row) < self.context:
                why = f"with task.score=last the model never learned to continue fewer than {self.context}"
                raise UserError(f"prompt {number}: expected {self.context} tokens or more, got {len(row)}; {why}")
        return one_group(padded_prompts(list(map(self.inputs, rows))), max_tokens, max_len)

    def to_text(self, text: str, tokens: list[int]) -> str:
        return text + self.tokenizer.decode(tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        whole = answer if answer.startswith(text) else text + answer
        return {"inputs": jnp.array([self.inputs(self.tokenizer.encode(self.cased(whole)))])}

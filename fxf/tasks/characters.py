"""A language model of a text, by characters unless its tokenizer says otherwise."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.data.text import TextConfig, draw_windows, encoded_text, scoring_windows
from fxf.data.tokenizer import BOS, PAD, TOKENIZER_FILE, UNK, warn_of_unknown
from fxf.decoding.steps import Prompts
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.task import Answer, Scorer, Setting, Task, language_model_batch, to_answers

NO_END = -1  # no token ends a text
TOKENS_AT_ONCE = 8192
SAMPLES = 3


@dataclasses.dataclass(frozen=True)
class CharactersConfig:
    """The `task` section for `characters`."""

    name: Literal["characters"] = key("characters", "the task to learn")
    length: int = key(128, "tokens that the model reads, each to tell the next", minimum=2)
    bos: bool = key(True, "the first of them is <bos>, so that the model learns to begin; else all are of the text")
    score: Literal["all", "last"] = key("all", "the tokens of a window that count: all, or the last alone (seed 002)")


def characters(config: CharactersConfig, setting: Setting) -> Task:
    """Builds the task.

    A batch holds windows of the training part that start anywhere. In scoring, the context of every token is one token
    of the text at least; only the first of the text has none, or is left out where there is no <bos>. A model whose
    loss is no cross-entropy has `accuracy`, the share of tokens that are its first choice, in place of bits.

    Raises:
      UserError: the text or the tokenizer cannot be read or made.
    """
    assert BOS == 0
    data: TextConfig = setting.data
    window = config.length if config.bos else config.length + 1
    text = encoded_text(data, setting.folder, window)
    tokenizer = text.tokenizer
    context = config.length - config.bos if config.score == "last" else 0  # tokens that an answer needs before it

    def to_batch(tokens_BT: Any, weights_BT: Any) -> Batch:
        scored_1T = np.ones((1, config.length), np.float32)
        if config.score == "last":
            scored_1T[:, :-1] = 0
        if config.bos:
            return language_model_batch(tokens_BT, weights_BT * scored_1T)
        return {"inputs": tokens_BT[:, :-1], "targets": tokens_BT[:, 1:], "weights": weights_BT[:, 1:] * scored_1T}

    def batch(key: jax.Array, step: jax.Array) -> Batch:
        del step
        windows_BT = draw_windows(key, text.tokens("train"), (setting.train.batch_size, window))
        return to_batch(windows_BT, jnp.ones(windows_BT.shape))

    def evaluate(scorer: Scorer, part: str) -> dict[str, float]:
        tokens_WT, weights_WT = scoring_windows(text.tokens(part), window)
        rows = min(len(tokens_WT), max(1, TOKENS_AT_ONCE // config.length))
        missing = ((0, -len(tokens_WT) % rows), (0, 0))
        tokens = np.pad(tokens_WT, missing, constant_values=PAD).reshape(-1, rows, window)
        weights = np.pad(weights_WT, missing).reshape(tokens.shape)
        batches = [jax.device_get(to_batch(*pair)) for pair in zip(tokens, weights, strict=True)]
        loss_sum, weight_sum = np.sum([scorer.loss(batch) for batch in batches], axis=0)
        figures = {"loss": float(loss_sum / weight_sum)}
        if scorer.in_nats:
            characters_a_token = len(getattr(text.parts(), part)) / len(text.tokens(part))
            return {**figures, "bits_per_character": figures["loss"] / math.log(2) / characters_a_token}
        right = [((scorer.logits(b).argmax(-1) == b["targets"]) * b["weights"]).sum() for b in batches]
        return {**figures, "accuracy": float(sum(right) / weight_sum)}

    def validate(scorer: Scorer) -> dict[str, Any]:
        figures = evaluate(scorer, "validation")
        return {"validation_loss": figures.pop("loss"), **figures}

    def test(scorer: Scorer) -> dict[str, Any]:
        figures = evaluate(scorer, "test")
        rows = (
            moved_on(scorer) if config.score == "last" else scorer.best(prompts([begin([])] * SAMPLES), config.length)
        )
        texts = dict.fromkeys(map(tokenizer.decode, np.asarray(rows).tolist()))  # greedy ones are all the same
        name = "test_loss" if data.test else "validation_loss"
        return {name: figures.pop("loss"), **figures, "samples": [("", None, "\n---\n".join(texts))]}

    def moved_on(scorer: Scorer) -> list[list[int]]:
        """Returns pieces of the text, each as long as training's windows, with as many tokens more, one at a time."""
        tokens = text.tokens("test")
        starts = np.linspace(0, len(tokens) - context, SAMPLES).astype(int)
        rows = [tokens[start : start + context].tolist() for start in starts]
        for _ in range(config.length):
            new = scorer.best(prompts([begin(row[-context:]) for row in rows]), 1)
            rows = [[*row, *token] for row, token in zip(rows, new.tolist(), strict=True)]
        return rows

    def begin(tokens: list[int]) -> list[int]:
        """Returns what the model reads of a text; where it learned of no <bos>, an empty one is a new line."""
        return [BOS, *tokens] if config.bos else tokens or tokenizer.encode("\n")[:1] or [UNK]

    def respond(scorer: Scorer, texts: list[str], max_tokens: int, max_len: int) -> list[list[Answer]]:
        lowered = [text.lower() if data.lower_case else text for text in texts]
        warn_of_unknown(tokenizer, [[text] for text in lowered])
        rows = tokenizer.encode_all(lowered)
        read_rows = [begin(row) for row in rows]
        for number, (row, read_row) in enumerate(zip(rows, read_rows, strict=True), 1):
            if len(row) < context:
                why = f"with task.score=last the model learned nothing of what follows fewer than {context}"
                raise UserError(f"prompt {number}: expected {context} tokens or more, got {len(row)}; {why}")
            if len(read_row) + max(max_tokens, 1) - 1 > max_len:  # the last one generated is not read
                needed = f"{len(row)} tokens and {max(max_tokens, 1)} to generate"
                raise UserError(f"prompt {number}: {needed}; model.max_len is {max_len}")
        tokens, scores = scorer.predict(prompts(read_rows), max_tokens or max_len + 1 - max(map(len, read_rows)))
        answers = to_answers(tokens, scores, NO_END, tokenizer.decode)
        return [[(prompt + new, score) for new, score in a] for prompt, a in zip(texts, answers, strict=True)]

    def read(prompt: str, answer: str) -> Batch:
        tokens = tokenizer.encode(answer if answer.startswith(prompt) else prompt + answer)
        return {"inputs": jnp.array([begin(tokens)])}

    return Task(
        vocab_size=tokenizer.vocab_size,
        longest=config.length,
        end_token=NO_END,
        metrics=("-validation_loss", "-bits_per_character"),
        validate=validate,
        test=test,
        respond=respond,
        read=read,
        name=tokenizer.name,
        batch=batch,
        figures=text.figures,
        digests=text.digests,
        files={TOKENIZER_FILE: tokenizer.to_json()},
    )


def prompts(rows: list[list[int]]) -> Prompts:
    """Returns the rows, of one token at least, as prompts padded to the longest."""
    tokens = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for row, sequence in zip(tokens, rows, strict=True):
        row[: len(sequence)] = sequence
    return {
        "first": tokens[:, 0],
        "tokens": tokens[:, 1:],
        "lengths": np.array([len(row) - 1 for row in rows], np.int32),
    }

"""Masked language modelling of a text (seed 001, "Tokenization"; Devlin et al. 2018)."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.data.batches import padded
from fxf.data.text import EncodedText, draw_windows
from fxf.data.tokenizer import BLANK, BOS, EOS, MASK, PAD, TOKENIZERS
from fxf.data.tokenizer_file import is_file
from fxf.models.model import Batch
from fxf.tasks.prompts import Decoded, PromptGroup, map_prompts
from fxf.tasks.task import Evaluator, RunInfo
from fxf.tasks.text_task import TokenizedTask, warn_of_unknown

AS_MASK, AS_RANDOM = 0.8, 0.1  # shares of the chosen tokens; the rest are unchanged
SHORT = 0.1  # share of short sequences in a batch
LOGITS_AT_ONCE = 2**22
SAMPLES = 5


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """The `task` section for `masking`."""

    name: Literal["masking"] = key("masking", "the task to learn")
    length: int = key(64, "number of tokens in a sequence, with <bos> and <eos>", minimum=3)
    share: float = key(0.15, "share of the text's tokens that the model predicts", above=0, below=1)


class Masking(TokenizedTask):
    """Sequences <bos> text <eos> in which some tokens are masked. The model predicts the masked tokens.

    Training sequences start anywhere in the training part. One in ten is short, with 1 token or more and padding after
    them, so that the model learns to fill in short texts. The validation and test parts are scored in full sequences,
    with the same tokens masked every time. A remainder that fills no sequence is left out.
    """

    metrics = ("accuracy", "-validation_loss", "-perplexity")
    around = (BOS, EOS)

    def __init__(self, config: MaskingConfig, run: RunInfo) -> None:
        self.config, self.batch_size = config, run.train.batch_size
        self.longest, self.n_text = config.length, config.length - 2
        if is_file(run.data.tokenizer):
            raise UserError(f"data.tokenizer: a tokenizer file has no {BLANK}; expected one of {', '.join(TOKENIZERS)}")
        self.text = EncodedText(run.data, run.folder, self.n_text)
        super().__init__(run.data, self.text.tokenizer)

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        key_windows, key_short, key_lengths, key_mask = jax.random.split(key, 4)
        windows_BP = draw_windows(key_windows, self.text.tokens("train"), (self.batch_size, self.n_text))
        short_B1 = jax.random.bernoulli(key_short, SHORT, (self.batch_size, 1))
        drawn_B1 = jax.random.randint(key_lengths, (self.batch_size, 1), 1, self.n_text + 1)
        lengths_B1 = jnp.where(short_B1, drawn_B1, self.n_text)
        return masked_batch(key_mask, windows_BP, lengths_B1, self.config.share, self.vocab_size)

    def scored(self, part: str) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches that score a part of the text."""
        tokens = self.text.tokens(part)
        windows_NP = tokens[: len(tokens) // self.n_text * self.n_text].reshape(-1, self.n_text).astype(np.int32)
        rows = max(1, LOGITS_AT_ONCE // (self.config.length * self.vocab_size))
        masked = jax.jit(masked_batch, static_argnums=4)
        for start in range(0, len(windows_NP), rows):
            windows_BP = windows_NP[start : start + rows]
            full_B1 = np.full((len(windows_BP), 1), self.n_text, np.int32)
            key = jax.random.fold_in(random_key(0), start)
            yield jax.device_get(masked(key, windows_BP, full_B1, self.config.share, self.vocab_size))

    def scored_data(self) -> dict[str, Any]:
        return {**self.text.held_out(), "task.length": self.config.length, "task.share": self.config.share}

    def evaluate(self, evaluator: Evaluator, part: str, loss_name: str) -> dict[str, Any]:
        """Returns the metrics and samples of a part of the text; if no token was chosen, the metrics are NaN."""
        sums_N3: list[tuple[float, float, float]] = []
        samples: list[tuple[str, ...]] = []
        for batch in self.scored(part):
            sums, best_BT = evaluator.loss(batch), predicted(evaluator, batch["inputs"])
            sums_N3.append((*sums, float(((best_BT == batch["targets"]) * batch["weights"]).sum())))
            if not samples:
                rows = (batch["inputs"], batch["targets"], filled(batch["inputs"], best_BT))
                texts = ([self.tokenizer.decode(tokens) for tokens in x[:SAMPLES].tolist()] for x in rows)
                samples = list(zip(*texts, strict=True))
        loss_sum, n_chosen, n_right = np.sum(sums_N3, axis=0).tolist()
        loss, accuracy = (total / n_chosen if n_chosen else math.nan for total in (loss_sum, n_right))
        figures = {loss_name: loss, "accuracy": accuracy, "chosen_tokens": int(n_chosen)}
        perplexity = {"perplexity": math.inf if loss >= 709 else math.exp(loss)} if evaluator.in_nats else {}
        return {**figures, **perplexity, "samples": samples}

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        if max_tokens:
            raise UserError("max_tokens: a masked language model fills in blanks, one token each; leave it at 0")
        warn_of_unknown(self.tokenizer, (piece for text in texts for piece in self.pieces(text)))
        rows = map_prompts(self.encode, texts)
        inputs_NT, _ = padded(rows, len(rows), self.config.length)
        return [PromptGroup([i], {"inputs": inputs_NT[i : i + 1]}, self.config.length) for i in range(len(rows))]

    def decode(self, evaluator: Evaluator, groups: Sequence[PromptGroup]) -> list[Decoded]:
        """Returns the prompts with their blanks filled in."""
        rows = (group.prompts["inputs"] for group in groups)
        return [(filled(inputs, predicted(evaluator, inputs))[:, None], None) for inputs in rows]

    def to_batch(self, text: str, answer: str) -> Batch:
        tokens = jnp.array([self.encode(text)])  # the answer fills the blanks, so it adds no tokens
        return {"inputs": tokens, "input_mask": jnp.ones(tokens.shape, bool)}

    def pieces(self, text: str) -> list[str]:
        """Returns the pieces of a text between its blanks."""
        return self.cased(text).split(BLANK)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text with blanks, from <bos> to <eos>."""
        pieces = self.pieces(text)
        if len(pieces) == 1:
            raise UserError(f"expected a text with {BLANK} in it, got '{text}'")
        if self.data.tokenizer == "bpe":  # its tokens include the space before a word
            pieces = [piece.rstrip(" ") for piece in pieces[:-1]] + pieces[-1:]
        first, *others = map(self.tokenizer.encode, pieces)
        tokens = [*first, *(token for piece in others for token in (MASK, *piece))]
        if len(tokens) > self.n_text:
            raise UserError(f"{len(tokens)} tokens; task.length allows {self.n_text}")
        return [BOS, *tokens, EOS]


def masked_batch(key: jax.Array, text_BP: jax.Array, lengths_B1: jax.Array, share: float, vocab_size: int) -> Batch:
    """Returns a batch [B, P+2]; each row is <bos>, the first `lengths_B1[b]` tokens of the text, <eos> and padding.

    Each token of the text is chosen with probability `share`. Chosen tokens have weight 1, all others 0. In `inputs`,
    <mask> replaces 80 % of the chosen tokens, a random token 10 %, and 10 % stay. `input_mask` is False on padding.
    """
    tokens_BT = jnp.pad(text_BP, ((0, 0), (1, 1)), constant_values=BOS)
    t = jnp.arange(tokens_BT.shape[1])[None]
    targets_BT = jnp.where(t <= lengths_B1, tokens_BT, jnp.where(t == lengths_B1 + 1, EOS, PAD))
    key_chosen, key_shown, key_random = jax.random.split(key, 3)
    chosen_BT = jax.random.bernoulli(key_chosen, share, targets_BT.shape) & (t > 0) & (t <= lengths_B1)
    shown_BT = jax.random.uniform(key_shown, targets_BT.shape)
    random_BT = jax.random.randint(key_random, targets_BT.shape, MASK + 1, vocab_size)
    replaced_BT = jnp.where(shown_BT < AS_MASK + AS_RANDOM, random_BT, targets_BT)
    replaced_BT = jnp.where(shown_BT < AS_MASK, MASK, replaced_BT)
    return {
        "inputs": jnp.where(chosen_BT, replaced_BT, targets_BT),
        "input_mask": t <= lengths_B1 + 1,
        "targets": targets_BT,
        "weights": chosen_BT.astype(jnp.float32),
    }


def predicted(evaluator: Evaluator, inputs_BT: np.ndarray) -> np.ndarray:
    """Returns the most probable token at each position, special tokens excluded."""
    batch = {"inputs": inputs_BT, "input_mask": inputs_BT != PAD}
    return evaluator.logits(batch)[..., MASK + 1 :].argmax(-1) + MASK + 1


def filled(inputs_BT: np.ndarray, best_BT: np.ndarray) -> np.ndarray:
    """Replaces every <mask> of the inputs by the predicted token."""
    return np.where(inputs_BT == MASK, best_BT, inputs_BT)

"""A masked language model of a text (seed 001, "Tokenization"; Devlin et al. 2018): blanks to be filled in."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.data.text import TextConfig, draw_windows, encoded_text
from fxf.data.tokenizer import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, TOKENIZER_FILE, warn_of_unknown
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.task import Answer, Scorer, Setting, Task

BLANK = SPECIAL_TOKENS[MASK]
AS_MASK, AS_RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others are shown as they are
SHORT = 0.1  # share of the sequences of a batch
LOGITS_AT_ONCE = 2**22
SAMPLES = 5


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """The `task` section for `masking`."""

    name: Literal["masking"] = key("masking", "the task to learn")
    length: int = key(64, "tokens in a sequence, <bos> and <eos> included", minimum=3)
    share: float = key(0.15, "share of the text's tokens to be predicted", above=0, below=1)


def masking(config: MaskingConfig, setting: Setting) -> Task:
    """Builds the task: sequences <bos> text <eos>, of which chosen tokens are hidden and have to be predicted.

    A batch's sequences start anywhere in the training part. One in ten holds fewer tokens than fit, any number from 1,
    with padding behind, so that short texts can be filled in too. Scored are the sequences that the validation or test
    part is cut into, with the same tokens chosen every time; a rest that fills none is left out.

    Raises:
      UserError: the text or the tokenizer cannot be read or made.
    """
    data: TextConfig = setting.data
    n_text = config.length - 2
    text = encoded_text(data, setting.folder, n_text)
    tokenizer = text.tokenizer

    def batch(key: jax.Array, step: jax.Array) -> Batch:
        del step
        batch_size = setting.train.batch_size
        key_windows, key_short, key_lengths, key_mask = jax.random.split(key, 4)
        windows_BN = draw_windows(key_windows, text.tokens("train"), (batch_size, n_text))
        short_B1 = jax.random.bernoulli(key_short, SHORT, (batch_size, 1))
        lengths_B1 = jnp.where(short_B1, jax.random.randint(key_lengths, (batch_size, 1), 1, n_text + 1), n_text)
        return masked_batch(key_mask, windows_BN, lengths_B1, config.share, tokenizer.vocab_size)

    def scored(part: str) -> Iterator[dict[str, np.ndarray]]:
        tokens = text.tokens(part)
        windows_WN = tokens[: len(tokens) // n_text * n_text].reshape(-1, n_text).astype(np.int32)
        rows = max(1, LOGITS_AT_ONCE // (config.length * tokenizer.vocab_size))
        masked = jax.jit(lambda key, x, n: masked_batch(key, x, n, config.share, tokenizer.vocab_size))
        for start in range(0, len(windows_WN), rows):
            windows_BN = windows_WN[start : start + rows]
            full_B1 = np.full((len(windows_BN), 1), n_text, np.int32)
            yield jax.device_get(masked(jax.random.fold_in(jax.random.key(0), start), windows_BN, full_B1))

    def evaluate(scorer: Scorer, part: str) -> dict[str, Any]:
        loss_sum, weight_sum, right = 0.0, 0.0, 0.0
        samples: list[tuple[str, ...]] = []
        for batch in scored(part):
            sums = scorer.loss(batch)
            loss_sum, weight_sum = loss_sum + sums[0], weight_sum + sums[1]
            best_BT = predicted(scorer, batch["inputs"])
            right += float(((best_BT == batch["targets"]) * batch["weights"]).sum())
            if not samples:
                rows = zip(batch["inputs"], batch["targets"], filled(batch["inputs"], best_BT), strict=True)
                samples = [tuple(tokenizer.decode(x.tolist()) for x in row) for row in itertools.islice(rows, SAMPLES)]
        loss = loss_sum / max(weight_sum, 1)
        return {
            "test_loss" if part == "test" and data.test else "validation_loss": loss,
            "perplexity": float(np.exp(loss)),
            "accuracy": right / max(weight_sum, 1),
            "chosen_tokens": int(weight_sum),
            "samples": samples,
        }

    def validate(scorer: Scorer) -> dict[str, Any]:
        figures = evaluate(scorer, "validation")
        del figures["samples"]
        return figures

    def pieces_of(prompt: str) -> list[str]:
        return (prompt.lower() if data.lower_case else prompt).split(BLANK)

    def encode(prompt: str) -> list[int]:
        pieces = pieces_of(prompt)
        if len(pieces) == 1:
            raise UserError(f"expected a text with {BLANK} in it, got '{prompt}'")
        if data.tokenizer == "bpe":  # a token holds the space before its word
            pieces = [piece.rstrip(" ") for piece in pieces[:-1]] + pieces[-1:]
        first, *others = tokenizer.encode_all(pieces)
        tokens = [*first, *(token for piece in others for token in (MASK, *piece))]
        if len(tokens) > n_text:
            raise UserError(f"{len(tokens)} tokens; task.length leaves room for {n_text}")
        return [BOS, *tokens, EOS]

    def respond(scorer: Scorer, texts: list[str], max_tokens: int, max_len: int) -> list[list[Answer]]:
        del max_len
        if max_tokens:
            raise UserError("max_tokens: a masked language model fills in blanks, one token each; leave it at 0")
        warn_of_unknown(tokenizer, [pieces_of(prompt) for prompt in texts])
        answers: list[list[Answer]] = []
        for number, prompt in enumerate(texts, 1):
            try:
                tokens = encode(prompt)
            except UserError as error:
                raise UserError(f"prompt {number}: {error}") from None
            inputs_1T = np.full((1, config.length), PAD, np.int32)
            inputs_1T[0, : len(tokens)] = tokens
            (answer_T,) = filled(inputs_1T, predicted(scorer, inputs_1T))
            answers.append([(tokenizer.decode(answer_T.tolist()), None)])
        return answers

    def read(prompt: str, answer: str) -> Batch:
        del answer  # it stands in the blanks
        tokens = jnp.array([encode(prompt)])
        return {"inputs": tokens, "counts": jnp.ones(tokens.shape, bool)}

    return Task(
        vocab_size=tokenizer.vocab_size,
        longest=config.length,
        end_token=EOS,
        metrics=("accuracy", "-validation_loss", "-perplexity"),
        validate=validate,
        test=lambda scorer: evaluate(scorer, "test"),
        respond=respond,
        read=read,
        name=tokenizer.name,
        batch=batch,
        figures=text.figures,
        digests=text.digests,
        files={TOKENIZER_FILE: tokenizer.to_json()},
        generates=False,
    )


def masked_batch(key: jax.Array, text_BN: jax.Array, lengths_B1: jax.Array, share: float, vocab_size: int) -> Batch:
    """Returns the batch of the first `lengths_B1[b]` tokens of each row: <bos>, they, <eos> and padding, [B, N+2].

    Each token of the text is chosen with probability `share`, and the weights are 1 where one is. In `inputs` 80 % of
    the chosen are <mask>, 10 % a random token of the vocabulary, and 10 % what they are. `counts` is false on padding.
    """
    tokens_BT = jnp.pad(text_BN, ((0, 0), (1, 1)), constant_values=BOS)
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
        "counts": t <= lengths_B1 + 1,
        "targets": targets_BT,
        "weights": chosen_BT.astype(jnp.float32),
    }


def predicted(scorer: Scorer, inputs_BT: np.ndarray) -> np.ndarray:
    """Returns the most probable token of the text at each position."""
    return scorer.logits({"inputs": inputs_BT, "counts": inputs_BT != PAD})[..., MASK + 1 :].argmax(-1) + MASK + 1


def filled(inputs_BT: np.ndarray, best_BT: np.ndarray) -> np.ndarray:
    """Returns the inputs with the predicted tokens in place of <mask>, all at once."""
    return np.where(inputs_BT == MASK, best_BT, inputs_BT)

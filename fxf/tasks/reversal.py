"""Sequence reversal (seed 004, "Fully working demo"): x1 … xn 0 xn … x1 0, scored on what follows the first 0."""

import dataclasses
import itertools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.decoding.steps import Prompts
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.held_out import drawn_for, held_out, power_within, sample_bytes, sample_held_out
from fxf.tasks.task import Answer, Scorer, Setting, Task, is_number, language_model_batch, to_answers

END = 0
LARGEST_DOMAIN = 100_000
LARGEST_APART = 1000  # lengths that are scored one by one


@dataclasses.dataclass(frozen=True)
class ReversalConfig:
    """The `task` section for `reversal`."""

    name: Literal["reversal"] = key("reversal", "the task to learn")
    n_tokens: int = key(50, "symbols: tokens 1 … n_tokens", minimum=1)
    min_length: int = key(1, "shortest sequence to reverse", minimum=1)
    max_length: int = key(25, "longest sequence to reverse", minimum=1)
    longer: int = key(0, "score lengths max_length+1 … max_length+longer too, which training never shows", minimum=0)
    longer_every: int = key(
        0, "score them apart, as exact_match_N, at every multiple N of this; 0: all together", minimum=0
    )
    examples: int = key(10_000, "size of each scored sample, where the domain is too large to score whole", minimum=1)

    def __post_init__(self) -> None:
        if self.max_length < self.min_length:
            raise UserError(
                f"task.max_length: expected at least task.min_length {self.min_length}, got {self.max_length}"
            )
        if self.longer_every and not self.longer_scored():
            raise UserError(f"task.longer_every: no multiple of {self.longer_every} among the task.longer lengths")
        if len(self.longer_scored()) > LARGEST_APART:
            scored = len(self.longer_scored())
            raise UserError(f"task.longer_every: {scored} lengths to score apart; expected at most {LARGEST_APART}")

    def longer_scored(self) -> range:
        """Returns the lengths beyond those of training that are scored one by one."""
        if not self.longer_every:
            return range(0)
        first = (self.max_length // self.longer_every + 1) * self.longer_every
        return range(first, self.max_length + self.longer + 1, self.longer_every)


def reversal(config: ReversalConfig, setting: Setting) -> Task:
    """Builds the task.

    A domain of at most 100,000 sequences is trained on and scored whole. From a larger one, a sixteenth of the
    sequences, chosen by a hash of their tokens, never counts in training, and the scored sample is drawn from it.
    """
    batch_size = setting.train.batch_size
    lengths = range(config.min_length, config.max_length + 1)
    scored_whole = len(lengths) <= LARGEST_DOMAIN and (
        power_within(LARGEST_DOMAIN, config.n_tokens, lengths[-1])
        and sum(config.n_tokens**n for n in lengths) <= LARGEST_DOMAIN
    )

    def batch(key: jax.Array, step: jax.Array) -> Batch:
        del step
        key_lengths, key_tokens = jax.random.split(key)
        lengths_B1 = jax.random.randint(key_lengths, (batch_size, 1), config.min_length, config.max_length + 1)
        shape = (batch_size, config.max_length)
        sequences_BN = jax.random.randint(key_tokens, shape, 1, config.n_tokens + 1)
        targets_BT, weights_BT = reversal_targets(sequences_BN, lengths_B1)
        if not scored_whole:
            read_BN = jnp.where(jnp.arange(config.max_length)[None] < lengths_B1, sequences_BN, END)
            weights_BT = jnp.where(held_out(read_BN)[:, None], 0, weights_BT)
        return language_model_batch(targets_BT, weights_BT)

    def evaluate(scorer: Scorer) -> dict[str, float]:
        sample = whole_domain(config, lengths) if scored_whole else draw_sample(config, lengths)
        metrics = {"exact_match": exact_match(scorer, sample), "examples": len(sample)}
        for length in config.longer_scored():
            metrics[f"exact_match_{length}"] = exact_match(scorer, draw_sample(config, range(length, length + 1)))
        if config.longer and not config.longer_every:
            longer = draw_sample(config, range(config.max_length + 1, config.max_length + config.longer + 1))
            metrics |= {"exact_match_longer": exact_match(scorer, longer), "examples_longer": len(longer)}
        return metrics

    longer_metrics = [f"exact_match_{n}" for n in config.longer_scored()]
    if config.longer and not config.longer_every:
        longer_metrics = ["exact_match_longer"]

    def encode(text: str) -> list[int]:
        for word in text.split():
            if not is_number(word, 1, config.n_tokens):
                raise UserError(f"expected tokens 1 … {config.n_tokens} with spaces between, got '{word}'")
        return [int(word) for word in text.split()]

    def respond(scorer: Scorer, texts: list[str], max_tokens: int, max_len: int) -> list[list[Answer]]:
        rows = []
        for number, text in enumerate(texts, 1):
            try:
                rows.append(encode(text))
            except UserError as error:
                raise UserError(f"prompt {number}: {error}") from None
            if len(rows[-1]) + 1 + max(max_tokens, 1) > max_len:
                needed = f"{len(rows[-1]) + 1} tokens and {max(max_tokens, 1)} to generate"
                raise UserError(f"prompt {number}: {needed}; model.max_len is {max_len}")
        longest = max(map(len, rows))
        padded = np.array([row + [END] * (longest - len(row)) for row in rows], np.int32).reshape(len(rows), longest)
        tokens, scores = scorer.predict(prompts(padded), max_tokens or max_len - longest - 1)
        return to_answers(tokens, scores, END, lambda tokens: " ".join(map(str, tokens)))

    def read(prompt: str, answer: str) -> Batch:
        return {"inputs": jnp.array([[END, *encode(prompt), END, *encode(answer)]])}

    return Task(
        vocab_size=config.n_tokens + 1,
        longest=2 * (config.max_length + config.longer) + 2,
        end_token=END,
        metrics=("exact_match", *longer_metrics),
        validate=evaluate,
        test=evaluate,
        respond=respond,
        read=read,
        name=str,
        batch=batch,
        sample_bytes=0 if scored_whole and not config.longer else sample_bytes(config.examples, config.max_length),
    )


def reversal_targets(sequences_BN: jax.Array, lengths_B1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns tokens x1 … xn 0 xn … x1 0 and weights 1 on the second half, both [B, 2N+2].

    Row b reads the first `lengths_B1[b]` of its N tokens; what follows its closing 0 is 0 with weight 0.
    """
    t = jnp.arange(2 * sequences_BN.shape[1] + 2)[None]
    source = jnp.where(t < lengths_B1, t, 2 * lengths_B1 - t)
    is_token = (source >= 0) & (t != lengths_B1)
    tokens = jnp.take_along_axis(sequences_BN, jnp.clip(source, 0, sequences_BN.shape[1] - 1), axis=1)
    counts = (t > lengths_B1) & (t <= 2 * lengths_B1 + 1)
    return jnp.where(is_token, tokens, END), counts.astype(jnp.float32)


def whole_domain(config: ReversalConfig, lengths: range) -> np.ndarray:
    """Returns every sequence of the given lengths, int32 [n, longest], padded with 0."""
    tokens = range(1, config.n_tokens + 1)
    rows = itertools.chain.from_iterable(itertools.product(tokens, repeat=n) for n in lengths)
    return np.array([row + (END,) * (lengths[-1] - len(row)) for row in rows], np.int32)


def draw_sample(config: ReversalConfig, lengths: range) -> np.ndarray:
    """Returns `config.examples` distinct held-out sequences, lengths alike in number, int32 [n, longest].

    The sample is the same for every seed. Of lengths with fewer held-out sequences than their share it takes all.
    """
    rng = np.random.default_rng(0)
    n_drawn = drawn_for(config.examples)
    lengths_N1 = rng.integers(lengths[0], lengths[-1] + 1, (n_drawn, 1))
    drawn = rng.integers(1, config.n_tokens + 1, (n_drawn, lengths[-1]), np.int32)
    drawn[np.arange(lengths[-1]) >= lengths_N1] = END
    return sample_held_out(drawn, config.examples)


def prompts(sequences: np.ndarray) -> Prompts:
    """Returns prompts x1 … xn 0 for rows of tokens padded with 0."""
    return {
        "tokens": np.pad(sequences, ((0, 0), (0, 1)), constant_values=END),
        "lengths": np.count_nonzero(sequences, axis=1).astype(np.int32) + 1,
    }


def exact_match(scorer: Scorer, sequences: np.ndarray) -> float:
    """Returns the share of sequences that the model continues by their reverse and the closing 0 alone."""
    read = prompts(sequences)
    tokens, lengths = read["tokens"], read["lengths"]
    backwards = lengths[:, None] - 2 - np.arange(tokens.shape[1])
    expected = np.where(backwards >= 0, np.take_along_axis(tokens, np.maximum(backwards, 0), axis=1), END)
    return float((scorer.best(read, tokens.shape[1]) == expected).all(axis=1).mean())

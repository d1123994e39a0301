"""Sequence reversal (seed 004, "Fully working demo"): x1 … xn 0 xn … x1 0, scored on the tokens after the first 0."""

import dataclasses
import itertools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.held_out import drawn_for, held_out, sample_held_out
from fxf.tasks.prompts import before_end, whole_numbers
from fxf.tasks.task import Evaluator, RunInfo, Task, language_model_batch
from fxf.tasks.text_metrics import MetricsConfig, TextMetrics

END = 0
SAMPLES = 10
LARGEST_DOMAIN = 100_000


@dataclasses.dataclass(frozen=True)
class ReversalConfig(MetricsConfig):
    """The `task` section for `reversal`."""

    name: Literal["reversal"] = key("reversal", "the task to learn")
    n_tokens: int = key(50, "number of symbols, which are tokens 1 … n_tokens", minimum=1)
    min_length: int = key(1, "shortest sequence to reverse", minimum=1)
    max_length: int = key(25, "longest sequence to reverse", minimum=1)
    longer: int = key(0, "also score lengths max_length+1 … max_length+longer, which training never shows", minimum=0)
    longer_every: int = key(0, "score only multiples N of this, each as exact_match_N; 0: all in one sample", minimum=0)
    mirrored: bool = key(False, "a symbol and its mirror image share a position, set by the batch (Cho et al. 2024)")
    examples: int = key(10_000, "maximum size of a scored sample; a small domain is scored whole", minimum=1)

    def __post_init__(self) -> None:
        if self.max_length < self.min_length:
            wanted = f"expected at least task.min_length {self.min_length}"
            raise UserError(f"task.max_length: {wanted}, got {self.max_length}")
        if self.longer_every and not self.longer_samples():
            raise UserError(f"task.longer_every: no multiple of {self.longer_every} among the task.longer lengths")

    def longer_samples(self) -> dict[str, range]:
        """Returns the lengths of each sample that is longer than in training, by the suffix of its metrics."""
        longest = self.max_length + self.longer
        if not self.longer_every:
            return {"_longer": range(self.max_length + 1, longest + 1)} if self.longer else {}
        first = (self.max_length // self.longer_every + 1) * self.longer_every
        return {f"_{n}": range(n, n + 1) for n in range(first, longest + 1, self.longer_every)}


class Reversal(Task):
    """Sequences x1 … xn, which the model continues with xn … x1 and 0.

    If the domain has at most 100,000 sequences, all of them are trained on and scored. In a larger domain, a hash of
    the tokens holds out a sixteenth of the sequences. They have weight 0 in training, and the scored sample is drawn
    from them.
    """

    end_token, generates = END, True

    def __init__(self, config: ReversalConfig, run: RunInfo) -> None:
        self.config, self.batch_size = config, run.train.batch_size
        self.lengths = range(config.min_length, config.max_length + 1)
        # 2^20 exceeds the largest domain, and a higher power could be too large to compute.
        is_small = config.n_tokens ** min(config.max_length, 20) <= LARGEST_DOMAIN
        self.scored_whole = is_small and sum(config.n_tokens**n for n in self.lengths) <= LARGEST_DOMAIN
        self.vocab_size, self.longest = config.n_tokens + 1, 2 * (config.max_length + config.longer) + 2
        exact = [f"exact_match{suffix}" for suffix in ("", *config.longer_samples())]
        self.text_metrics = TextMetrics(config, *exact)
        self.metrics = (*exact, *self.text_metrics.names)

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        key_lengths, key_tokens = jax.random.split(key)
        n_tokens, longest = self.config.n_tokens, self.config.max_length
        lengths_B1 = jax.random.randint(key_lengths, (self.batch_size, 1), self.config.min_length, longest + 1)
        sequences_BP = jax.random.randint(key_tokens, (self.batch_size, longest), 1, n_tokens + 1)
        targets_BT, weights_BT = reversal_targets(sequences_BP, lengths_B1)
        if not self.scored_whole:
            read_BP = jnp.where(jnp.arange(longest)[None] < lengths_B1, sequences_BP, END)
            weights_BT = jnp.where(held_out(read_BP)[:, None], 0, weights_BT)
        return language_model_batch(targets_BT, weights_BT) | self.positions(lengths_B1, targets_BT.shape[1])

    def positions(self, lengths_B1: Any, n_inputs: int) -> dict[str, jax.Array]:
        """Returns the positions of the inputs 0 x1 … xn 0 xn … x1, [B, n_inputs], with `task.mirrored`.

        x1 … xn have the positions 1 … n, the second 0 has n + 1, then they go down again; padding has 0.
        """
        t = jnp.arange(n_inputs)[None]
        mirrored_BT = jnp.maximum(jnp.minimum(t, 2 * lengths_B1 + 2 - t), 0)  # embedding tables have no negative rows
        return {"positions": mirrored_BT} if self.config.mirrored else {}

    def placed(self, lengths_N: np.ndarray, n_tokens: int) -> dict[str, np.ndarray]:
        return jax.device_get(self.positions(lengths_N[:, None] - 1, n_tokens))

    def scored_data(self) -> dict[str, Any]:
        keys = dataclasses.asdict(self.config)
        return {f"task.{name}": value for name, value in keys.items() if name not in ("metrics", "mirrored")}

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        scored = whole_domain(self.config) if self.scored_whole else draw_sample(self.config, self.lengths)
        answers, expected = self.continuations(evaluator, scored)
        figures: dict[str, Any] = {"exact_match": exact_match(answers, expected), "examples": len(scored)}
        cut_off = (answers != END).all(axis=1)
        figures["cut_off"] = int(cut_off.sum())
        wrong_first = np.argsort((answers == expected).all(axis=1), kind="stable")[:SAMPLES]
        texts = (self.texts(tokens[wrong_first]) for tokens in (scored, expected, answers))
        figures["samples"] = list(zip(*texts, cut_off[wrong_first].tolist(), strict=True))
        for suffix, lengths in self.config.longer_samples().items():
            longer = draw_sample(self.config, lengths)
            figures[f"exact_match{suffix}"] = exact_match(*self.continuations(evaluator, longer))
            if suffix == "_longer":
                figures["examples_longer"] = len(longer)
        return figures | self.text_metrics.figures(self.texts(answers), [[text] for text in self.texts(expected)])

    def continuations(self, evaluator: Evaluator, sequences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the model's and the right continuations of `sequences` [n, longest], which are padded with 0.

        Both are int32 [n, longest + 1]. The right continuation is the reversed sequence and 0.
        """
        tokens = np.pad(sequences, ((0, 0), (0, 1)), constant_values=END)
        lengths = np.count_nonzero(sequences, axis=1).astype(np.int32) + 1
        backwards = lengths[:, None] - 2 - np.arange(tokens.shape[1])
        expected = np.where(backwards >= 0, np.take_along_axis(tokens, np.maximum(backwards, 0), axis=1), END)
        prompts = {"tokens": tokens, "lengths": lengths, **self.placed(lengths, 2 * tokens.shape[1])}
        return evaluator.top(prompts, tokens.shape[1]), expected

    def texts(self, tokens_NU: np.ndarray) -> list[str]:
        """Returns the text of each row, up to its end token."""
        return [self.to_text("", before_end(row, END)) for row in tokens_NU.tolist()]

    def encode(self, text: str) -> list[int]:
        return [END, *self.symbols(text), END]

    def symbols(self, text: str) -> list[int]:
        """Returns the tokens of a sequence."""
        return whole_numbers(text, 1, self.config.n_tokens, "expected tokens")

    def to_text(self, text: str, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))

    def to_batch(self, text: str, answer: str) -> Batch:
        tokens = [*self.encode(text), *self.symbols(answer)]
        return {"inputs": jnp.array([tokens])} | self.positions(len(self.symbols(text)), len(tokens))


def reversal_targets(sequences_BP: jax.Array, lengths_B1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns tokens x1 … xn 0 xn … x1 0 and weights that are 1 on the second half, both [B, 2P+2].

    Row b takes the first `lengths_B1[b]` of its P tokens. The padding after the last 0 is 0, with weight 0.
    """
    t = jnp.arange(2 * sequences_BP.shape[1] + 2)[None]
    source = jnp.where(t < lengths_B1, t, 2 * lengths_B1 - t)
    is_token = (source >= 0) & (t != lengths_B1)
    tokens = jnp.take_along_axis(sequences_BP, jnp.clip(source, 0, sequences_BP.shape[1] - 1), axis=1)
    return jnp.where(is_token, tokens, END), ((t > lengths_B1) & (t <= 2 * lengths_B1 + 1)).astype(jnp.float32)


def whole_domain(config: ReversalConfig) -> np.ndarray:
    """Returns every sequence of the training lengths, int32 [n, longest], padded with 0."""
    tokens, lengths = range(1, config.n_tokens + 1), range(config.min_length, config.max_length + 1)
    rows = itertools.chain.from_iterable(itertools.product(tokens, repeat=n) for n in lengths)
    return np.array([row + (END,) * (config.max_length - len(row)) for row in rows], np.int32)


def draw_sample(config: ReversalConfig, lengths: range) -> np.ndarray:
    """Returns at most `config.examples` distinct held-out sequences, int32 [n, longest], padded with 0.

    The sample is the same for every seed. All lengths have about equally many sequences; a length with fewer held-out
    sequences than that has nearly all of them. If no drawn sequence is held out, the sample has all that were drawn.
    This happens with few symbols at lengths that training never shows, and rarely if `config.examples` is below 5.
    """
    rng = np.random.default_rng(0)
    n_drawn = drawn_for(config.examples)
    lengths_N1 = rng.integers(lengths[0], lengths[-1] + 1, (n_drawn, 1))
    drawn = rng.integers(1, config.n_tokens + 1, (n_drawn, lengths[-1]), np.int32)
    drawn[np.arange(lengths[-1]) >= lengths_N1] = END
    sample = sample_held_out(drawn, config.examples)
    return sample if len(sample) else np.unique(drawn, axis=0)


def exact_match(answers: np.ndarray, expected: np.ndarray) -> float:
    """Returns the share of rows that are equal in every token."""
    return float((answers == expected).all(axis=1).mean())

"""Length generalization (Delétang et al. 2022; Ruoss et al. 2023): short strings in training, long ones in scoring."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key, one_of
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.models.model import Batch
from fxf.tasks.prompts import before_end
from fxf.tasks.task import Evaluator, RunInfo, Task, language_model_batch

from .problem import Drawn, draw
from .problems import PROBLEMS

END = 0  # ends strings and answers; a symbol i is the token i + 1
SAMPLES = 10
SCORED_AT_ONCE = 2**18  # tokens of strings on a tape whose logits are computed together
SHRINK = 0.8  # ratio of one size of the arrays of scored strings to the next larger
FIGURES = ("exact_match", "token_accuracy", "symbol_accuracy")


@dataclasses.dataclass(frozen=True)
class LengthConfig:
    """The `task` section."""

    name: str = key("length", "the task to learn")
    problem: str = key("reverse_string", f"one of {', '.join(PROBLEMS)}")
    answer: Literal["generated", "tape"] = key(
        "generated",
        "generated: a decoder writes the answer after the string; tape: an encoder fills empty places after the "
        "string with the answer, all at once, as in the papers",
    )
    max_length: int = key(40, "longest string in training", minimum=1)
    longest: int = key(100, "longest string that is scored", minimum=1)
    score_every: int = key(20, "strings longer than in training are scored at every multiple of this", minimum=1)
    same_length: bool = key(False, "all strings of a batch have the same length, as in the papers")
    position_range: int = key(
        0,
        "positions of a sequence are drawn from this range, in increasing order, in training and in scoring (Ruoss et "
        "al. 2023); 0: off",
        minimum=0,
        below=1_000_001,
    )
    examples: int = key(256, "strings to score at each longer length, and at all training lengths together", minimum=1)

    def __post_init__(self) -> None:
        one_of(self.problem, PROBLEMS, "task.problem")
        if self.longest < self.max_length:
            raise UserError(f"task.longest: expected at least task.max_length {self.max_length}, got {self.longest}")
        if self.longest > self.max_length and not self.longer():
            raise UserError(f"task.score_every: no multiple of {self.score_every} among the task.longest lengths")

    def longer(self) -> range:
        """Returns the lengths beyond those of training that are scored."""
        first = (self.max_length // self.score_every + 1) * self.score_every
        return range(first, self.longest + 1, self.score_every)


def length(config: LengthConfig, run: RunInfo) -> "Strings":
    """Returns the task with generated answers, or with answers on a tape, as `task.answer` says."""
    return (LengthOnTape if config.answer == "tape" else Length)(config, run)


class Strings(Task):
    """Strings of a problem and their answers.

    `exact_match` is the share of whole answers that are right, `token_accuracy` that of the answers' tokens with their
    ends, and `symbol_accuracy` that of the symbols that the papers count, which have an end only where the length of an
    answer does not follow from the string's. They are reported for the lengths of training, for each longer length N
    (`exact_match_N`), and as the mean over the longer lengths (`exact_match_longer`). The papers' score is
    `symbol_accuracy_longer` with `task.score_every` 1. Short strings of the scored sample also occur in training.
    """

    end_token = END
    beside = 0  # tokens of a sequence besides the string and the places of its answer

    def __init__(self, config: LengthConfig, run: RunInfo) -> None:
        self.config, self.batch_size, self.problem = config, run.train.batch_size, PROBLEMS[config.problem]
        self.vocab_size = max(len(self.problem.inputs), len(self.problem.outputs)) + 1
        self.longest = self.n_tokens(config.longest)
        if 0 < config.position_range < self.longest:
            raise UserError(f"task.position_range: expected 0 or at least {self.longest}, got {config.position_range}")
        self.longest = max(self.longest, config.position_range)
        suffixes = ["", *(f"_{n}" for n in config.longer()), *(["_longer"] if config.longer() else [])]
        self.metrics = tuple(f"{name}{of}" for name in FIGURES for of in suffixes)

    def n_tokens(self, length: int) -> int:
        """Returns the number of tokens that the model reads for a string of this length."""
        raise NotImplementedError

    def arrays(self, drawn: Drawn) -> Batch:
        """Returns the batch of strings and answers."""
        raise NotImplementedError

    def answers(self, evaluator: Evaluator, drawn: Drawn, of_positions: jax.Array) -> np.ndarray:
        """Returns the model's tokens at the positions of the answers and one more, [N, U + 1]."""
        raise NotImplementedError

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        of_lengths, of_strings = jax.random.split(key)
        n_lengths = 1 if self.config.same_length else self.batch_size
        lengths = jax.random.randint(of_lengths, (n_lengths,), 1, self.config.max_length + 1)
        lengths_B = jnp.broadcast_to(lengths, (self.batch_size,))
        batch = self.arrays(draw(self.problem, of_strings, lengths_B, self.config.max_length))
        return batch | self.positions(jax.random.fold_in(key, 1), lengths_B, batch["inputs"].shape[1])

    def tapes(self, lengths_B: Any, longest: int) -> jax.Array:
        """Returns the lengths of the answers to strings of these lengths, [B]."""
        return jnp.array([self.problem.tape(n) for n in range(longest + 1)])[lengths_B]

    def positions(self, key: jax.Array, lengths_B: Any, n_tokens: int) -> dict[str, jax.Array]:
        """Returns the drawn positions [B, n_tokens] of strings of these lengths and their answers, if any are drawn.

        Each row has an ordered draw of as many positions as its tokens. Padding has the last position.
        """
        span = self.config.position_range
        n_drawn = min(n_tokens, span)

        def drawn(key: jax.Array, used: jax.Array) -> jax.Array:
            drawn_T = jax.random.choice(key, span, (n_drawn,), replace=False)
            drawn_T = jnp.sort(jnp.where(jnp.arange(n_drawn) < used, drawn_T, span - 1))
            return jnp.pad(drawn_T, (0, n_tokens - n_drawn), constant_values=span - 1)

        if not span:
            return {}
        used_B = lengths_B + self.tapes(lengths_B, self.config.longest) + self.beside
        return {"positions": jax.vmap(drawn)(jax.random.split(key, len(lengths_B)), used_B)}

    def scored_data(self) -> dict[str, Any]:
        names = ("problem", "max_length", "longest", "score_every", "examples")
        return {f"task.{name}": getattr(self.config, name) for name in names}

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        config = self.config
        figures: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for length in (0, *config.longer()):  # 0 for those of training
            # Each scored length has a key of its own; the sample is the same for every seed.
            of_lengths, of_strings = jax.random.split(jax.random.fold_in(random_key(0), length))
            lengths_B = jax.random.randint(of_lengths, (config.examples,), 1, config.max_length + 1)
            lengths_B = jnp.full(config.examples, length) if length else lengths_B
            drawn = jax.device_get(draw(self.problem, of_strings, lengths_B, config.longest))
            drawn = self.cut(drawn, size_of(length or config.max_length, config.longest))
            found_NU = self.answers(evaluator, drawn, jax.random.fold_in(of_strings, 1))
            figures |= self.scores(drawn, found_NU, f"_{length}" if length else "")
            more = more or {"examples": config.examples, **self.samples(drawn, found_NU)}
        for name in FIGURES if config.longer() else ():
            figures[f"{name}_longer"] = float(np.mean([figures[f"{name}_{n}"] for n in config.longer()]))
        return {**{name: figures[name] for name in self.metrics}, **more}

    def cut(self, drawn: Drawn, size: int) -> Drawn:
        """Returns strings of at most this length in arrays of just this size."""
        n_answer = max(self.problem.tape(n) for n in range(1, size + 1))
        return drawn._replace(string_BP=drawn.string_BP[:, :size], answer_BU=drawn.answer_BU[:, :n_answer])

    def scores(self, drawn: Drawn, found_NU: np.ndarray, suffix: str) -> dict[str, float]:
        """Returns the metrics of the model's tokens at the positions of the answers."""
        n_N1 = drawn.answer_length_B[:, None]
        places = np.arange(found_NU.shape[1])[None]
        right_NU = found_NU == np.pad(drawn.answer_BU, ((0, 0), (0, 1)))
        symbols_NU = places < n_N1 + self.problem.ends
        counts_NU = places < n_N1 + 1 if self.generates else symbols_NU
        right = ((right_NU | ~counts_NU).all(1), right_NU[counts_NU], right_NU[symbols_NU])
        return {f"{name}{suffix}": float(x.mean()) for name, x in zip(FIGURES, right, strict=True)}

    def samples(self, drawn: Drawn, found_NU: np.ndarray) -> dict[str, Any]:
        """Returns samples of (string, answer, what the model answered), and how many answers were cut off."""
        if not self.generates:  # what follows an answer is ignored
            found_NU = np.where(np.arange(found_NU.shape[1])[None] < drawn.answer_length_B[:, None], found_NU, END)
        rows = zip(*(x[:SAMPLES].tolist() for x in (drawn.string_BP, drawn.answer_BU, found_NU)), strict=True)
        inputs, outputs = self.problem.inputs, self.problem.outputs
        texts = [(symbols(inputs, a), symbols(outputs, b), symbols(outputs, c), END not in c) for a, b, c in rows]
        cut_off = {"cut_off": int((found_NU != END).all(axis=1).sum())} if self.generates else {}
        return {**cut_off, "samples": texts}

    def string(self, text: str) -> list[int]:
        """Returns the tokens of a string. Raises a UserError if it has other symbols."""
        for symbol in text:
            if symbol not in self.problem.inputs:
                raise UserError(f"expected symbols of '{self.problem.inputs}', got '{symbol}'")
        if not text:
            raise UserError("expected a string, got nothing")
        if self.config.position_range and len(text) > self.config.longest:
            most = f"task.position_range has positions for strings of at most {self.config.longest} symbols"
            raise UserError(f"{most}, got {len(text)}")
        return [self.problem.inputs.index(symbol) + 1 for symbol in text]


class Length(Strings):
    """A decoder reads END, the string and END, and writes the answer and END."""

    generates = True
    beside = 2

    def n_tokens(self, length: int) -> int:
        return length + self.problem.tape(length) + 2 - self.problem.ends

    def arrays(self, drawn: Drawn) -> Batch:
        n_tokens, n_B1 = self.n_tokens(drawn.string_BP.shape[1]), drawn.length_B[:, None]
        t = jnp.arange(n_tokens)[None]
        place = t - n_B1 - 1  # in the answer
        tokens_BT = jnp.where(place < 0, at(drawn.string_BP, t), at(drawn.answer_BU, place))
        weights_BT = (place >= 0) & (place <= drawn.answer_length_B[:, None])
        return language_model_batch(tokens_BT, weights_BT.astype(jnp.float32))

    def answers(self, evaluator: Evaluator, drawn: Drawn, of_positions: jax.Array) -> np.ndarray:
        tokens, n_new = np.pad(drawn.string_BP, ((0, 0), (0, 1))), drawn.answer_BU.shape[1] + 1
        positions = self.positions(of_positions, drawn.length_B, tokens.shape[1] + n_new)
        prompts = {"tokens": tokens, "lengths": drawn.length_B + 1, **jax.device_get(positions)}
        return evaluator.top(prompts, n_new)

    def encode(self, text: str) -> list[int]:
        return [END, *self.string(text), END]

    def placed(self, lengths_N: np.ndarray, n_tokens: int) -> dict[str, np.ndarray]:
        return jax.device_get(self.positions(random_key(0), lengths_N - 1, n_tokens))

    def to_text(self, text: str, tokens: list[int]) -> str:
        return symbols(self.problem.outputs, tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        tokens = [*self.encode(text), *(self.problem.outputs.index(symbol) + 1 for symbol in answer)]
        return {"inputs": jnp.array([tokens]), **self.positions(random_key(0), np.array([len(text)]), len(tokens))}


class LengthOnTape(Strings):
    """An encoder reads the string and empty places, and fills these with the answer, all at once, as in the papers."""

    def __init__(self, config: LengthConfig, run: RunInfo) -> None:
        super().__init__(config, run)
        self.empty, self.vocab_size = self.vocab_size, self.vocab_size + 1

    def n_tokens(self, length: int) -> int:
        return length + self.problem.tape(length)

    def inputs(self, string_BP: Any, length_B: Any) -> Batch:
        """Returns what the model reads: strings followed by empty places, and a mask that is false on padding."""
        n_B1, n_tape_B1 = length_B[:, None], self.tapes(length_B, string_BP.shape[1])[:, None]
        t = jnp.arange(self.n_tokens(string_BP.shape[1]))[None]
        read_BT = t < n_B1 + n_tape_B1
        empty_BT = jnp.where(read_BT, self.empty, END)
        return {"inputs": jnp.where(t < n_B1, at(string_BP, t), empty_BT), "input_mask": read_BT}

    def arrays(self, drawn: Drawn) -> Batch:
        batch = self.inputs(drawn.string_BP, drawn.length_B)
        on_tape_BT = batch["inputs"] == self.empty
        place = jnp.arange(on_tape_BT.shape[1])[None] - drawn.length_B[:, None]
        # After the end of an answer, targets are symbols 0.
        targets_BT = jnp.where(place <= drawn.answer_length_B[:, None], at(drawn.answer_BU, place), 1)
        targets_BT = jnp.where(on_tape_BT, targets_BT, END)
        return {**batch, "targets": targets_BT, "weights": on_tape_BT.astype(jnp.float32)}

    def answers(self, evaluator: Evaluator, drawn: Drawn, of_positions: jax.Array) -> np.ndarray:
        batch = self.inputs(drawn.string_BP, drawn.length_B)
        n_tokens = batch["inputs"].shape[1]
        batch = jax.device_get(batch | self.positions(of_positions, drawn.length_B, n_tokens))
        parts = [
            evaluator.logits({name: x[rows] for name, x in batch.items()}).argmax(-1)
            for rows in np.array_split(np.arange(len(drawn.length_B)), -(-batch["inputs"].size // SCORED_AT_ONCE))
        ]
        places = drawn.length_B[:, None] + np.arange(drawn.answer_BU.shape[1] + 1)[None]
        return np.take_along_axis(np.concatenate(parts), np.minimum(places, n_tokens - 1), axis=1)

    def to_batch(self, text: str, answer: str) -> Batch:
        string = np.array([self.string(text)], np.int32)
        batch = self.inputs(string, np.array([len(text)]))
        return batch | self.positions(random_key(0), np.array([len(text)]), batch["inputs"].shape[1])


def at(tokens_BP: Any, places_BT: jax.Array) -> jax.Array:
    """Returns the tokens at places [B, T], with END beyond the last."""
    padded = jnp.pad(jnp.asarray(tokens_BP), ((0, 0), (0, 1)))
    return jnp.take_along_axis(padded, jnp.clip(places_BT, 0, tokens_BP.shape[1]), axis=1)


def symbols(names: str, tokens: list[int]) -> str:
    """Returns the symbols of the tokens before the end; a token that is not a symbol is ?."""
    return "".join(names[token - 1] if token <= len(names) else "?" for token in before_end(tokens, END))


def size_of(length: int, longest: int) -> int:
    """Returns the size of the arrays for scoring strings of this length: one of a few, each compiled once."""
    size = longest
    while int(SHRINK * size) >= length:
        size = int(SHRINK * size)
    return size

"""Length generalization (Delétang et al. 2022; Ruoss et al. 2023): short strings in training, long ones in scoring."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key, one_of
from fxf.decoding.steps import Prompts
from fxf.errors import UserError
from fxf.machine.random_keys import random_key
from fxf.models.model import Batch
from fxf.tasks.length.problem import Drawn, Problem
from fxf.tasks.length.problems import PROBLEMS
from fxf.tasks.length.scores import FIGURES, Compared, cut, scores, size_of
from fxf.tasks.prompts import PromptGroup, of_each_prompt, one_group, padded_prompts
from fxf.tasks.task import Evaluator, RunInfo, Task, language_model_batch, sample

END = 0  # ends strings and answers; a symbol i is the token i + 1
SAMPLES = 10
SCORED_AT_ONCE = 2**18  # tokens of strings on a tape whose logits are computed together


@dataclasses.dataclass(frozen=True)
class LengthConfig:
    """The `task` section for `length`."""

    name: Literal["length"] = key("length", "the task to learn")
    problem: str = key("reverse_string", "one of fxf.tasks.length.problems.PROBLEMS")
    answer: Literal["generated", "tape"] = key(
        "generated",
        "generated: a decoder writes the answer behind the string; tape: an encoder fills empty places behind the "
        "string with the answer, all at once, as in the papers",
    )
    max_length: int = key(40, "longest string in training", minimum=1)
    longest: int = key(100, "longest string that is scored", minimum=1)
    score_every: int = key(20, "strings longer than in training are scored at every multiple of this", minimum=1)
    same_length: bool = key(False, "all strings of a batch have the same length, as in the papers")
    position_range: int = key(
        0,
        "positions of a sequence are drawn from this range, in increasing order, in training and in scoring (Ruoss et "
        "al. 2023); 0: none are drawn",
        minimum=0,
        below=1_000_001,
    )
    examples: int = key(256, "strings to score at each length, and of the lengths of training together", minimum=1)

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


class Length(Task):
    """Strings of a problem and their answers.

    `exact_match` is the share of whole answers that are right, `token_accuracy` that of the answers' tokens with their
    ends, and `symbol_accuracy` that of the symbols that the papers count, which have an end only where the length of an
    answer does not follow from the string's. They are reported for the lengths of training, for each longer length N
    (`exact_match_N`), and as the mean over the longer lengths (`exact_match_longer`). The papers' score is
    `symbol_accuracy_longer` with `task.score_every` 1. Short strings of the scored sample are also met in training.
    """

    end_token = END

    def __init__(self, config: LengthConfig, run: RunInfo) -> None:
        self.config, self.batch_size = config, run.train.batch_size
        self.problem: Problem = PROBLEMS[config.problem]
        self.on_tape = config.answer == "tape"
        self.generates = not self.on_tape
        symbols = max(len(self.problem.inputs), len(self.problem.outputs))
        self.vocab_size, self.empty = symbols + 1 + self.on_tape, symbols + 1
        self.longest = self.n_tokens(config.longest)
        if 0 < config.position_range < self.longest:
            raise UserError(f"task.position_range: expected 0 or at least {self.longest}, got {config.position_range}")
        self.longest = max(self.longest, config.position_range)
        self.metrics = tuple(f"{name}{of}" for name in FIGURES for of in self.suffixes())
        if self.on_tape:
            self.to_prompts = self.to_text = None  # type: ignore[assignment]

    def suffixes(self) -> list[str]:
        longer = self.config.longer()
        return ["", *(f"_{n}" for n in longer), *(["_longer"] if longer else [])]

    def n_tokens(self, length: int) -> int:
        """Returns the number of tokens that the model reads for a string of this length."""
        tape = self.problem.tape(length)
        return length + (tape if self.on_tape else tape + 1 - self.problem.ends + 1)

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        del step
        of_lengths, of_strings = jax.random.split(key)
        n_lengths = 1 if self.config.same_length else self.batch_size
        drawn = jax.random.randint(of_lengths, (n_lengths,), 1, self.config.max_length + 1)
        lengths_B = jnp.broadcast_to(drawn, (self.batch_size,))
        batch = self.to_arrays(self.draw(of_strings, lengths_B, self.config.max_length))
        return {**batch, **self.positions(jax.random.fold_in(key, 1), lengths_B, batch["inputs"].shape[1])}

    def draw(self, key: jax.Array, lengths_B: jax.Array, longest: int) -> Drawn:
        """Returns a string of each length, with arrays [B, P]."""
        keys = jax.random.split(key, len(lengths_B))
        return jax.vmap(self.problem.draw, in_axes=(0, 0, None))(keys, lengths_B, longest)

    @functools.cached_property
    def draw_scored(self) -> Callable[..., Drawn]:
        """Draws a string of each length, with arrays of the longest scored ones; it compiles once for all scores."""
        return jax.jit(functools.partial(self.draw, longest=self.config.longest))

    @functools.cached_property
    def scored_arrays(self) -> Callable[[Drawn], Batch]:
        """Returns what `to_arrays` does; it compiles once for each size."""
        return jax.jit(self.to_arrays)

    @functools.cached_property
    def scored_positions(self) -> Callable[[jax.Array, jax.Array, int], dict[str, jax.Array]]:
        """Returns what `positions` does; it compiles once for each size."""
        return jax.jit(self.positions, static_argnums=2) if self.config.position_range else self.positions

    def to_arrays(self, drawn: Drawn) -> Batch:
        """Returns strings and answers as the batch of a decoder, or as that of an encoder with a tape."""
        symbols_BP, length_B1 = drawn.symbols_P, drawn.length[:, None]
        answer_BU, answer_length_B1 = drawn.answer_U, drawn.answer_length[:, None]
        n_tokens = self.n_tokens(symbols_BP.shape[1])
        t = jnp.arange(n_tokens)[None]

        def at(x: jax.Array, places: jax.Array) -> jax.Array:
            padded = jnp.pad(x, ((0, 0), (0, max(0, n_tokens - x.shape[1]))))
            return jnp.take_along_axis(padded, jnp.clip(places, 0, padded.shape[1] - 1), axis=1)

        if not self.on_tape:
            place = t - length_B1 - 1  # in the answer
            answer = jnp.where(place < answer_length_B1, at(answer_BU, place) + 1, END)
            tokens_BT = jnp.where(t < length_B1, at(symbols_BP, t) + 1, jnp.where(place < 0, END, answer))
            return language_model_batch(tokens_BT, ((place >= 0) & (place <= answer_length_B1)).astype(jnp.float32))
        place, tape_B1 = t - length_B1, self.tape_lengths(drawn.length, symbols_BP.shape[1])[:, None]
        targets = jnp.where(place == answer_length_B1, END, at(answer_BU, place) + 1)  # zeros stand behind the end
        on_tape = (place >= 0) & (place < tape_B1)
        return {
            "inputs": jnp.where(place < 0, at(symbols_BP, t) + 1, jnp.where(on_tape, self.empty, END)),
            "input_mask": place < tape_B1,
            "targets": jnp.where(on_tape, targets, END),
            "weights": on_tape.astype(jnp.float32),
        }

    def tape_lengths(self, lengths_B: jax.Array, longest: int) -> jax.Array:
        """Returns the number of empty places behind strings of these lengths, [B]."""
        return jnp.array([self.problem.tape(n) for n in range(longest + 1)])[lengths_B]

    def positions(self, key: jax.Array, lengths_B: jax.Array, n_tokens: int) -> dict[str, jax.Array]:
        """Returns the drawn positions [B, n_tokens] of strings of these lengths and their answers, if any are drawn.

        Each row has an ordered draw of as many positions as its tokens. What pads it has the last position.
        """
        span = self.config.position_range
        if not span:
            return {}
        used_B = lengths_B + self.tape_lengths(lengths_B, self.config.longest) + (0 if self.on_tape else 2)

        n_drawn = min(n_tokens, span)

        def draw(key: jax.Array, used: jax.Array) -> jax.Array:
            drawn_T = jax.random.choice(key, span, (n_drawn,), replace=False)
            drawn_T = jnp.sort(jnp.where(jnp.arange(n_drawn) < used, drawn_T, span - 1))
            return jnp.pad(drawn_T, (0, n_tokens - n_drawn), constant_values=span - 1)

        return {"positions": jax.vmap(draw)(jax.random.split(key, len(lengths_B)), used_B)}

    def scored_data(self) -> dict[str, Any]:
        names = ("problem", "max_length", "longest", "score_every", "examples")
        return {f"task.{name}": getattr(self.config, name) for name in names}

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        config, samples = self.config, []
        compared: dict[str, Compared] = {}
        for length in (0, *config.longer()):
            # Each scored length has a key of its own; the sample is the same for every seed.
            of_lengths, of_strings = jax.random.split(jax.random.fold_in(random_key(0), length))
            drawn_lengths = jax.random.randint(of_lengths, (config.examples,), 1, config.max_length + 1)
            lengths = np.full(config.examples, length, np.int32) if length else drawn_lengths
            drawn = jax.device_get(self.draw_scored(of_strings, lengths))
            longest = size_of(length or config.max_length, config.longest)
            suffix = f"_{length}" if length else ""
            compared[suffix] = self.compare(
                evaluator, cut(drawn, longest, self.problem), longest, jax.random.fold_in(of_strings, 1)
            )
            if not length:
                samples = self.samples(drawn, compared[suffix].found_NU)
        cut_off = {} if self.on_tape else {"cut_off": int((compared[""].found_NU != END).all(axis=1).sum())}
        return {**scores(compared), "examples": config.examples, **cut_off, "samples": samples}

    def compare(self, evaluator: Evaluator, drawn: Drawn, longest: int, of_positions: jax.Array) -> Compared:
        """Returns what the model answers to strings in arrays of this length."""
        last_N1 = drawn.answer_length[:, None] - (0 if self.problem.ends else 1)
        if self.on_tape:
            arrays = self.scored_arrays(drawn)
            batch = jax.device_get(
                arrays | self.scored_positions(of_positions, drawn.length, arrays["inputs"].shape[1])
            )
            per_call = max(1, SCORED_AT_ONCE // batch["inputs"].shape[1])
            parts = [
                evaluator.logits({name: x[i : i + per_call] for name, x in batch.items()}).argmax(-1)
                for i in range(0, len(drawn.length), per_call)
            ]
            found, expected = np.concatenate(parts), batch["targets"]
            places = np.arange(found.shape[1])[None] - drawn.length[:, None]
            counts = (places >= 0) & (places <= last_N1)
            return Compared(found == expected, counts, counts, found)
        read = np.where(np.arange(longest)[None] < drawn.length[:, None], drawn.symbols_P + 1, END)
        tokens = np.pad(read, ((0, 0), (0, 1)))
        places = np.arange(drawn.answer_U.shape[1] + 1)[None]
        answer = np.pad(drawn.answer_U + 1, ((0, 0), (0, 1)))
        expected = np.where(places < drawn.answer_length[:, None], answer, END)
        lengths = drawn.length.astype(np.int32) + 1
        positions = self.scored_positions(of_positions, drawn.length, tokens.shape[1] + expected.shape[1])
        prompts = {"tokens": tokens.astype(np.int32), "lengths": lengths, **jax.device_get(positions)}
        found = evaluator.top(prompts, expected.shape[1])
        return Compared(found == expected, places <= drawn.answer_length[:, None], places <= last_N1, found)

    def samples(self, drawn: Drawn, found_NU: np.ndarray) -> list[tuple[Any, ...]]:
        """Returns (string, answer, what the model answered) of the first strings."""
        rows = []
        for i in range(min(SAMPLES, len(found_NU))):
            n, m = int(drawn.length[i]), int(drawn.answer_length[i])
            string = "".join(self.problem.inputs[s] for s in drawn.symbols_P[i, :n])
            answer = "".join(self.problem.outputs[s] for s in drawn.answer_U[i, :m])
            found = found_NU[i, n : n + m].tolist() if self.on_tape else found_NU[i].tolist()
            rows.append(sample(string, answer, self.answer_text(found), not self.on_tape and END not in found))
        return rows

    def answer_text(self, tokens: list[int]) -> str:
        """Returns the symbols of an answer before its end; a token that is no symbol of answers is ?."""
        before = tokens[: tokens.index(END)] if END in tokens else tokens
        return "".join(self.problem.outputs[t - 1] if t <= len(self.problem.outputs) else "?" for t in before)

    def encode(self, text: str) -> list[int]:
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

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        rows = of_each_prompt(self.encode, texts)
        groups = one_group(padded_prompts([[END, *row, END] for row in rows]), max_tokens, max_len)
        return [group._replace(prompts=self.placed(group.prompts, group.max_tokens)) for group in groups]

    def placed(self, prompts: Prompts, max_tokens: int) -> Prompts:
        """Returns prompts with the drawn positions of their tokens and new ones, if positions are drawn."""
        n_tokens = prompts["tokens"].shape[1] + max_tokens
        return {**prompts, **jax.device_get(self.scored_positions(random_key(0), prompts["lengths"] - 1, n_tokens))}

    def to_text(self, text: str, tokens: list[int]) -> str:
        return self.answer_text(tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        tokens = self.encode(text)
        if self.on_tape:
            whole = tokens + [self.empty] * self.problem.tape(len(tokens))
        else:
            whole = [END, *tokens, END, *(self.problem.outputs.index(symbol) + 1 for symbol in answer)]
        batch = {"inputs": np.array([whole], np.int32)}
        if self.on_tape:
            batch["input_mask"] = np.ones((1, len(whole)), bool)
        return {**jax.device_put(batch), **self.scored_positions(random_key(0), jnp.array([len(tokens)]), len(whole))}

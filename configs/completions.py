"""A decoder that learns to complete prompts, as in supervised fine-tuning: only the tokens of completions count.

fxf train --config=completions:json_lines --config.data.path=pairs.jsonl --from=FOLDER --workdir=runs/tuned

argument    what
(none)      the phrase book: French completes English
json_lines  lines such as {"prompt": "2 + 2 =", "completion": " 4"}, plain or compressed; data.source and data.target
            name the fields

A row is <bos>, the prompt, the completion and <eos>. Nothing is put between prompt and completion, and a prompt of
`fxf generate` is read as one of the data. The other keys of `task` and `data` are those of translation.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from fxf.base.config import key, one_of
from fxf.base.files import digest, folder_at
from fxf.base.work import by_threads
from fxf.data.batches import Arrays, seq2seq_batch
from fxf.data.corpus import Corpus, DataConfig, RegisteredCorpus, TokenPair
from fxf.data.text_files import Example, Sides, good_lines, lines_of, read_text_file, split_by_source
from fxf.data.tokenizer import Special
from fxf.models.model import Batch
from fxf.runs.experiment import default_config
from fxf.tasks import RegisteredTask
from fxf.tasks.prompts import PromptGroup, one_group, padded_prompts
from fxf.tasks.task import RunInfo
from fxf.tasks.translation import Translation, TranslationConfig

ARGUMENTS = ("default", "json_lines")


@dataclasses.dataclass(frozen=True)
class CompletionsConfig(TranslationConfig):
    """The `task` section for `completions:COMPLETIONS`."""

    name: str = key("completions", "the task to learn")  # type: ignore[assignment]


def row_batch(pairs: Sequence[TokenPair], shape: tuple[int, int, int], special: Special) -> Arrays:
    """Returns the decoder's arrays of a batch. The tokens of a prompt have no weight as targets.

    Args:
      pairs: a prompt with <eos>, and the whole row after <bos>.
    """
    batch = seq2seq_batch(pairs, shape, special)
    n_prompt_B1 = batch["source_mask"].sum(1, keepdims=True) - 1
    is_answer_BT = np.arange(batch["targets"].shape[1])[None] >= n_prompt_B1
    return {"inputs": batch["inputs"], "targets": batch["targets"], "weights": batch["weights"] * is_answer_BT}


class Completions(Translation):
    """Completion of prompts by a decoder, scored as translations are."""

    def __init__(self, config: CompletionsConfig, run: RunInfo) -> None:
        super().__init__(config, run)
        self.longest = 2 * self.data.max_length
        self.metrics = (*self.metrics, "-validation_loss")
        self.around = (self.begins, None)

    def _tokenized(self, part: str) -> list[tuple[Example, TokenPair]]:
        examples = [example for example, _ in super()._tokenized(part)]
        return list(zip(examples, by_threads(self.row, examples), strict=True))

    def arrays(self, part: str) -> Callable[..., Arrays]:
        return row_batch

    def row(self, example: Example) -> TokenPair:
        """Returns the tokens of a prompt, as `fxf generate` reads it, and those of the whole row."""
        prompt, whole = map(self.tokenizer.encode, (example.source, example.source + example.target))
        n = len(prompt)
        answer = whole[n:] if whole[:n] == prompt else self.tokenizer.encode(example.target)
        rows = ([*tokens, self.end_token] for tokens in (prompt, prompt + answer))
        return TokenPair(*(np.array(row, self.tokenizer.dtype) for row in rows))

    def groups(self, sources: Sequence[Any], max_tokens: int = 0) -> list[PromptGroup]:
        prompts = padded_prompts([[self.begins, *source[:-1]] for source in sources])
        return one_group(prompts, max_tokens or self.data.max_length, self.longest)

    def to_text(self, text: str, tokens: list[int]) -> str:
        return self.tokenizer.continuation(self.cased(text), tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        row = self.row(Example(self.cased(text), self.cased(answer), ""))
        return {"inputs": jnp.array([[self.begins, *row.target[:-1]]])}


def json_lines(config: DataConfig) -> Corpus:
    """Reads pairs of texts from the fields `data.source` and `data.target` of JSON lines."""
    path = folder_at(config.path, "data.path")
    content = read_text_file(path, "data.path")

    def sides(line: bytes) -> Sides:
        try:
            record = json.loads(line)
        except ValueError as error:
            return f"not JSON: {error}; expected an object on each line"
        match record:
            case {config.source: str(source), config.target: str(target)}:
                return source.encode("utf-8", "surrogatepass"), target.encode("utf-8", "surrogatepass")
        return f"expected an object with texts '{config.source}' (data.source) and '{config.target}' (data.target)"

    examples, skipped = good_lines(map(sides, lines_of(content)), [path.name] * 2, config.on_error == "skip")
    return Corpus(*split_by_source(examples, config.held_out), skipped, {"data.path": digest(content)})


JSON_LINES = RegisteredCorpus(json_lines, ("path", "source", "target", "held_out"))
COMPLETIONS = RegisteredTask({"task": CompletionsConfig, "data": DataConfig}, Completions, ("transformer_lm",))


def get_config(argument: str = "default") -> ConfigDict:
    one_of(argument, ARGUMENTS, "argument")
    config = default_config("completions:COMPLETIONS")
    data, model = config.data, config.model
    if argument == "json_lines":
        data.name, data.source, data.target, data.max_length = "completions:JSON_LINES", "prompt", "completion", 512
    else:
        data.vocab_size, data.max_length = 1500, 48
    data.batch_tokens, data.shapes = 4096, 3
    model.n_layers, model.d_model, model.d_ff, model.n_heads = 2, 128, 256, 4
    model.max_len, model.norm_epsilon_in = 2 * data.max_length, "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 1e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 500, 64
    return config

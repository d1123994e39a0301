"""Language modelling of a text or of documents, with any tokenizer."""

import contextlib
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.files import digest
from fxf.data.batches import iterate
from fxf.data.mixture import sources_of
from fxf.data.prepared import Counts, Prepared, prepared, tokenizer_of_documents
from fxf.data.rows import Rows, ShuffledRows
from fxf.data.text import EncodedText, draw_windows, scoring_windows
from fxf.data.tokenizer import NO_TOKEN, PAD, UNK, Tokenizer
from fxf.models.model import Batch
from fxf.tasks.prompts import PromptGroup, before_end, one_group, padded_prompts
from fxf.tasks.task import NO_END, Evaluator, RunInfo, language_model_batch
from fxf.tasks.text_task import TokenizedTask

ALIKE = (("The Cat", "the cat"), ("a  b\n", "a b"))  # pairs that a lossy tokenizer encodes alike
TOKENS_AT_ONCE = 8192
SAMPLES = 3
BETWEEN = "\n---\n"  # the texts of a sample


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig:
    """The `task` section for `language_model`."""

    name: Literal["language_model"] = key("language_model", "the task to learn")
    length: int = key(128, "number of tokens that the model reads; it predicts the next token after each", minimum=2)
    bos: bool = key(True, "windows and documents begin with <bos>; if false, documents begin with the previous <eos>")
    score: Literal["all", "last"] = key("all", "tokens of a window that count: all, or only the last (seed 002)")
    document_mask: bool = key(True, "attention and positions stay within a document")


def language_model(config: LanguageModelConfig, run: RunInfo) -> "LanguageModel":
    """Returns the task on the running text, or on the documents, that the `data` section names."""
    return (RunningText if run.data.format == "text" else Documents)(config, run)


def loses_text(tokenizer: Tokenizer) -> bool:
    """Returns whether a tokenizer drops case or white space.

    Its bits per byte then cover less text than those of a lossless tokenizer.
    """
    with contextlib.suppress(UserError):  # a tokenizer file may lack these characters
        return tokenizer.kind != "character" and any(tokenizer.encode(x) == tokenizer.encode(y) for x, y in ALIKE)
    return False


class LanguageModel(TokenizedTask):
    """Prediction of the next token. `RunningText` and `Documents` make the batches.

    A model whose loss is not a cross-entropy reports no bits but `accuracy`, the share of targets that it ranks first.
    Bits per character and per byte count the loss of all tokens, <eos> included.

    Attributes:
      first: the token before a text, None for none.
      context: the number of tokens before the only one that counts; 0 if all count.
    """

    generates = True
    metrics: tuple[str, ...] = ("-validation_loss", "-bits_per_character", "-bits_per_byte")
    context = 0

    def __init__(self, config: LanguageModelConfig, run: RunInfo, tokenizer: Tokenizer, first: int | None) -> None:
        super().__init__(run.data, tokenizer)
        self.config, self.run, self.longest = config, run, config.length
        self.first, self.around = first, (first, None)
        self.begins = NO_TOKEN if first is None else first

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        figures = super().test(evaluator)
        if self.context:  # the model has not learned to begin a text
            return figures
        rows = evaluator.top(padded_prompts([self.inputs([])] * SAMPLES), self.config.length).tolist()
        # Greedy decoding gives the same text each time.
        texts = dict.fromkeys(self.tokenizer.decode(before_end(row, self.end_token)) for row in rows)
        cut_off = self.end_token != NO_END and any(self.end_token not in row for row in rows)
        return {**figures, "samples": [("", None, BETWEEN.join(texts), cut_off)]}

    def figures_of(
        self, evaluator: Evaluator, batches: Iterable[dict[str, np.ndarray]], size: Counts, loss_name: str
    ) -> dict[str, float]:
        """Returns the metrics of batches that count each token of a text once; `size` is that of the text."""
        sums_N3 = []
        for batch in batches:
            right = 0.0
            if not evaluator.in_nats:
                right = float(((evaluator.logits(batch).argmax(-1) == batch["targets"]) * batch["weights"]).sum())
            sums_N3.append((*evaluator.loss(batch), right))
        loss_sum, weight_sum, n_right = np.sum(sums_N3, axis=0).tolist()
        loss, bits = loss_sum / weight_sum, loss_sum / weight_sum / math.log(2) * size["tokens"]
        if not evaluator.in_nats:
            return {loss_name: loss, "accuracy": n_right / weight_sum}
        return {loss_name: loss, "bits_per_character": bits / size["characters"], "bits_per_byte": bits / size["bytes"]}

    def scored_data(self) -> dict[str, Any]:
        lossy = {"text that its tokens keep": digest(self.tokenizer.to_json().encode())}
        return {"task.score": self.config.score, **(lossy if loses_text(self.tokenizer) else {})}

    def inputs(self, tokens: list[int]) -> list[int]:
        """Returns the inputs for a text: its tokens, after `first` if there is one.

        Without `first`, an empty text is read as a new line.
        """
        if self.first is not None:
            return [self.first, *tokens]
        return tokens or self.tokenizer.encode("\n")[:1] or [UNK]

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        rows = self.encode_prompts(texts)
        for number, row in enumerate(rows, 1):
            if len(row) < self.context:
                why = f"with task.score=last the model never learned to continue fewer than {self.context}"
                raise UserError(f"prompt {number}: expected {self.context} tokens or more, got {len(row)}; {why}")
        return one_group(padded_prompts(list(map(self.inputs, rows))), max_tokens, max_len)

    def beginning(self, text: str) -> list[int]:
        # Some tokenizers put a space in front of a text, but an answer continues its prompt.
        candidates = self.tokenizer.encode(text), self.behind(text)
        return next((x for x in candidates if self.tokenizer.continuation(text, x) == text), candidates[0])

    def to_text(self, text: str, tokens: list[int]) -> str:
        return text + self.tokenizer.continuation(self.cased(text), tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        whole = answer if answer.startswith(text) else text + answer
        return {"inputs": jnp.array([self.inputs(self.tokenizer.encode(self.cased(whole)))])}


class RunningText(LanguageModel):
    """One text in memory.

    A training batch holds windows that start anywhere in the training part. In scoring, every token that counts follows
    another token of the text in its window, except the text's first token, which counts only after <bos>.
    """

    def __init__(self, config: LanguageModelConfig, run: RunInfo) -> None:
        self.window = config.length + (not config.bos)
        self.text = EncodedText(run.data, run.folder, self.window)
        tokenizer = self.text.tokenizer
        super().__init__(config, run, tokenizer, tokenizer.special.bos if config.bos else None)
        if config.score == "last":
            self.context = config.length - config.bos

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        windows_BT = draw_windows(key, self.text.tokens("train"), (self.run.train.batch_size, self.window))
        return self.batch_of(windows_BT, jnp.ones(windows_BT.shape))

    def batch_of(self, tokens_BT: Any, weights_BT: Any) -> Batch:
        """Returns the batch of windows of tokens, with the weight of each token."""
        scored = np.ones((1, self.config.length), np.float32)
        if self.config.score == "last":
            scored[:, :-1] = 0
        if self.first is not None:
            return language_model_batch(tokens_BT, weights_BT * scored, self.first)
        return {"inputs": tokens_BT[:, :-1], "targets": tokens_BT[:, 1:], "weights": weights_BT[:, 1:] * scored}

    def evaluate(self, evaluator: Evaluator, part: str, loss_name: str) -> dict[str, float]:
        """Returns the loss of a part of the text, and its bits per character and per byte, or its accuracy."""
        text = self.text.parts()[part]
        size = Counter(characters=len(text), bytes=len(text.encode()), tokens=len(self.text.tokens(part)))
        return self.figures_of(evaluator, self.scored(part), size, loss_name)

    def scored(self, part: str) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches that score a part."""
        tokens_NT, weights_NT = scoring_windows(self.text.tokens(part), self.window)
        rows = min(len(tokens_NT), max(1, TOKENS_AT_ONCE // self.config.length))
        missing = ((0, -len(tokens_NT) % rows), (0, 0))
        tokens = np.pad(tokens_NT, missing, constant_values=PAD).reshape(-1, rows, self.window)
        weights = np.pad(weights_NT, missing).reshape(tokens.shape)
        yield from (jax.device_get(self.batch_of(*pair)) for pair in zip(tokens, weights, strict=True))

    def scored_data(self) -> dict[str, Any]:
        context = {"task.length": self.config.length} if self.context else {}
        return {**self.text.held_out(), **super().scored_data(), **context}


class Documents(LanguageModel):
    """Documents, tokenized on disk and packed into rows without padding. Each row occurs once per epoch of its source.

    Documents are prepared and read only when needed, so a trained run can do without them.
    """

    def __init__(self, config: LanguageModelConfig, run: RunInfo) -> None:
        if config.score == "last":
            raise UserError(f"task.score: 'last' is for data.format 'text', got '{run.data.format}'; leave it at 'all'")
        self.parts = sources_of(run.data)
        tokenizer = tokenizer_of_documents(self.parts, run.folder)
        self.end_token = tokenizer.special.eos
        super().__init__(config, run, tokenizer, tokenizer.special.bos if config.bos else self.end_token)
        self.metrics += tuple(f"-validation_loss/{name}" for name in self.parts if name)

    @functools.cached_property
    def prepared(self) -> dict[str, Prepared]:
        """The prepared documents of each source."""
        return {name: prepared(part.config, self.tokenizer) for name, part in self.parts.items()}

    def rows(self, tokens_N: np.ndarray) -> Rows:
        """Returns the rows of the tokens of a part."""
        config = self.config
        return Rows(tokens_N, self.tokenizer.special, self.begins, config.length, config.document_mask)

    def batches(self) -> Any:
        process = (jax.process_index(), jax.process_count())
        rows_S = [self.rows(documents.tokens("train")) for documents in self.prepared.values()]
        shares_S = [part.share for part in self.parts.values()]
        return iterate(ShuffledRows(rows_S, shares_S, self.run.train.batch_size, self.run.seed, process))

    def largest_batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        rows = self.rows(np.zeros(1, np.uint16))  # any tokens have these shapes
        return jax.eval_shape(lambda: rows.batch(np.zeros(self.run.train.batch_size, int)))

    def evaluate(self, evaluator: Evaluator, part: str, loss_name: str) -> dict[str, float]:
        """Returns the metrics of the documents. Of a mixture: of each source, and averaged by the shares."""
        stored, figures = part if self.data.test else "validation", dict[str, float]()
        sizes = {name: documents.counts[stored] for name, documents in self.prepared.items()}
        for name, size in sizes.items():
            rows = self.rows(self.prepared[name].tokens(stored))
            batches = rows.in_order(min(rows.n_rows, max(1, TOKENS_AT_ONCE // self.config.length)))
            source_figures = self.figures_of(evaluator, batches, size, loss_name)
            if not name:
                return source_figures
            figures |= {f"{key}/{name}": value for key, value in source_figures.items()}
        shares = {name: source.share for name, source in self.parts.items()}
        whole = {key: sum(share * figures[f"{key}/{name}"] for name, share in shares.items()) for key in source_figures}
        for unit in ("character", "byte") if evaluator.in_nats else ():
            per_token = sum(share * sizes[x][f"{unit}s"] / sizes[x]["tokens"] for x, share in shares.items())
            whole[f"bits_per_{unit}"] = whole[loss_name] / math.log(2) / per_token
        return whole | figures

    def figures(self) -> dict[str, Any]:
        counts = [documents.counts for documents in self.prepared.values()]
        train, validation = (sum((parts[part] for parts in counts), Counter()) for part in ("train", "validation"))
        both = train + validation
        n_rows = sum(self.rows(documents.tokens("train")).n_rows for documents in self.prepared.values())
        source_tokens = {
            f"training_tokens/{name}": x.counts["train"]["tokens"] for name, x in self.prepared.items() if name
        }
        return {
            "training_documents": train["documents"],
            "validation_documents": validation["documents"],
            "training_tokens": train["tokens"],
            **source_tokens,
            "validation_tokens": validation["tokens"],
            "vocabulary": self.vocab_size,
            "unknown_share": round(both["unknown"] / both["tokens"], 6),
            "padding_share": round(1 - train["tokens"] / (n_rows * self.config.length), 6),
        }

    def digests(self) -> dict[str, str]:
        if "" in self.prepared:
            return {"data.path": self.prepared[""].digest}
        shares = {f"data.sources.{name}.share": str(part.share) for name, part in self.parts.items()}
        return {f"data.sources.{name}": x.digest for name, x in self.prepared.items()} | shares

    def scored_data(self) -> dict[str, Any]:
        texts = {f"split of {name or 'the text'}": documents.text for name, documents in self.prepared.items()}
        shares = {f"share of {name}": part.share for name, part in self.parts.items() if name}
        return {**texts, **shares, **super().scored_data()}

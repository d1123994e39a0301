"""Translation of sentences, scored by BLEU and chrF (seeds 000 and 003)."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.files import digest
from fxf.base.status import say
from fxf.data.batches import Arrays, Batches, iterate, padded, seq2seq_batch
from fxf.data.corpus import SPLITS, Corpus, DataConfig, TokenPair, read_corpus, tokenize
from fxf.data.text_files import Example
from fxf.data.tokenizer_file import any_tokenizer
from fxf.models.model import Batch
from fxf.tasks.prompts import PromptGroup, in_order_of_texts
from fxf.tasks.task import Evaluator, RunInfo
from fxf.tasks.text_metrics import MetricsConfig, TextMetrics, reference_columns
from fxf.tasks.text_task import TokenizedTask

SAMPLES = 10
LENGTH_STEP = 16


@dataclasses.dataclass(frozen=True)
class TranslationConfig(MetricsConfig):
    """The `task` section for `translation`."""

    name: Literal["translation"] = key("translation", "the task to learn")
    tokenized: bool = key(False, "the text is already tokenized: BLEU splits it only at spaces")
    examples: int = key(0, "number of sentences scored in validation and test, evenly spaced; 0: all", minimum=0)


class Translation(TokenizedTask):
    """Translation of sentences.

    The tokenizer is the one in the run folder. Without one, a joint vocabulary of both languages is learned from the
    training pairs. The corpus is read only when a function needs it, so a trained run can do without it.

    Attributes:
      tokenized: `tokenized(part)` returns the examples of "train", "validation" or "test", with their tokens.
      batches_of: `batches_of(part)` returns the batches of a part; those of "train" have this process's share.
    """

    generates = True

    def __init__(self, config: TranslationConfig, run: RunInfo) -> None:
        data: DataConfig = run.data
        self.config, self.run, self.data, self.longest = config, run, data, data.max_length
        self.tokenized, self.batches_of = functools.cache(self._tokenized), functools.cache(self._batches_of)
        own = ("bleu", "bleu_lower_case", "chrf", "exact_match")
        self.text_metrics = TextMetrics(config, *own)
        self.metrics = (*own, *self.text_metrics.names)
        super().__init__(data, any_tokenizer(run.folder, data, self.training_texts))
        self.end_token = self.tokenizer.special.eos
        self.around = (None, self.end_token)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The sentence pairs of all parts."""
        return read_corpus(self.data)

    def training_texts(self) -> Iterator[str]:
        """Returns the sentences that the tokenizer is learned from."""
        return (text for example in self.corpus.train for text in (example.source, example.target))

    def _tokenized(self, part: str) -> list[tuple[Example, TokenPair]]:
        kept = tokenize(self.data, self.tokenizer, getattr(self.corpus, part))
        if part == "test" and (n_long := len(self.corpus.test) - len(kept)):
            say(f"warning: {n_long} of {len(self.corpus.test)} test pairs are not scored: they exceed data.max_length")
        return kept

    def _batches_of(self, part: str) -> Batches:
        process = (jax.process_index(), jax.process_count()) if part == "train" else (0, 1)
        return Batches(self.pairs(part), self.data, self.run, self.tokenizer.special, process, self.arrays(part))

    def arrays(self, part: str) -> Callable[..., Arrays]:
        """Returns the function that makes the arrays of a batch from a part's pairs of tokens."""
        return seq2seq_batch

    def pairs(self, part: str) -> list[TokenPair]:
        """Returns the pairs of tokens of a part."""
        return [pair for _, pair in self.tokenized(part)]

    def batches(self) -> Any:
        return iterate(self.batches_of("train"))

    def largest_batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        return self.batch_shapes()[0]

    def batch_shapes(self) -> list[dict[str, jax.ShapeDtypeStruct]]:
        return self.batches_of("train").shapes()

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        sums = np.sum([evaluator.loss(batch) for batch in self.batches_of("validation").epoch()], axis=0)
        figures = self.score(evaluator, self.tokenized("validation"), self.config.examples)
        del figures["answers"], figures["bleu_signature"]
        return {**figures, "validation_loss": float(sums[0] / sums[1])}

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        return self.score(evaluator, self.tokenized("test"), self.config.examples)

    def test_pairs(self, evaluator: Evaluator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        examples = [Example(self.cased(a), self.cased(b), f"pair {number}") for number, (a, b) in enumerate(pairs, 1)]
        if [name.strip().lower() for name in pairs[0]] == [self.data.source.lower(), self.data.target.lower()]:
            say("--pairs: the first line names the columns")
            del examples[0]
        data = dataclasses.replace(self.data, on_error="stop")  # no pair is left out of the scores
        return self.score(evaluator, tokenize(data, self.tokenizer, examples))

    def score(
        self, evaluator: Evaluator, tokenized: Sequence[tuple[Example, TokenPair]], n_scored: int = 0
    ) -> dict[str, Any]:
        """Returns the metrics, samples and answers of sentence pairs. `n_scored` limits the sources; 0: all."""
        grouped: dict[str, tuple[Any, list[str]]] = {}  # the tokens and all translations of each source
        for example, pair in tokenized:
            grouped.setdefault(example.source, (pair.source, []))[1].append(example.target)
        sources = [*grouped]
        if 0 < n_scored < len(sources):
            sources = [sources[i] for i in np.linspace(0, len(sources) - 1, n_scored).astype(int)]
        tokens, references = map(list, zip(*map(grouped.__getitem__, sources), strict=True))
        groups = self.groups(tokens)
        best = [beam[0] for beam in in_order_of_texts(groups, evaluator.decode(groups), self.end_token, len(tokens))]
        texts = [self.to_text(source, answer.tokens) for source, answer in zip(sources, best, strict=True)]
        chosen = range(0, len(sources), max(len(sources) // SAMPLES, 1))[:SAMPLES]
        return {
            **scores(texts, references, self.config.tokenized),
            **self.text_metrics.figures(texts, references),
            "cut_off": sum(hypothesis.cut_off for hypothesis in best),
            "samples": [(sources[i], references[i][0], texts[i], best[i].cut_off) for i in chosen],
            "answers": list(zip(sources, references, texts, strict=True)),
        }

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        if max_tokens > max_len:
            raise UserError(f"max_tokens: {max_tokens} is more than model.max_len {max_len}")
        sources, limit = self.encode_prompts(texts), self.data.max_length
        for number, source in enumerate(sources, 1):
            if len(source) + 1 > limit:
                raise UserError(f"prompt {number}: {len(source) + 1} tokens; data.max_length is {limit}")
        filled = [i for i, source in enumerate(sources) if source]  # an empty text has an empty answer
        groups = self.groups([[*sources[i], self.end_token] for i in filled], max_tokens)
        return [group._replace(places=[filled[i] for i in group.places]) for group in groups]

    def groups(self, sources: Sequence[Any], max_tokens: int = 0) -> list[PromptGroup]:
        """Groups sources by length, the longest first; the decoder's prompt is <bos> alone.

        A long group that came last would run on alone after the others have ended. A translation may have as many
        tokens as the longest in training.
        """
        special, lengths = self.tokenizer.special, np.array([len(source) for source in sources])
        order = np.argsort(-lengths, kind="stable")
        # The model has no more positions than `data.max_length`.
        classes = np.minimum(-(-lengths // LENGTH_STEP) * LENGTH_STEP, self.data.max_length)
        groups = []
        for length in np.unique(classes)[::-1].tolist():
            places = order[classes[order] == length].tolist()
            source, mask = padded([sources[i] for i in places], n := len(places), length, special.pad)
            none = {"tokens": np.zeros((n, 0), np.int32), "lengths": np.zeros(n, np.int32)}
            prompts = {**none, "first": np.full(n, special.bos, np.int32), "source": source, "source_mask": mask}
            groups.append(PromptGroup(places, prompts, max_tokens or self.data.max_length))
        return groups

    def to_batch(self, text: str, answer: str) -> Batch:
        source, target = (self.tokenizer.encode(self.cased(side)) for side in (text, answer))
        pair = TokenPair([*source, self.end_token], [*target, self.end_token])
        batch = seq2seq_batch([pair], (1, len(pair.source), len(pair.target)), self.tokenizer.special)
        return jax.device_put({name: batch[name] for name in ("source", "source_mask", "inputs")})

    def digests(self) -> dict[str, str]:
        return self.corpus.digests

    def scored_data(self) -> dict[str, Any]:
        keys: dict[str, Any] = {"task.tokenized": self.config.tokenized, "task.examples": self.config.examples}
        for part in ("validation", "test"):
            pairs = [example[:2] for example, _ in self.tokenized(part)]
            keys[f"set of {part} pairs"] = digest(json.dumps(pairs).encode())
        return keys

    def figures(self) -> dict[str, Any]:
        n_long = sum(len(getattr(self.corpus, part)) - len(self.tokenized(part)) for part in SPLITS)
        return {
            "training_pairs": len(self.tokenized("train")),
            "vocabulary": self.vocab_size,
            "skipped": self.corpus.skipped + n_long,
            "padding_share": round(self.batches_of("train").padding_share(), 4),
            "steps_per_epoch": self.batches_of("train").per_epoch,
        }


def scores(hypotheses: list[str], references: list[list[str]], tokenized: bool) -> dict[str, Any]:
    """Returns BLEU, chrF and the share of exact matches; each answer is compared with all its references.

    Args:
      tokenized: whether the text is tokenized already, so that BLEU splits it only at spaces.
    """
    from sacrebleu.metrics import BLEU, CHRF  # imported here because it takes a fifth of a second

    columns = reference_columns(references)
    tokenize = "none" if tokenized else "13a"
    # `force` silences a warning about tokenized text; it changes no score.
    bleu, bleu_lower_case = (BLEU(tokenize=tokenize, lowercase=lower, force=tokenized) for lower in (False, True))
    return {
        "bleu": bleu.corpus_score(hypotheses, columns).score,
        "chrf": CHRF().corpus_score(hypotheses, columns).score,
        "bleu_lower_case": bleu_lower_case.corpus_score(hypotheses, columns).score,
        "exact_match": float(np.mean([h in texts for h, texts in zip(hypotheses, references, strict=True)])),
        "examples": len(hypotheses),
        "bleu_signature": str(bleu.get_signature()),
    }

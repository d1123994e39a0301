"""Translation of sentences, scored by BLEU and chrF (seeds 000 and 003)."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np

from fxf.config import key
from fxf.data.batches import Batches, iterate, padded, seq2seq_batch
from fxf.data.corpus import DataConfig, Example, Tokenized, TokenPair, read_corpus, tokenize
from fxf.data.merges import Segmentations
from fxf.data.redrawn import RedrawnBatches
from fxf.data.tokenizer import BOS, EOS, tokenizer_of
from fxf.decoding.steps import Prompts
from fxf.errors import UserError
from fxf.files import digest
from fxf.models.model import Batch
from fxf.tasks.prompts import PromptGroup, in_order_of_texts
from fxf.tasks.task import Evaluator, RunInfo, sample
from fxf.tasks.text_metrics import MetricsConfig, TextMetrics, reference_columns
from fxf.tasks.text_task import TokenizedTask

SAMPLES = 10
LENGTH_STEP = 16


@dataclasses.dataclass(frozen=True)
class TranslationConfig(MetricsConfig):
    """The `task` section for `translation`."""

    name: Literal["translation"] = key("translation", "the task to learn")
    tokenized: bool = key(False, "the text is tokenized already, so BLEU counts its words as they are")
    examples: int = key(0, "sentences to score in a validation or the test, evenly spaced; 0: all", minimum=0)


class Translation(TokenizedTask):
    """Translation of sentences.

    The tokenizer is the one in the run folder. If there is none, it is learned from both languages of the training
    pairs together.
    """

    end_token, generates = EOS, True
    around = (None, EOS)

    def __init__(self, config: TranslationConfig, run: RunInfo) -> None:
        data: DataConfig = run.data
        self.config, self.run, self.longest = config, run, data.max_length
        self.corpus = functools.cache(lambda: read_corpus(data))
        self.tokenized = functools.cache(lambda part: tokenize(data, self.tokenizer, getattr(self.corpus(), part)))
        self.batches_of = functools.cache(self.make_batches)
        own = ("bleu", "bleu_lower_case", "chrf", "exact_match")
        self.text_metrics = TextMetrics(config, (*own, "examples", "cut_off", "bleu_signature", "validation_loss"))
        self.metrics = (*own, *self.text_metrics.names)
        super().__init__(data, tokenizer_of(run.folder, data.tokenizer, data.vocab_size, self.training_texts))

    def training_texts(self) -> Iterator[str]:
        """Returns the sentences from which the tokenizer is learned."""
        return (text for example in self.corpus().train for text in (example.source, example.target))

    def make_batches(self, part: str) -> Batches:
        """Returns the batches of a part of the corpus. A process reads its share of the rows in training, else all."""
        examples, pairs, _ = self.tokenized(part)
        options: dict[str, Any] = {
            "batch_size": self.run.train.batch_size,
            "batch_tokens": self.data.batch_tokens,
            "shapes": self.data.shapes,
            "seed": self.run.seed,
            "multiple": self.run.train.microbatches,
            "process": (jax.process_index(), jax.process_count()) if part == "train" else (0, 1),
        }
        if not self.data.bpe_dropout or part != "train":
            return Batches(pairs, **options)
        texts = [*(example.source for example in examples), *(example.target for example in examples)]
        words = Segmentations(self.tokenizer, texts, self.data.bpe_dropout)
        return RedrawnBatches(pairs, words.drawn, max_length=self.data.max_length, **options)

    def batches(self) -> Any:
        return iterate(self.batches_of("train"))

    def largest_batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        return self.batches_of("train").largest()

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        sums = np.sum([evaluator.loss(batch) for batch in self.batches_of("validation").epoch()], axis=0)
        figures = self.evaluate(evaluator, "validation")
        del figures["answers"], figures["bleu_signature"]
        return {**figures, "validation_loss": float(sums[0] / sums[1])}

    def test(self, evaluator: Evaluator) -> dict[str, Any]:
        return self.evaluate(evaluator, "test")

    def test_pairs(self, evaluator: Evaluator, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        examples = [Example(self.cased(a), self.cased(b), f"pair {number}") for number, (a, b) in enumerate(pairs, 1)]
        return self.score(evaluator, tokenize(self.data, self.tokenizer, examples))

    def evaluate(self, evaluator: Evaluator, part: str) -> dict[str, Any]:
        """Returns the figures, samples and answers of a part of the corpus."""
        return self.score(evaluator, self.tokenized(part), self.config.examples)

    def score(self, evaluator: Evaluator, tokenized: Tokenized, n_scored: int = 0) -> dict[str, Any]:
        """Returns the figures, samples and answers of sentence pairs, or of so many of their sources."""
        sources, tokens, references = group_by_source(tokenized.examples, tokenized.pairs)
        if 0 < n_scored < len(sources):
            places = np.linspace(0, len(sources) - 1, n_scored).astype(int)
            sources, tokens = [sources[i] for i in places], [tokens[i] for i in places]
            references = [references[i] for i in places]
        groups = self.groups(tokens)
        found = in_order_of_texts(groups, evaluator.decode(groups), EOS, len(tokens))
        best = [self.tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]
        cut_off = [hypotheses[0].cut_off for hypotheses in found]
        chosen = range(0, len(sources), max(len(sources) // SAMPLES, 1))[:SAMPLES]
        samples = [sample(sources[i], references[i][0], best[i], cut_off[i]) for i in chosen]
        figures = scores(best, references, self.config.tokenized) | self.text_metrics.figures(best, references)
        answers = list(zip(sources, references, best, strict=True))
        return {**figures, "cut_off": sum(cut_off), "samples": samples, "answers": answers}

    def to_prompts(self, texts: list[str], max_tokens: int, max_len: int) -> list[PromptGroup]:
        if max_tokens > max_len:
            raise UserError(f"max_tokens: {max_tokens} is more than model.max_len {max_len}")
        sources = self.encode_prompts(texts)
        limit = self.data.max_length
        for number, source in enumerate(sources, 1):
            if len(source) + 1 > limit:
                raise UserError(f"prompt {number}: {len(source) + 1} tokens; data.max_length is {limit}")
        places = [place for place, source in enumerate(sources) if source]
        groups = self.groups([[*sources[place], EOS] for place in places], max_tokens)
        return [group._replace(places=[places[i] for i in group.places]) for group in groups]

    def groups(self, sources: Sequence[list[int]], max_tokens: int = 0) -> list[PromptGroup]:
        """Returns the prompts of sources in groups of similar length.

        The longest come first. If a long one came last, it would run on alone after the others have ended. A
        translation may be as long as the longest in training.
        """
        lengths = np.array([len(source) for source in sources])
        order, classes = np.argsort(-lengths, kind="stable"), -(-lengths // LENGTH_STEP) * LENGTH_STEP
        groups = []
        for length in np.unique(classes)[::-1].tolist():
            places = order[classes[order] == length].tolist()
            prompts = source_prompts([sources[i] for i in places], length)
            groups.append(PromptGroup(places, prompts, max_tokens or self.data.max_length))
        return groups

    def to_text(self, text: str, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens)

    def to_batch(self, text: str, answer: str) -> Batch:
        source, target = self.tokenizer.encode_all(map(self.cased, (text, answer)))
        batch = seq2seq_batch([TokenPair([*source, EOS], [*target, EOS])], 1, len(source) + 1, len(target) + 1)
        return jax.device_put({name: batch[name] for name in ("source", "source_mask", "inputs")})

    def digests(self) -> dict[str, str]:
        return self.corpus().digests

    def scored_data(self) -> dict[str, Any]:
        keys = {"task.tokenized": self.config.tokenized, "task.examples": self.config.examples}
        parts = {name: self.tokenized(name).examples for name in ("validation", "test")}
        pairs = {name: json.dumps([each[:2] for each in of_part]) for name, of_part in parts.items()}
        return {**{f"set of {name} pairs": digest(of_part.encode()) for name, of_part in pairs.items()}, **keys}

    def figures(self) -> dict[str, Any]:
        skipped = sum(self.tokenized(part).skipped for part in ("train", "validation", "test"))
        return {
            "training_pairs": len(self.tokenized("train").pairs),
            "vocabulary": self.vocab_size,
            "skipped": self.corpus().skipped + skipped,
            "padding_share": round(self.batches_of("train").padding_share(), 4),
            "steps_per_epoch": self.batches_of("train").per_epoch,
        }


def group_by_source(
    examples: Sequence[Example], pairs: Sequence[TokenPair]
) -> tuple[list[str], list[list[int]], list[list[str]]]:
    """Returns the distinct sources, the tokens of each, and all its translations."""
    tokens: dict[str, list[int]] = {}
    references: dict[str, list[str]] = {}
    for example, pair in zip(examples, pairs, strict=True):
        tokens.setdefault(example.source, pair.source)
        references.setdefault(example.source, []).append(example.target)
    return list(tokens), list(tokens.values()), list(references.values())


def scores(hypotheses: list[str], references: list[list[str]], tokenized: bool) -> dict[str, Any]:
    """Returns the figures of a set of translations, each sentence counted once.

    `bleu` and `chrf` are sacreBLEU's (Post 2018), on the text as a reader sees it, with BLEU's signature;
    `bleu_lower_case` is BLEU of lower-cased words, as the papers on Multi30k count it. If the text is
    tokenized already, both count its words as they are. `exact_match` is the share equal to one of the references.
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


def source_prompts(sources: Sequence[Sequence[int]], length: int) -> Prompts:
    """Returns the prompts of sources padded to `length`. The decoder reads only <bos> before it generates."""
    assert BOS == 0
    source, source_mask = padded(sources, len(sources), length)
    nothing = np.zeros((len(sources), 0), np.int32)
    return {
        "tokens": nothing,
        "lengths": np.zeros(len(sources), np.int32),
        "source": source,
        "source_mask": source_mask,
    }

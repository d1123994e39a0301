"""Translation of sentences, scored by BLEU and chrF (seeds 000 and 003)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.data.batches import Batches, iterate, padded, seq2seq_batch
from fxf.data.corpus import DataConfig, Example, Tokenized, TokenPair, read_corpus, tokenize
from fxf.data.tokenizer import BOS, EOS, TOKENIZER_FILE, tokenizer_of, warn_of_unknown
from fxf.decoding.steps import Prompts
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.task import Answer, Predict, Scorer, Setting, Task, to_answers

SAMPLES = 10
LENGTH_STEP = 16


@dataclasses.dataclass(frozen=True)
class TranslationConfig:
    """The `task` section for `translation`."""

    name: Literal["translation"] = key("translation", "the task to learn")
    tokenized: bool = key(False, "the text is tokenized: BLEU counts its words as they stand")


def translation(config: TranslationConfig, setting: Setting) -> Task:
    """Builds the task.

    The tokenizer is the one in the run folder, or else learned from the training pairs, of both languages together.

    Raises:
      UserError: the corpus or the tokenizer cannot be read or made.
    """
    data: DataConfig = setting.data
    corpus = functools.cache(lambda: read_corpus(data))
    tokenizer = tokenizer_of(
        setting.folder,
        data.tokenizer,
        data.vocab_size,
        lambda: (text for example in corpus().train for text in (example.source, example.target)),
    )

    @functools.cache
    def tokenized(name: str) -> Tokenized:
        return tokenize(data, tokenizer, getattr(corpus(), name))

    @functools.cache
    def batches(name: str) -> Batches:
        return Batches(
            tokenized(name).pairs,
            batch_size=setting.train.batch_size,
            batch_tokens=data.batch_tokens,
            shapes=data.shapes,
            seed=setting.seed,
            multiple=setting.train.microbatches,
            # Every process evaluates all.
            process=(jax.process_index(), jax.process_count()) if name == "train" else (0, 1),
        )

    def translate(predict: Predict, sources: Sequence[list[int]], max_tokens: int = 0) -> list[list[Answer]]:
        """Returns the translations of each source, in order.

        Those of similar length go together, the longest first, so that none of the last ones takes long.
        """
        answers: list[list[Answer]] = [[]] * len(sources)
        lengths = np.array([len(source) for source in sources])
        order, classes = np.argsort(-lengths, kind="stable"), -(-lengths // LENGTH_STEP) * LENGTH_STEP
        for length in np.unique(classes).tolist():
            chosen = order[classes[order] == length].tolist()
            longest = min(data.max_length, 2 * length + LENGTH_STEP)
            tokens, scores = predict(_prompts([sources[i] for i in chosen], length), max_tokens or longest)
            for i, answer in zip(chosen, to_answers(tokens, scores, EOS, tokenizer.decode), strict=True):
                answers[i] = answer
        return answers

    def evaluate(scorer: Scorer, name: str) -> dict[str, Any]:
        sources, tokens, references = group_by_source(*tokenized(name)[:2])
        best = [answers[0][0] for answers in translate(scorer.predict, tokens)]
        chosen = range(0, len(sources), max(len(sources) // SAMPLES, 1))[:SAMPLES]
        samples = [(sources[i], references[i][0], best[i]) for i in chosen]
        return {**scores(best, references, config.tokenized), "samples": samples}

    def validate(scorer: Scorer) -> dict[str, Any]:
        sums = np.sum([scorer.loss(batch) for batch in batches("validation").epoch()], axis=0)
        figures = evaluate(scorer, "validation")
        del figures["samples"], figures["bleu_signature"]
        return {**figures, "validation_loss": float(sums[0] / sums[1])}

    def respond(scorer: Scorer, texts: list[str], max_tokens: int, max_len: int) -> list[list[Answer]]:
        if max_tokens > max_len:
            raise UserError(f"max_tokens: {max_tokens} is more than model.max_len {max_len}")
        texts = [text.lower() if data.lower_case else text for text in texts]
        warn_of_unknown(tokenizer, [[text] for text in texts])
        sources = tokenizer.encode_all(texts)
        for number, source in enumerate(sources, 1):
            if len(source) + 1 > data.max_length:
                raise UserError(f"prompt {number}: {len(source) + 1} tokens; data.max_length is {data.max_length}")
        texts_there = [number for number, source in enumerate(sources) if source]
        answers: list[list[Answer]] = [[("", 0.0)]] * len(sources)  # of an empty line
        found = translate(scorer.predict, [[*sources[number], EOS] for number in texts_there], max_tokens)
        for number, answer in zip(texts_there, found, strict=True):
            answers[number] = answer
        return answers

    def read(prompt: str, answer: str) -> Batch:
        texts = (text.lower() if data.lower_case else text for text in (prompt, answer))
        source, target = tokenizer.encode_all(texts)
        batch = seq2seq_batch([TokenPair([*source, EOS], [*target, EOS])], 1, len(source) + 1, len(target) + 1)
        return {name: jnp.asarray(batch[name]) for name in ("source", "source_mask", "inputs")}

    def figures() -> dict[str, Any]:
        return {
            "training_pairs": len(tokenized("train").pairs),
            "vocabulary": tokenizer.vocab_size,
            "skipped": corpus().skipped + sum(tokenized(name).skipped for name in ("train", "validation", "test")),
            "padding_share": round(batches("train").padding_share(), 4),
            "steps_per_epoch": batches("train").per_epoch,
        }

    return Task(
        vocab_size=tokenizer.vocab_size,
        longest=data.max_length,
        end_token=EOS,
        metrics=("bleu", "bleu_lower_case", "chrf", "exact_match"),
        validate=validate,
        test=lambda scorer: evaluate(scorer, "test"),
        respond=respond,
        read=read,
        name=tokenizer.name,
        batches=lambda: iterate(batches("train")),
        largest_batch=lambda: batches("train").largest(),
        figures=figures,
        digests=lambda: corpus().digests,
        files={TOKENIZER_FILE: tokenizer.to_json()},
    )


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
    `bleu_lower_case` is BLEU of lower-cased words, as the papers on Multi30k count it. Of text that is tokenized
    already, both BLEUs count the words that are there. `exact_match` is the share equal to one of the references.
    """
    from sacrebleu.metrics import BLEU, CHRF  # imported here because it takes a fifth of a second

    most = max(map(len, references))
    # sacreBLEU wants the first reference of every sentence, then the second, and so on, with None where there is none.
    columns: Any = [[texts[i] if i < len(texts) else None for texts in references] for i in range(most)]
    tokenize = "none" if tokenized else "13a"
    # `force` says that the tokenized text is meant; it changes no score.
    bleu, bleu_lower_case = (BLEU(tokenize=tokenize, lowercase=lower, force=tokenized) for lower in (False, True))
    return {
        "bleu": bleu.corpus_score(hypotheses, columns).score,
        "chrf": CHRF().corpus_score(hypotheses, columns).score,
        "bleu_lower_case": bleu_lower_case.corpus_score(hypotheses, columns).score,
        "exact_match": float(np.mean([h in texts for h, texts in zip(hypotheses, references, strict=True)])),
        "examples": len(hypotheses),
        "bleu_signature": str(bleu.get_signature()),
    }


def _prompts(sources: Sequence[Sequence[int]], length: int) -> Prompts:
    """Returns what the decoder starts from: nothing but the <bos> in front, and the sources."""
    assert BOS == 0
    source, source_mask = padded(sources, len(sources), length)
    nothing = np.zeros((len(sources), 0), np.int32)
    return {
        "tokens": nothing,
        "lengths": np.zeros(len(sources), np.int32),
        "source": source,
        "source_mask": source_mask,
    }

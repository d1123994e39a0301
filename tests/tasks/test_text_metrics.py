import numpy as np
import sacrebleu

from fxf.data.tokenizer import train_tokenizer
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import Evaluator, RunInfo
from fxf.tasks.text_metrics import METRICS, reference_columns
from fxf.tasks.text_task import warn_of_unknown
from fxf.training.step import TrainConfig
from helpers import in_groups

RUN = RunInfo(TrainConfig(batch_size=3))


def share_of_long(answers, references):
    """The share of the answers with as many words as a right one."""
    words = [{len(text.split()) for text in texts} for texts in references]
    return np.mean([len(answer.split()) in n for answer, n in zip(answers, words, strict=True)])


def always_two(prompts, max_tokens):
    """Continues each prompt by the token 2 and the end."""
    return np.tile(np.eye(1, max_tokens, dtype=int) * 2, (len(prompts["tokens"]), 1))[:, None], None


def test_a_metric_from_outside_joins_the_figures_of_a_task_and_can_choose_a_checkpoint(monkeypatch):
    monkeypatch.setitem(METRICS, "as_long", share_of_long)
    task = Reversal(ReversalConfig(n_tokens=3, max_length=2, metrics="as_long, ter"), RUN)
    model = Evaluator(in_groups(always_two), None, None)
    for figures in (task.validate(model), task.test(model)):  # of 3 sequences of one token and 9 of two
        assert (figures["as_long"], figures["exact_match"]) == (3 / 12, 1 / 12)
        assert figures["ter"] > 0
    assert task.metrics == ("exact_match", "as_long", "ter", "-as_long", "-ter")
    plain = Reversal(ReversalConfig(n_tokens=3, max_length=2), RUN).test(model)
    assert set(plain) == {"exact_match", "examples", "cut_off", "samples"}


def test_ter_is_sacrebleus_with_any_number_of_references():
    answers = ["the cat sat there", "a dog"]
    references = [["the cat sat", "there the cat sat"], ["a dog barks"]]
    assert reference_columns(references) == [["the cat sat", "a dog barks"], ["there the cat sat", None]]
    alone = METRICS["ter"](answers, [texts[:1] for texts in references])
    assert alone == sacrebleu.corpus_ter(answers, [["the cat sat", "a dog barks"]]).score
    assert METRICS["ter"](answers, references) < 100


def test_words_that_the_vocabulary_lacks_are_named_once_and_not_all_of_many(caplog):
    tokenizer = train_tokenizer("word", 100, ["a"])
    warn_of_unknown(tokenizer, ["a", "a b", *["c " * 3, "a"] * 8])
    warn_of_unknown(train_tokenizer("bpe", 300, ["a"]), ["anything ß"])
    assert caplog.messages == ["warning: the vocabulary lacks 'b', 'c'; read as <unk>"]
    caplog.clear()
    warn_of_unknown(tokenizer, [" ".join(f"{i:050}" for i in range(99))])
    (message,) = caplog.messages
    assert " … " in message and len(message) < 1100

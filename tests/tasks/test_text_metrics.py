import numpy as np
import sacrebleu

from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import Evaluator, RunInfo
from fxf.tasks.text_metrics import METRICS, reference_columns
from fxf.training.step import TrainConfig
from helpers import in_groups

RUN = RunInfo(TrainConfig(batch_size=3))


def share_of_long(answers, references):
    """The share of the answers with as many words as a right one."""
    words = [{len(text.split()) for text in texts} for texts in references]
    return np.mean([len(answer.split()) in n for answer, n in zip(answers, words, strict=True)])


def always(token):
    """Returns an evaluator that continues each prompt by one token and the end."""

    def decode(prompts, max_tokens):
        tokens = np.zeros((len(prompts["tokens"]), 1, max_tokens), int)
        tokens[:, :, 0] = token
        return tokens, None

    return Evaluator(in_groups(decode), None, None)


def test_a_metric_from_outside_joins_the_figures_of_a_task_and_can_choose_a_checkpoint(monkeypatch):
    monkeypatch.setitem(METRICS, "as_long", share_of_long)
    task = Reversal(ReversalConfig(n_tokens=3, max_length=2, metrics="as_long, ter"), RUN)
    for figures in (task.validate(always(2)), task.test(always(2))):
        # 3 sequences of one token and 9 of two
        assert figures["as_long"] == 3 / 12
        assert figures["exact_match"] == 1 / 12
        assert figures["ter"] > 0
    assert task.metrics == ("exact_match", "as_long", "ter", "-as_long", "-ter")
    plain = Reversal(ReversalConfig(n_tokens=3, max_length=2), RUN).test(always(2))
    assert set(plain) == {"exact_match", "examples", "cut_off", "samples"}


def test_ter_is_sacrebleus_with_any_number_of_references():
    answers = ["the cat sat there", "a dog"]
    references = [["the cat sat", "there the cat sat"], ["a dog barks"]]
    assert reference_columns(references) == [["the cat sat", "a dog barks"], ["there the cat sat", None]]
    assert (
        METRICS["ter"](answers, [texts[:1] for texts in references])
        == sacrebleu.corpus_ter(answers, [["the cat sat", "a dog barks"]]).score
    )
    assert METRICS["ter"](answers, references) < 100

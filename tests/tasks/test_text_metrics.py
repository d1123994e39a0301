"""Prompts and answers of tasks on texts, and metrics of the answers."""

from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

from fxf.base.errors import UserError
from fxf.data.tokenizer import train_tokenizer
from fxf.tasks.prompts import PromptGroup, in_order_of_texts, one_group, padded_prompts
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import NO_END, Evaluator, RunInfo
from fxf.tasks.text_metrics import METRICS, reference_columns
from fxf.tasks.text_task import TokenizedTask, warn_of_unknown
from fxf.training.step import TrainConfig
from helpers import in_groups

RUN = RunInfo(TrainConfig(batch_size=3))


def share_of_long(answers, references):
    """The share of answers with as many words as a right one."""
    words = [{len(text.split()) for text in texts} for texts in references]
    return np.mean([len(answer.split()) in n for answer, n in zip(answers, words, strict=True)])


def always_two(prompts, max_tokens):
    """Continues each prompt by the token 2 and the end."""
    return np.tile(np.eye(1, max_tokens, dtype=int) * 2, (len(prompts["tokens"]), 1))[:, None], None


def test_a_users_metric_joins_those_of_a_task_and_can_choose_a_checkpoint(monkeypatch):
    monkeypatch.setitem(METRICS, "as_long", share_of_long)
    task = Reversal(ReversalConfig(n_tokens=3, max_length=2, metrics="as_long, ter"), RUN)
    model = Evaluator(in_groups(always_two), None, None)
    for figures in (task.validate(model), task.test(model)):  # 3 sequences of one token and 9 of two
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
    assert METRICS["ter"](answers, references) < alone  # a right answer of more words


def test_words_that_the_vocabulary_lacks_are_named_once_and_not_all_of_many(caplog):
    tokenizer = train_tokenizer("word", 100, ["a"])
    task = SimpleNamespace(cased=str, tokenizer=tokenizer)
    TokenizedTask.encode_prompts(task, ["a", "a b", *["c " * 3, "a"] * 8])
    warn_of_unknown(train_tokenizer("bpe", 300, ["a"]), ["anything ß"])
    assert caplog.messages == ["warning: the vocabulary lacks 'b', 'c'; read as <unk>"]
    caplog.clear()
    warn_of_unknown(tokenizer, [" ".join(f"{i:050}" for i in range(99))])
    (message,) = caplog.messages
    assert " … " in message and len(message) < 1100


def hypotheses(tokens, scores, end_token, limits=None):
    """Returns the hypotheses for the prompts of one group."""
    tokens, limited = np.array(tokens), {} if limits is None else {"limits": np.array(limits)}
    group = PromptGroup(range(len(tokens)), limited, tokens.shape[2])
    return in_order_of_texts([group], [(tokens, scores)], end_token, len(tokens))


def test_hypotheses_end_before_their_end_token_or_are_cut_off_and_omit_missing_ones():
    tokens = [[[3, 1, 2, 0], [1, 2, 3, 4]], [[0, 0, 0, 0], [5, 5, 5, 5]]]
    assert hypotheses(tokens, np.array([[-0.5, -1.5], [-0.25, -np.inf]]), 0) == [
        [([3, 1, 2], -0.5, False), ([1, 2, 3, 4], -1.5, True)],
        [([], -0.25, False)],
    ]
    assert hypotheses(tokens, None, 0, [2, 3]) == [
        [([3, 1], None, True), ([1, 2], None, True)],
        [([], None, False), ([5, 5, 5], None, True)],
    ]
    assert hypotheses([[[3.5, -1.0, 0.0]]], None, NO_END, [2]) == [[([3.5, -1.0], None, False)]]  # no tokens at all


def test_groups_are_decoded_separately_and_hypotheses_keep_the_order():
    groups = [PromptGroup([3, 0], padded_prompts([[9, 7], [9, 5]]), 2), PromptGroup([1], padded_prompts([[9]]), 3)]

    def decode(prompts, max_tokens):
        return prompts["lengths"][:, None, None] + np.arange(max_tokens), None

    found = in_order_of_texts(groups, in_groups(decode)(groups), 3, 4)
    assert found == [[([1, 2], None, True)], [([0, 1, 2], None, True)], [([], 0.0, False)], [([1, 2], None, True)]]


def test_each_prompt_of_a_group_gets_as_many_new_tokens_as_fit_after_it():
    most, five = (one_group(padded_prompts([[0, 7, 5], [0]]), n, 7)[0] for n in (0, 5))
    assert (list(most.places), most.max_tokens, most.prompts["limits"].tolist()) == ([0, 1], 7, [5, 7])
    assert five.max_tokens == 5 and "limits" not in five.prompts
    no_room = "tokens and {} to generate; model.max_len is 7"
    refused = ([0, 7, 5], 6, "2 " + no_room.format(6)), ([0] * 8, 0, "7 " + no_room.format(1))
    for row, n, why in (*refused, ([], 6, "expected at least one token")):
        with pytest.raises(UserError, match=f"^prompt 2: {why}$"):
            one_group(padded_prompts([[0], row]), n, 7)

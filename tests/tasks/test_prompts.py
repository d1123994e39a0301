import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.tasks.prompts import PromptGroup, in_order_of_texts, one_group, padded_prompts
from fxf.tasks.task import NO_END
from helpers import in_groups


def hypotheses(tokens, scores, end_token, limits=None):
    """Returns what is found for the prompts of one group."""
    tokens, limited = np.array(tokens), {} if limits is None else {"limits": np.array(limits)}
    group = PromptGroup(range(len(tokens)), limited, tokens.shape[2])
    return in_order_of_texts([group], [(tokens, scores)], end_token, len(tokens))


def test_hypotheses_end_before_their_end_token_or_are_cut_off_and_leave_out_what_a_beam_did_not_find():
    tokens = [[[3, 1, 2, 0], [1, 2, 3, 4]], [[0, 0, 0, 0], [5, 5, 5, 5]]]
    assert hypotheses(tokens, np.array([[-0.5, -1.5], [-0.25, -np.inf]]), 0) == [
        [([3, 1, 2], -0.5, False), ([1, 2, 3, 4], -1.5, True)],
        [([], -0.25, False)],
    ]
    assert hypotheses(tokens, None, 0, [2, 3]) == [
        [([3, 1], None, True), ([1, 2], None, True)],
        [([], None, False), ([5, 5, 5], None, True)],
    ]
    assert hypotheses([[[3, 1, 0]]], None, NO_END, [2]) == [[([3, 1], None, False)]]


def test_groups_are_decoded_apart_and_their_hypotheses_put_in_order():
    groups = [PromptGroup([3, 0], padded_prompts([[9, 7], [9, 5]]), 2), PromptGroup([1], padded_prompts([[9]]), 3)]

    def decode(prompts, max_tokens):
        new = prompts["lengths"][:, None] + np.arange(max_tokens)[None]
        return new[:, None], None

    found = in_order_of_texts(groups, in_groups(decode)(groups), 3, 4)
    assert found == [[([1, 2], None, True)], [([0, 1, 2], None, True)], [([], 0.0, False)], [([1, 2], None, True)]]


def test_each_prompt_of_a_group_has_as_many_new_tokens_as_fit_behind_it():
    (group,) = one_group(padded_prompts([[0, 7, 5], [0]]), 0, 7)
    assert (list(group.places), group.max_tokens, group.prompts["limits"].tolist()) == ([0, 1], 7, [5, 7])
    assert "limits" not in one_group(padded_prompts([[0, 7, 5], [0]]), 5, 7)[0].prompts
    assert one_group(padded_prompts([[0, 7, 5]]), 5, 7)[0].max_tokens == 5
    with pytest.raises(UserError, match=r"^prompt 2: 2 tokens and 6 to generate; model.max_len is 7$"):
        one_group(padded_prompts([[0], [0, 7, 5]]), 6, 7)

import numpy as np
import pytest

from fxf.data.rows import Rows
from fxf.data.tokenizer import Special

SPECIAL = Special()
FIRST, PAD, EOS = SPECIAL.bos, SPECIAL.pad, SPECIAL.eos
LENGTHS = (3, 1, 12, 5, 2, 7, 4, 1, 9)
TEXTS = [list(range(100 * i + 5, 100 * i + 5 + n)) for i, n in enumerate(LENGTHS)]


def rows(length=5, apart=True, first=FIRST):
    tokens_N = np.array([token for text in TEXTS for token in (*text, EOS)], np.uint16)
    return Rows(tokens_N, SPECIAL, first, length, apart)


def pairs(text):
    """Returns the inputs and targets of a document's tokens."""
    return list(zip([FIRST, *text], [*text, EOS], strict=True))


@pytest.mark.parametrize("length", [2, 5, 11, 99])
def test_every_token_is_the_target_of_one_place_behind_the_token_before_it(length):
    found = []
    for batch in rows(length).in_order(3):
        assert batch["inputs"].shape == (3, length)
        counts = batch["weights"] > 0
        found += zip(batch["inputs"][counts].tolist(), batch["targets"][counts].tolist(), strict=True)
        assert (batch["targets"][~counts] == PAD).all()
    assert found == [pair for text in TEXTS for pair in pairs(text)]


def test_the_documents_of_a_row_are_told_apart_and_have_positions_of_their_own():
    for batch in rows(7).in_order(4):
        for row in range(4):
            for document in set(batch["documents"][row].tolist()):
                here = batch["documents"][row] == document
                texts = {token // 100 for token in batch["targets"][row][here].tolist() if token > EOS}
                assert len(texts) <= 1
                np.testing.assert_array_equal(batch["positions"][row][here], np.arange(here.sum()))
                assert FIRST not in batch["inputs"][row][here][1:]


def test_only_the_last_row_has_padding():
    n_tokens = sum(LENGTHS) + len(LENGTHS)
    (batch,) = rows(5).in_order(-(-n_tokens // 5))
    assert (batch["weights"][:-1] == 1).all() and batch["weights"].sum() == n_tokens


def test_windows_that_are_not_kept_apart_differ_in_nothing_else():
    for apart, joined in zip(rows().in_order(3), rows(apart=False).in_order(3), strict=True):
        assert {**apart, **joined}.keys() - joined.keys() == {"documents", "positions"}
        for name, x in joined.items():
            np.testing.assert_array_equal(x, apart[name])


def test_without_bos_a_document_begins_with_the_end_of_the_one_before():
    (batch,) = rows(99, apart=False, first=EOS).in_order(1)
    np.testing.assert_array_equal(batch["inputs"][0, 1:], np.where(batch["weights"], batch["targets"], EOS)[0, :-1])

import math
from collections import Counter

import grain
import numpy as np
import pytest

from fxf.data.rows import Rows, ShuffledRows
from fxf.data.tokenizer import Special

SPECIAL = Special()
FIRST, PAD, EOS = SPECIAL.bos, SPECIAL.pad, SPECIAL.eos
TEXTS = [list(range(100 * i + 5, 100 * i + 5 + n)) for i, n in enumerate((3, 1, 12, 5, 2, 7, 4, 1, 9))]


def rows(length=5, apart=True, first=FIRST):
    tokens_N = np.array([token for text in TEXTS for token in (*text, EOS)], np.uint16)
    return Rows(tokens_N, SPECIAL, first, length, apart)


@pytest.mark.parametrize("first", [FIRST, EOS])  # with <bos>, or the end of the document before
@pytest.mark.parametrize("length", [2, 5, 11, 99])
def test_every_token_is_the_target_of_one_place_behind_the_token_before_it(length, first):
    found = []
    for batch in rows(length, first=first).in_order(3):
        assert batch["inputs"].shape == (3, length)
        counts = batch["weights"] > 0
        found += zip(batch["inputs"][counts].tolist(), batch["targets"][counts].tolist(), strict=True)
        assert (batch["targets"][~counts] == PAD).all()
        assert (np.diff(batch["weights"].ravel()) <= 0).all(), "padding is not at the end alone"
    assert found == [pair for text in TEXTS for pair in zip([first, *text], [*text, EOS], strict=True)]


def test_the_documents_of_a_row_are_told_apart_and_have_positions_of_their_own():
    for batch, joined in zip(rows(7).in_order(4), rows(7, apart=False).in_order(4), strict=True):
        assert batch.keys() - joined.keys() == {"documents", "positions"}
        for name, x in joined.items():
            np.testing.assert_array_equal(x, batch[name])
        for row in range(4):
            for document in set(batch["documents"][row].tolist()):
                here = batch["documents"][row] == document
                assert len({token // 100 for token in batch["targets"][row][here].tolist() if token > EOS}) <= 1
                np.testing.assert_array_equal(batch["positions"][row][here], np.arange(here.sum()))
                assert FIRST not in batch["inputs"][row][here][1:]


LENGTH, SHARES, SIZES = 3, (0.2, 0.6, 0.2), (97, 331, 97)


def sources_of(sizes):
    """Returns the rows of sources of so many rows; token t of row i of source s is 10^6 s + 3 i + t + 5."""
    tokens = [np.arange(n * LENGTH, dtype=np.uint32) + 10**6 * s + 5 for s, n in enumerate(sizes)]
    return [Rows(tokens_N, SPECIAL, 0, LENGTH, False) for tokens_N in tokens]


def rows_of(batches, steps):
    """Returns the (source, row) of each row of these steps."""
    first = np.concatenate([batches[i]["targets"][:, 0] for i in steps]) - 5
    return [(int(x) // 10**6, int(x) % 10**6 // LENGTH) for x in first]


@pytest.mark.parametrize(("seed", "shares"), [(0, SHARES), (7, (0.02, 0.98)), (7, (1 / 3, 1 / 3, 1 / 3))])
def test_shares_of_a_mixture_hold_to_three_standard_errors(seed, shares):
    sources, n = sources_of((30_011, 50_021, 70_001))[: len(shares)], 64 * 60
    counted = Counter(source for source, _ in rows_of(ShuffledRows(sources, 64, seed, shares_S=shares), range(60)))
    for source, share in enumerate(shares):
        assert abs(counted[source] - n * share) <= 3 * math.sqrt(n * share * (1 - share))


def test_each_source_of_a_mixture_has_each_of_its_rows_once_in_each_of_its_epochs_in_another_order():
    found, other = (
        rows_of(ShuffledRows(sources_of(SIZES), 7, seed, shares_S=SHARES), range(n)) for seed, n in ((3, 220), (4, 20))
    )
    assert found[: len(other)] != other
    orders = set()
    for source, size in enumerate(SIZES):
        rows = [row for of, row in found if of == source]
        epochs = [tuple(rows[start : start + size]) for start in range(0, len(rows) - size + 1, size)]
        assert len(epochs) >= 2 and len({*epochs} - orders) == len(epochs)
        orders |= {*epochs}
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)


def test_a_source_alone_is_read_in_the_order_of_grain():
    order = []
    for epoch in range(2):
        seed = int(np.random.default_rng((4, epoch)).integers(2**32))
        order += [(0, int(row)) for row in grain.MapDataset.range(SIZES[0]).shuffle(seed=seed)]
    assert rows_of(ShuffledRows(sources_of(SIZES)[0], 5, 4), range(24)) == order[:120]

"""Rows of documents, the order of examples by seed, epoch and process, and batches of pairs."""

import math
from collections import Counter

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.data.batches import Batches
from fxf.data.corpus import DataConfig, TokenPair
from fxf.data.rows import Rows, ShuffledRows
from fxf.data.text import draw_windows
from fxf.data.tokenizer import BOS, EOS, Special
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo
from fxf.training.state import run_keys
from fxf.training.step import TrainConfig
from helpers import table

SPECIAL = Special()
FIRST, PAD = SPECIAL.bos, SPECIAL.pad
ALONE = 0, 1  # the only process
TEXTS = [list(range(100 * i + 5, 100 * i + 5 + n)) for i, n in enumerate((3, 1, 12, 5, 2, 7, 4, 1, 9))]


def rows(length=5, apart=True, first=FIRST):
    tokens_N = np.array([token for text in TEXTS for token in (*text, EOS)], np.uint16)
    return Rows(tokens_N, SPECIAL, first, length, apart)


@pytest.mark.parametrize("first", [FIRST, EOS])  # with <bos>, or the previous document's end
@pytest.mark.parametrize("length", [2, 5, 11, 99])
def test_every_token_is_the_target_once_after_the_token_before_it(length, first):
    found = []
    for batch in rows(length, first=first).in_order(3):
        assert batch["inputs"].shape == (3, length)
        counts = batch["weights"] > 0
        found += zip(batch["inputs"][counts].tolist(), batch["targets"][counts].tolist(), strict=True)
        assert (batch["targets"][~counts] == PAD).all()
        assert (np.diff(batch["weights"].ravel()) <= 0).all(), "padding is not at the end alone"
    assert found == [pair for text in TEXTS for pair in zip([first, *text], [*text, EOS], strict=True)]


def test_the_documents_of_a_row_are_numbered_and_have_their_own_positions():
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


LENGTH, SHARES, SIZES = 3, (0.2, 0.6, 0.2), (97, 1009, 97)


def sources_of(sizes):
    """Returns the rows of sources of these sizes; token t of row i of source s is 10^6 s + 3 i + t + 5."""
    tokens = [np.arange(n * LENGTH, dtype=np.uint32) + 10**6 * s + 5 for s, n in enumerate(sizes)]
    return [Rows(tokens_N, SPECIAL, 0, LENGTH, False) for tokens_N in tokens]


def rows_of(batches, steps):
    """Returns (source, row) for each row of these steps."""
    first = np.concatenate([batches[i]["targets"][:, 0] for i in steps]) - 5
    return [(int(x) // 10**6, int(x) % 10**6 // LENGTH) for x in first]


@pytest.mark.parametrize(("seed", "shares"), [(0, SHARES), (7, (0.02, 0.98)), (7, (1 / 3, 1 / 3, 1 / 3))])
def test_the_shares_of_a_mixture_hold_within_three_standard_errors(seed, shares):
    sources, n = sources_of((30_011, 50_021, 70_001))[: len(shares)], 64 * 60
    counted = Counter(source for source, _ in rows_of(ShuffledRows(sources, shares, 64, seed, ALONE), range(60)))
    for source, part in enumerate(shares):
        assert abs(counted[source] - n * part) <= 3 * math.sqrt(n * part * (1 - part))


def test_each_source_of_a_mixture_has_each_of_its_rows_once_in_each_of_its_epochs_in_another_order():
    found, other = (
        rows_of(ShuffledRows(sources_of(SIZES), SHARES, 7, seed, ALONE), range(n)) for seed, n in ((3, 490), (4, 20))
    )
    assert found[: len(other)] != other
    orders = set()
    for source, size in enumerate(SIZES):
        rows = [row for of, row in found if of == source]
        epochs = [tuple(rows[start : start + size]) for start in range(0, len(rows) - size + 1, size)]
        assert len(epochs) >= 2 and len({*epochs} - orders) == len(epochs)
        orders |= {*epochs}
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)


@pytest.mark.parametrize("size", [97, 1009])
def test_a_single_source_has_the_order_of_grain_or_if_small_of_numpy(size):
    order, rows = [], grain.MapDataset.range(size)
    for rng in (np.random.default_rng((4, epoch)) for epoch in range(2)):
        order.extend(rng.permutation(size) if size < 1000 else rows.shuffle(seed=int(rng.integers(2**32))))
    assert rows_of(ShuffledRows(sources_of([size]), [1.0], size, 4, ALONE), range(2)) == [(0, row) for row in order]


def pairs(n=101, seed=0, longest=13):
    """Pairs of random lengths; the first token of each source is unique."""
    lengths = np.random.default_rng(seed).integers(1, longest + 1, (n, 2))
    lengths[:, 0] = np.where(lengths[:, 1] > 9, 1, lengths[:, 0].clip(max=9))  # a long target has a short source
    return [TokenPair([100 + i, *[7] * (s - 1), EOS], [*[8] * t, EOS]) for i, (s, t) in enumerate(lengths.tolist())]


def batches_of(pairs, seed=0, *, batch_size=16, batch_tokens=60, shapes=4, multiple=1, process=ALONE):
    run = RunInfo(TrainConfig(batch_size=batch_size, microbatches=multiple), seed=seed)
    return Batches(pairs, DataConfig(batch_tokens=batch_tokens, shapes=shapes), run, SPECIAL, process)


def of_pairs(seed, process=ALONE):
    return batches_of(pairs(61, 7), seed, batch_size=9, batch_tokens=70, shapes=3, process=process)


def of_documents(seed, process=ALONE):
    return ShuffledRows(sources_of([61]), [1.0], 7, seed, process)


def of_mixture(seed, process=ALONE):
    return ShuffledRows(sources_of([61, 61, 61]), (0.2, 0.7, 0.1), 7, seed, process)


RUN = RunInfo(TrainConfig(batch_size=7))
TOKENS = np.random.default_rng(1).integers(5, 23, 997).astype(np.uint8)
DRAWN = {
    "windows": lambda key: draw_windows(key, TOKENS, (7, 11)),
    "reversal": lambda key: Reversal(ReversalConfig(), RUN).batch(key, 0)["inputs"],
}


@pytest.mark.parametrize("kind", DRAWN)
def test_no_two_seeds_or_steps_share_a_batch_that_a_device_draws(kind):
    def batch(seed, step):
        return DRAWN[kind](jax.random.fold_in(run_keys(seed).data, step))

    batches = jax.jit(jax.vmap(batch))(*np.divmod(np.arange(50), 5))
    assert len({tuple(key) for key in jax.random.key_data(jnp.stack(run_keys(3))).tolist()}) == 3
    assert len(np.unique(np.asarray(batches).reshape(50, -1), axis=0)) == 50


@pytest.mark.parametrize("make", [of_pairs, of_documents, of_mixture])
@pytest.mark.parametrize("count", [2, 4])
def test_processes_together_read_the_rows_that_one_process_reads_from_any_step(make, count):
    alone = make(3)
    for i, whole in [(i, alone[i]) for i in (0, 1, 5, 600)][::-1]:  # 600: after the first block of a mixture
        shares = [make(3, process=(index, count))[i] for index in range(count)]
        for array, value in whole.items():
            joined = np.concatenate([each[array] for each in shares])
            np.testing.assert_array_equal(joined[: len(value)], value)
        assert not np.concatenate([each["weights"] for each in shares])[len(whole["weights"]) :].any()
        if make is of_pairs:  # with documents, the devices divide the batch size
            assert len({each["weights"].shape for each in shares}) == 1


def epoch_of(batches, epoch=0):
    return [batches[i] for i in range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)]


def sentences(batch):
    """Returns the numbers of the pairs in a batch, in order."""
    return (batch["source"][batch["weights"].sum(1) > 0, 0] - 100).tolist()


def filled(tokens, length, value=PAD):
    return [*tokens, *[value] * (length - len(tokens))]


@pytest.mark.parametrize(("keys", "_"), table("batches of pairs"))
def test_each_epoch_has_each_pair_once_after_bos_within_the_budgets(keys, _):
    n = keys.pop("n", 101)
    batches, everything, multiple = batches_of(pairs(n), **keys), pairs(n), keys.get("multiple", 1)
    for epoch in ([*batches.epoch()], epoch_of(batches), epoch_of(batches, 3)):
        assert sorted(i for batch in epoch for i in sentences(batch)) == list(range(n))
        assert len({(x["source"].shape, x["targets"].shape) for x in epoch}) <= keys.get("shapes", 4)
        for batch in epoch:
            rows, s, t = *batch["source"].shape, batch["targets"].shape[1]
            assert rows % multiple == 0 and rows <= max(keys.get("batch_size", 16), multiple)
            assert rows == multiple or rows * max(s, t) <= keys.get("batch_tokens", 60)
            assert batch["source_mask"][len(sentences(batch)) :].all()  # rows without a pair attend to their padding
            for row, i in enumerate(sentences(batch)):
                source, target = everything[i]
                assert batch["source"][row].tolist() == filled(source, s)
                assert batch["source_mask"][row].tolist() == filled([True] * len(source), s, False)
                assert batch["targets"][row].tolist() == filled(target, t)
                assert batch["inputs"][row].tolist() == filled([BOS, *target], t)[:t]
                assert str(batch["weights"][row].tolist()) == str(filled([1.0] * len(target), t, 0.0))
    *full, last = batches.epoch()  # only the longest batch has rows without a pair
    assert all(len(sentences(batch)) == len(batch["weights"]) for batch in full)
    assert last["source"].shape[1] == max(len(pair.source) for pair in everything)
    if sum(batch["source"].shape == last["source"].shape for batch in [*full, last]) == 1:
        assert len(last["weights"]) - len(sentences(last)) < multiple, "more rows than pairs that are left"
    shapes = [{name: value.shape for name, value in each.items()} for each in batches.shapes()]
    assert all({name: value.shape for name, value in batch.items()} in shapes for batch in [*full, last])
    assert sum(map(np.prod, shapes[0].values())) == max(sum(x.size for x in batch.values()) for batch in [*full, last])


def test_the_share_of_padding_is_that_of_the_batches():
    batches = batches_of(pairs(), batch_size=1)
    tokens = sum(batch["source_mask"].sum() + batch["weights"].sum() for batch in epoch_of(batches))
    n_positions = sum(batch["source"].size + batch["targets"].size for batch in epoch_of(batches))
    assert batches.padding_share() == pytest.approx(1 - tokens / n_positions)


def test_bucket_bounds_minimize_padding():
    """Compares with all ways to split the lengths in three."""
    longer = np.array([max(len(p.source), len(p.target)) for p in pairs()])

    def positions(bounds):
        return sum(min(b for b in bounds if b >= n) for n in longer)

    largest = int(longer.max())
    best = min(positions((a, b, largest)) for a in range(1, largest) for b in range(a, largest))
    assert positions([int(longer[bucket.examples].max()) for bucket in batches_of(pairs(), shapes=3).buckets]) == best


def test_epochs_and_seeds_group_sentences_differently_and_do_not_sort_by_length():
    company = [
        frozenset(frozenset(sentences(batch)) for batch in epoch_of(batches_of(pairs(), seed), epoch))
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    lengths = [batch["source"].shape[1] for batch in epoch_of(batches_of(pairs()))]
    assert len(set(company)) == 4 and lengths != sorted(lengths)

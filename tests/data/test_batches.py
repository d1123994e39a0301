import numpy as np
import pytest

from fxf.data.batches import Batches, seq2seq_batch
from fxf.data.corpus import TokenPair
from fxf.data.tokenizer import BOS, EOS, PAD, Special
from helpers import table


def pairs(n=101, seed=0, longest=13):
    """Pairs of random lengths; the first token of each source is a number of its own."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, (n, 2))
    return [TokenPair([100 + i, *[7] * (s - 1), EOS], [*[8] * t, EOS]) for i, (s, t) in enumerate(lengths.tolist())]


def make(n=101, *, batch_size=16, batch_tokens=60, shapes=4, seed=0, **more):
    return Batches(pairs(n), batch_size=batch_size, batch_tokens=batch_tokens, shapes=shapes, seed=seed, **more)


def epoch_of(batches, epoch=0):
    return [batches[i] for i in range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)]


def sentences(batch):
    """The numbers of the pairs in a batch, in order."""
    return (batch["source"][batch["weights"].sum(1) > 0, 0] - 100).tolist()


def filled(tokens, length, value=PAD):
    return [*tokens, *[value] * (length - len(tokens))]


@pytest.mark.parametrize(("keys", "_"), table("batches of pairs"))
def test_each_epoch_has_each_pair_once_behind_bos_within_the_budgets(keys, _):
    n = keys.pop("n", 101)
    batches, everything, multiple = make(n, **keys), pairs(n), keys.get("multiple", 1)
    for epoch in ([*batches.epoch()], epoch_of(batches), epoch_of(batches, 3)):
        assert sorted(i for batch in epoch for i in sentences(batch)) == list(range(n))
        assert len({(x["source"].shape, x["targets"].shape) for x in epoch}) <= keys.get("shapes", 4)
        for batch in epoch:
            rows, s, t = *batch["source"].shape, batch["targets"].shape[1]
            assert rows % multiple == 0 and rows <= max(keys.get("batch_size", 16), multiple)
            assert rows == multiple or rows * max(s, t) <= keys.get("batch_tokens", 60)
            for row, i in enumerate(sentences(batch)):
                source, target = everything[i]
                assert batch["source"][row].tolist() == filled(source, s)
                assert batch["source_mask"][row].tolist() == filled([True] * len(source), s, False)
                assert batch["targets"][row].tolist() == filled(target, t)
                assert batch["inputs"][row].tolist() == filled([BOS, *target], t)[:t]
                assert batch["weights"][row].tolist() == filled([1] * len(target), t, 0)
    *full, last = batches.epoch()  # the longest batch alone has rows without a pair
    assert all(len(sentences(batch)) == len(batch["weights"]) for batch in full)
    assert last["source"].shape[1] == max(len(pair.source) for pair in everything)
    if sum(batch["source"].shape == last["source"].shape for batch in [*full, last]) == 1:
        assert len(last["weights"]) - len(sentences(last)) < multiple, "more rows than pairs that are left"
    largest = {name: value.shape for name, value in batches.largest().items()}
    assert largest in [{name: value.shape for name, value in batch.items()} for batch in [*full, last]]
    assert sum(map(np.prod, largest.values())) == max(sum(x.size for x in batch.values()) for batch in [*full, last])


def test_rows_beyond_the_pairs_count_nothing_and_can_be_attended_to():
    batch = seq2seq_batch(pairs(2), (5, 20, 20), Special())
    assert batch["weights"][2:].sum() == 0 and batch["source_mask"][2:].all()


def test_more_shapes_leave_less_padding_and_the_share_is_what_the_batches_have():
    shares = []
    for shapes in (1, 3, 9):
        batches = make(shapes=shapes, batch_size=1)
        arrays = epoch_of(batches)
        tokens = sum(batch["source_mask"].sum() + batch["weights"].sum() for batch in arrays)
        shares.append(1 - tokens / sum(batch["source"].size + batch["targets"].size for batch in arrays))
        assert batches.padding_share() == pytest.approx(shares[-1])
    assert shares[0] > shares[1] > shares[2]


def test_pairs_left_over_from_shorter_ones_fill_batches_of_longer_ones():
    lengths = [1] * 5 + [9] * 3
    batches = Batches([TokenPair([7] * n, [8] * n) for n in lengths], batch_size=4, batch_tokens=99, shapes=2, seed=0)
    assert [batch["source"].shape for batch in batches.epoch()] == [(4, 1), (4, 9)]


def test_bounds_of_the_buckets_leave_the_least_padding():
    """Against all ways to cut the lengths in three."""
    longer = np.array([max(len(p.source), len(p.target)) for p in pairs()])

    def positions(bounds):
        return sum(min(b for b in bounds if b >= n) for n in longer)

    largest = int(longer.max())
    best = min(positions((a, b, largest)) for a in range(1, largest) for b in range(a, largest))
    assert positions([int(longer[bucket.examples].max()) for bucket in make(shapes=3).buckets]) == best


def test_epochs_and_seeds_differ_in_the_company_of_a_sentence_and_do_not_go_from_short_to_long():
    company = [
        frozenset(frozenset(sentences(batch)) for batch in epoch_of(make(seed=seed), epoch))
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    lengths = [batch["source"].shape[1] for batch in epoch_of(make())]
    assert len(set(company)) == 4 and lengths != sorted(lengths)

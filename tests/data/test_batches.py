import numpy as np
import pytest

from fxf.data.batches import Batches, seq2seq_batch
from fxf.data.corpus import TokenPair
from fxf.data.tokenizer import BOS, EOS, PAD, Special


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
    rows = batch["weights"].sum(1) > 0
    return (batch["source"][rows, 0] - 100).tolist()


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_has_every_pair_once(epoch):
    seen = [i for batch in epoch_of(make(), epoch) for i in sentences(batch)]
    assert sorted(seen) == list(range(101))
    assert sorted(i for batch in make().epoch() for i in sentences(batch)) == list(range(101))


def test_a_batch_holds_its_pairs_with_the_targets_shifted_behind_bos():
    everything = pairs()
    for batch in epoch_of(make()):
        for row, i in enumerate(sentences(batch)):
            source, target = everything[i]
            length = batch["source"].shape[1]
            assert batch["source"][row].tolist() == source + [PAD] * (length - len(source))
            assert batch["source_mask"][row].tolist() == [True] * len(source) + [False] * (length - len(source))
            beyond = batch["targets"].shape[1] - len(target)
            assert batch["targets"][row].tolist() == target + [PAD] * beyond
            assert batch["weights"][row].tolist() == [1.0] * len(target) + [0.0] * beyond
            assert batch["inputs"][row].tolist() == ([BOS, *target, *[PAD] * beyond])[:-1]


def test_rows_beyond_the_pairs_count_nothing_and_can_be_attended_to():
    batch = seq2seq_batch(pairs(2), (5, 20, 20), Special())
    assert batch["weights"][2:].sum() == 0
    assert batch["source_mask"][2:].all()


def test_batches_keep_to_the_budgets():
    long_sources = [pair._replace(target=pair.target[-1:]) for pair in pairs()]
    one_sided = Batches(long_sources, batch_size=9, batch_tokens=60, shapes=4, seed=0)
    for batch in epoch_of(make(batch_size=9, batch_tokens=60)) + epoch_of(one_sided):
        rows, source_length = batch["source"].shape
        assert rows <= 9
        assert rows * max(source_length, batch["targets"].shape[1]) <= 60


def test_there_are_no_more_shapes_than_asked_for():
    for shapes in (1, 2, 5):
        seen = {tuple(sorted((k, v.shape) for k, v in batch.items())) for batch in epoch_of(make(shapes=shapes))}
        assert 1 <= len(seen) <= shapes


@pytest.mark.parametrize("n", [3, 101])
@pytest.mark.parametrize("multiple", [1, 3])
def test_only_the_longest_batch_has_rows_without_a_pair(n, multiple):
    batches = make(n, multiple=multiple)
    *full, last = batches.epoch()
    assert all(len(sentences(batch)) == len(batch["weights"]) for batch in full)
    assert last["source"].shape[1] == max(len(pair.source) for pair in pairs(n))
    assert last["targets"].shape[1] == max(len(pair.target) for pair in pairs(n))
    if n == 3 and multiple == 1:  # each bucket has as many rows as there are pairs left
        assert len(sentences(last)) == len(last["weights"])


def test_more_shapes_leave_less_padding_and_the_share_is_what_the_batches_have():
    shares = []
    for shapes in (1, 3, 9):
        batches = make(shapes=shapes, batch_size=1)
        arrays = epoch_of(batches)
        tokens = sum(batch["source_mask"].sum() + batch["weights"].sum() for batch in arrays)
        positions = sum(batch["source"].size + batch["targets"].size for batch in arrays)
        assert batches.padding_share() == pytest.approx(1 - tokens / positions)
        shares.append(batches.padding_share())
    assert shares[0] > shares[1] > shares[2]


def test_bounds_of_the_buckets_leave_the_least_padding():
    """Against all ways to cut the lengths in three."""
    longer = np.array([max(len(p.source), len(p.target)) for p in pairs()])

    def positions(bounds):
        return sum(min(b for b in bounds if b >= n) for n in longer)

    largest = int(longer.max())
    best = min(positions((a, b, largest)) for a in range(1, largest) for b in range(a, largest))
    buckets = make(shapes=3).buckets
    found = tuple(int(longer[bucket.examples].max()) for bucket in buckets)
    assert positions(found) == best


def test_epochs_differ_in_the_company_of_a_sentence_and_do_not_go_from_short_to_long():
    first, second = ({frozenset(sentences(batch)) for batch in epoch_of(make(), epoch)} for epoch in (0, 1))
    assert first != second
    lengths = [batch["source"].shape[1] for batch in epoch_of(make())]
    assert lengths != sorted(lengths)


def test_rows_divide_by_the_multiple():
    for batch in epoch_of(make(multiple=3)):
        assert batch["source"].shape[0] % 3 == 0
    assert make(multiple=7, batch_tokens=1)[0]["source"].shape[0] == 7


def test_the_largest_shape_is_that_of_a_batch():
    batches = make()
    largest = {name: value.shape for name, value in batches.largest().items()}
    shapes = [{name: value.shape for name, value in batch.items()} for batch in epoch_of(batches)]
    assert largest in shapes
    size = largest["source"][0] * (largest["source"][1] + largest["targets"][1])
    assert size == max(s["source"][0] * (s["source"][1] + s["targets"][1]) for s in shapes)

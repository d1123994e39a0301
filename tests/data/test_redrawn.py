import jax
import numpy as np
import pytest

from fxf.data.batches import Batches, iterate
from fxf.data.corpus import TokenPair
from fxf.data.merges import Texts
from fxf.data.redrawn import RedrawnBatches
from fxf.data.tokenizer import EOS

N, MAX_LENGTH = 211, 26
LENGTHS = np.random.default_rng(3).integers(1, 18, (N, 2))
PLAIN = [TokenPair([100 + i, *[7] * (s - 1), EOS], [*[8] * t, EOS]) for i, (s, t) in enumerate(LENGTHS.tolist())]


def redrawn(longer=1.2):
    """Returns a function of a seed: the pairs with each side up to `longer` times as long, in epochs from 1 on."""

    def drawn(seed, epoch=0, _=0):
        rng = np.random.default_rng((seed, epoch))
        factor_N2 = rng.uniform(1, longer if epoch else 1.2, LENGTHS.shape)
        sources, targets = np.ceil(LENGTHS * factor_N2).astype(int).T.tolist()
        texts = [[100 + i, *[9 + epoch] * (n - 1), EOS] for i, n in enumerate(sources)]
        texts += [[*[9 + epoch] * n, EOS] for n in targets]
        bounds = np.cumsum([0, *map(len, texts)])
        return Texts(np.concatenate([np.array(text, np.int32) for text in texts]), bounds)

    return drawn


def make(longer=1.2, *, shapes=4, seed=0, **more):
    options = {"batch_size": 16, "batch_tokens": 130, "shapes": shapes, "seed": seed, **more}
    return RedrawnBatches(PLAIN, redrawn(longer), max_length=MAX_LENGTH, **options)


def epoch_of(batches, epoch=0):
    return [batches[i] for i in range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)]


def sentences(batch):
    """The numbers of the pairs in a batch, in order."""
    rows = batch["weights"].sum(1) > 0
    return (batch["source"][rows, 0] - 100).tolist()


def sides(batch):
    """The source and the target of each pair in a batch by its number."""
    rows = np.flatnonzero(batch["weights"].sum(1))
    source = [batch["source"][row][batch["source_mask"][row]].tolist() for row in rows]
    target = [batch["targets"][row][batch["weights"][row] > 0].tolist() for row in rows]
    return dict(zip(sentences(batch), zip(source, target, strict=True), strict=True))


@pytest.mark.parametrize("longer", [1.2, 3.0])
@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_has_every_pair_once_and_whole_as_drawn_or_plain(longer, epoch):
    found = {}
    for batch in epoch_of(make(longer), epoch):
        assert not found.keys() & sides(batch).keys()
        found |= sides(batch)
    texts = redrawn(longer)(0, epoch)
    drawn = [(texts.text(i), texts.text(N + i)) for i in range(N)]
    assert sorted(found) == list(range(N))
    n_plain = sum(found[i] != drawn[i] for i in range(N))
    assert all(found[i] in (drawn[i], tuple(PLAIN[i])) for i in range(N))
    assert all(max(map(len, found[i])) <= MAX_LENGTH for i in range(N))
    assert n_plain <= N // 20 if longer == 1.2 else (n_plain > N // 5) == (epoch > 0)


@pytest.mark.parametrize("shapes", [1, 2, 5])
def test_all_epochs_have_the_same_shapes_and_number_of_batches(shapes):
    batches = make(3.0, shapes=shapes)
    seen = [sorted(str(jax.tree.map(np.shape, batch)) for batch in epoch_of(batches, epoch)) for epoch in (0, 2)]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == len(batches.buckets) <= shapes
    assert {name: value.shape for name, value in batches.largest().items()} in [
        jax.tree.map(np.shape, batch) for batch in epoch_of(batches)
    ]


def test_batches_keep_to_the_budgets_and_the_multiple_and_none_is_empty():
    for multiple in (1, 3, 7):
        for batch in epoch_of(make(multiple=multiple), 1):
            rows, length = batch["source"].shape
            assert rows % multiple == 0
            assert rows == multiple or rows * max(length, batch["targets"].shape[1]) <= 130
            assert batch["weights"].sum() > 0


def test_little_more_padding_is_left_than_without_drawing():
    plain = Batches(PLAIN, batch_size=16, batch_tokens=130, shapes=4, seed=0)
    batches = make()
    arrays = epoch_of(batches)
    tokens = sum(batch["source_mask"].sum() + batch["weights"].sum() for batch in arrays)
    empty = sum((batch["weights"].sum(1) == 0).sum() * batch["source"].shape[1] for batch in arrays)
    positions = sum(batch["source"].size + batch["targets"].size for batch in arrays)
    assert batches.padding_share() == pytest.approx(1 - (tokens - empty) / positions)
    assert batches.padding_share() < plain.padding_share() + 0.05


def test_batch_i_is_a_function_of_seed_and_i_whatever_was_read_before():
    wanted, batches = make()[37], make()
    for i in (90, 3, 37, 2 * batches.per_epoch, 37):
        got = batches[i]
        if i == 37:
            jax.tree.map(np.testing.assert_array_equal, got, wanted)


def test_seeds_differ_in_order_and_tokens_but_not_in_shapes_and_steps():
    one, other = make(seed=0), make(seed=1)
    assert [sentences(one[i]) for i in range(5)] != [sentences(other[i]) for i in range(5)]
    assert one.per_epoch == other.per_epoch
    assert one.largest() == other.largest()
    found = [{i: pair for batch in epoch_of(batches) for i, pair in sides(batch).items()} for batches in (one, other)]
    assert sum(found[0][i] != found[1][i] for i in range(N)) > N // 3


def test_an_iterator_goes_on_from_a_position_within_an_epoch():
    n = make().per_epoch + 5
    iterator = iterate(make())
    for _ in range(n):
        next(iterator)
    position, expected = iterator.get_state(), [next(iterator) for _ in range(n)]
    again = iterate(make())
    again.set_state(position)
    jax.tree.map(np.testing.assert_array_equal, [next(again) for _ in range(n)], expected)

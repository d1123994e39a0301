"""Batches of similar length within a token budget, in few shapes, as a Grain data set."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.data.corpus import DataConfig, TokenPair
from fxf.data.order import share, shuffling
from fxf.data.tokenizer import PAD, Special

Arrays = dict[str, np.ndarray]


class Bucket(NamedTuple):
    """Examples of similar length, and the shape of their batches."""

    examples: np.ndarray
    source_length: int
    target_length: int
    rows: int


class Batches:
    """The batches of a run as a random-access source for Grain; batch i is for step i.

    Sentences are sorted into `shapes` buckets by their longer side, with the bounds that leave the least padding. Each
    epoch shuffles every bucket, cuts it into batches, and shuffles these. What does not fill a batch of one bucket goes
    to the next, whose sentences are longer; the very last batch is filled with rows of weight 0. Every sentence occurs
    once an epoch, and batch i is a function of (seed, i) alone, whatever the number of processes.
    """

    def __init__(
        self, pairs: Sequence[TokenPair], data: DataConfig, run: Any, special: Special, process: tuple[int, int]
    ) -> None:
        """Makes the buckets; keeps `pairs` without a copy.

        Args:
          data: `batch_tokens` is the maximum of rows times the longer side's length, padding included, if they are more
            than the microbatches; `shapes` that of buckets.
          run: a `RunInfo`. The rows of a batch are at most `train.batch_size`, and a multiple of `train.microbatches`.
          process: (index, count) of the process that reads its `share` of each batch, filled up with rows of weight 0.
        """
        self._pairs, self._seed, self._process, self._special = pairs, run.seed, process, special
        multiple = run.train.microbatches
        self._lengths_N2 = np.array([(len(pair.source), len(pair.target)) for pair in pairs])
        self.buckets: list[Bucket] = []
        lengths_2, left = np.zeros(2, int), 0  # of the buckets before
        for members in _least_padding(self._lengths_N2.max(1), data.shapes):
            lengths_2 = np.maximum(self._lengths_N2[members].max(0), lengths_2)
            left += len(members)
            rows = min(run.train.batch_size, data.batch_tokens // int(lengths_2.max()), left)
            rows = max(rows // multiple, 1) * multiple
            left %= rows
            self.buckets.append(Bucket(members, int(lengths_2[0]), int(lengths_2[1]), rows))
        self._in_order = self._cut(lambda examples: examples)
        self.per_epoch = len(self._in_order)
        self._shuffled = functools.lru_cache(maxsize=2)(self._shuffle)  # Grain may still read in the epoch before

    def __len__(self) -> int:
        return 2**31 - 1  # more than the steps of any run

    def __getitem__(self, i: int) -> Arrays:
        epoch, index = divmod(int(i), self.per_epoch)
        return self._arrays(*self._shuffled(epoch)[index])

    def epoch(self) -> Iterator[Arrays]:
        """Yields the batches of one epoch in order, for evaluation."""
        return (self._arrays(*batch) for batch in self._in_order)

    def shapes(self) -> list[dict[str, jax.ShapeDtypeStruct]]:
        """Returns the shapes and types of the batches of each bucket, the one with the most positions first."""
        buckets = sorted(self.buckets, key=lambda b: -b.rows * (b.source_length + b.target_length))
        of_batches = [(bucket.rows, bucket.source_length, bucket.target_length) for bucket in buckets]
        return [jax.eval_shape(lambda shape=shape: seq2seq_batch([], shape, self._special)) for shape in of_batches]

    def padding_share(self) -> float:
        """Returns the share of an epoch's positions, source and target together, that hold no token."""
        positions = sum(b.rows * (b.source_length + b.target_length) for b, _ in self._in_order)
        return 1 - int(self._lengths_N2.sum()) / positions

    def _shuffle(self, epoch: int) -> list[tuple[Bucket, np.ndarray]]:
        """Returns the batches of an epoch: their buckets and examples."""
        rng = shuffling(self._seed, epoch)
        batches = self._cut(rng.permutation)
        return [batches[i] for i in rng.permutation(len(batches))]

    def _cut(self, order: Callable[[np.ndarray], np.ndarray]) -> list[tuple[Bucket, np.ndarray]]:
        """Returns the batches of an epoch, from short to long, of examples in the order that `order` gives a bucket."""
        batches, left = [], np.zeros(0, int)
        for bucket in self.buckets:
            examples = np.concatenate([left, order(bucket.examples)])
            end = len(examples) if bucket is self.buckets[-1] else len(examples) // bucket.rows * bucket.rows
            batches += [(bucket, examples[start : start + bucket.rows]) for start in range(0, end, bucket.rows)]
            left = examples[end:]
        return batches

    def _arrays(self, bucket: Bucket, examples: np.ndarray) -> Arrays:
        mine = share(bucket.rows, self._process)
        pairs = [self._pairs[i] for i in examples[mine]]
        return seq2seq_batch(pairs, (mine.stop - mine.start, bucket.source_length, bucket.target_length), self._special)


def seq2seq_batch(pairs: Sequence[TokenPair], shape: tuple[int, int, int], special: Special) -> Arrays:
    """Returns the arrays of a batch, with padding of weight 0 after each sentence and after the last pair.

    The decoder's inputs are <bos> and the targets without their last position.

    Args:
      shape: rows, and lengths of sources and targets.
    """
    rows, source_length, target_length = shape
    source, source_mask = padded([pair.source for pair in pairs], rows, source_length, special.pad)
    targets, counts = padded([pair.target for pair in pairs], rows, target_length, special.pad)
    inputs = np.pad(targets, ((0, 0), (1, 0)), constant_values=special.bos)[:, :-1]
    # A row without a source attends to its padding, because a softmax over nothing is NaN.
    source_mask[len(pairs) :] = True
    weights = counts.astype(np.float32)
    return {"source": source, "source_mask": source_mask, "inputs": inputs, "targets": targets, "weights": weights}


def padded(sequences: Sequence[Sequence[int]], rows: int, length: int, pad: int = PAD) -> tuple[np.ndarray, np.ndarray]:
    """Returns the padded sequences as int32 [rows, length], and a mask that is True where they have tokens."""
    tokens, mask = np.full((rows, length), pad, np.int32), np.zeros((rows, length), bool)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = True
    return tokens, mask


def iterate(batches: Any) -> Any:
    """Returns a Grain iterator over a source of batches, which reads ahead; its `get_state` is its position."""
    import grain  # imported here because it takes half a second

    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
    return iter(grain.MapDataset.source(batches).to_iter_dataset(ahead))


def _least_padding(longer_N: np.ndarray, shapes: int) -> list[np.ndarray]:
    """Returns the indices of at most `shapes` groups of examples, split by their longer side for the least padding."""
    lengths, counts = np.unique(longer_N, return_counts=True)
    n, before = len(lengths), np.concatenate([[0], np.cumsum(counts)])
    # cost[g, j]: positions that the j shortest lengths need in g groups, each as wide as its longest length;
    # start[g, j]: where the last of these groups begins.
    cost, start = np.full((shapes + 1, n + 1), np.inf), np.zeros((shapes + 1, n + 1), int)
    cost[:, 0] = 0
    for g in range(1, shapes + 1):
        for j in range(1, n + 1):
            of_starts = cost[g - 1, :j] + (before[j] - before[:j]) * lengths[j - 1]
            start[g, j], cost[g, j] = of_starts.argmin(), of_starts.min()
    groups, end = list[np.ndarray](), n
    for g in range(shapes, 0, -1):
        if end:
            first, last = lengths[start[g, end]], lengths[end - 1]
            groups.append(np.flatnonzero((longer_N >= first) & (longer_N <= last)))
            end = start[g, end]
    return groups[::-1]

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
    """The indices of examples of similar length, and the shape of their batches."""

    examples: np.ndarray
    source_length: int
    target_length: int
    rows: int


class Batches:
    """The batches of a run as a random-access source for Grain; batch i is for step i.

    Pairs are sorted into `shapes` buckets by the length of their longer side; the bucket bounds minimize padding. Each
    epoch shuffles every bucket, cuts it into batches, and shuffles the batches. A bucket's remainder moves to the next
    bucket, whose pairs are longer. Rows of weight 0 fill the last batch. Every pair occurs once per epoch, and batch i
    depends on (seed, i) alone, not on the number of processes.
    """

    def __init__(
        self,
        pairs: Sequence[TokenPair],
        data: DataConfig,
        run: Any,
        special: Special,
        process: tuple[int, int],
        arrays: Callable[..., Arrays] | None = None,
    ) -> None:
        """Makes the buckets; keeps `pairs` without a copy.

        Args:
          data: `batch_tokens` limits rows × length of the longer side, padding included; a batch still has a row for
            each microbatch. `shapes` limits the number of buckets.
          run: a `RunInfo`. A batch has at most `train.batch_size` rows, a multiple of `train.microbatches`.
          process: (index, count). This process reads its `share` of each batch, padded with rows of weight 0.
          arrays: makes the arrays of a batch, as `seq2seq_batch`, which is the default.
        """
        self._pairs, self._seed, self._process, self._special = pairs, run.seed, process, special
        self._arrays = arrays or seq2seq_batch
        multiple = run.train.microbatches
        self._lengths_N2 = np.array([(len(pair.source), len(pair.target)) for pair in pairs])
        self.buckets: list[Bucket] = []
        lengths_2, left = np.zeros(2, int), 0  # of the previous buckets
        for members in _least_padding(self._lengths_N2.max(1), data.shapes):
            lengths_2 = np.maximum(self._lengths_N2[members].max(0), lengths_2)
            left += len(members)
            rows = min(run.train.batch_size, data.batch_tokens // int(lengths_2.max()), left)
            rows = max(rows // multiple, 1) * multiple
            left %= rows
            self.buckets.append(Bucket(members, int(lengths_2[0]), int(lengths_2[1]), rows))
        self._in_order = self._cut(lambda examples: examples)
        self.per_epoch = len(self._in_order)
        self._shuffled = functools.lru_cache(maxsize=2)(self._shuffle)  # Grain may still read the previous epoch

    def __len__(self) -> int:
        return 2**31 - 1  # more than the steps of any run

    def __getitem__(self, i: int) -> Arrays:
        epoch, index = divmod(int(i), self.per_epoch)
        return self._batch(*self._shuffled(epoch)[index])

    def epoch(self) -> Iterator[Arrays]:
        """Yields the batches of one epoch in order, for evaluation."""
        return (self._batch(*batch) for batch in self._in_order)

    def shapes(self) -> list[dict[str, jax.ShapeDtypeStruct]]:
        """Returns the shapes and dtypes of each bucket's batches, those with the most positions first."""
        buckets = sorted(self.buckets, key=lambda b: -b.rows * (b.source_length + b.target_length))
        shapes = [(bucket.rows, bucket.source_length, bucket.target_length) for bucket in buckets]
        return [jax.eval_shape(functools.partial(self._arrays, [], shape, self._special)) for shape in shapes]

    def padding_share(self) -> float:
        """Returns the share of padding among an epoch's source and target positions."""
        positions = sum(b.rows * (b.source_length + b.target_length) for b, _ in self._in_order)
        return 1 - int(self._lengths_N2.sum()) / positions

    def _shuffle(self, epoch: int) -> list[tuple[Bucket, np.ndarray]]:
        """Returns the shuffled batches of an epoch: the bucket and the example indices of each."""
        rng = shuffling(self._seed, epoch)
        batches = self._cut(rng.permutation)
        return [batches[i] for i in rng.permutation(len(batches))]

    def _cut(self, order: Callable[[np.ndarray], np.ndarray]) -> list[tuple[Bucket, np.ndarray]]:
        """Returns the batches of an epoch, from short to long. `order` permutes the examples of each bucket."""
        batches, left = [], np.zeros(0, int)
        for bucket in self.buckets:
            examples = np.concatenate([left, order(bucket.examples)])
            end = len(examples) if bucket is self.buckets[-1] else len(examples) // bucket.rows * bucket.rows
            batches += [(bucket, examples[start : start + bucket.rows]) for start in range(0, end, bucket.rows)]
            left = examples[end:]
        return batches

    def _batch(self, bucket: Bucket, examples: np.ndarray) -> Arrays:
        mine = share(bucket.rows, self._process)
        pairs = [self._pairs[i] for i in examples[mine]]
        return self._arrays(pairs, (mine.stop - mine.start, bucket.source_length, bucket.target_length), self._special)


def seq2seq_batch(pairs: Sequence[TokenPair], shape: tuple[int, int, int], special: Special) -> Arrays:
    """Returns the arrays of a batch. Padding, of weight 0, follows each sentence and the last pair.

    The decoder's inputs are the targets shifted right, with <bos> in front.

    Args:
      shape: rows, source length, target length.
    """
    rows, source_length, target_length = shape
    source, source_mask = padded([pair.source for pair in pairs], rows, source_length, special.pad)
    targets, counts = padded([pair.target for pair in pairs], rows, target_length, special.pad)
    inputs = np.pad(targets, ((0, 0), (1, 0)), constant_values=special.bos)[:, :-1]
    # Padding rows attend to their padding: a softmax over nothing is NaN.
    source_mask[len(pairs) :] = True
    weights = counts.astype(np.float32)
    return {"source": source, "source_mask": source_mask, "inputs": inputs, "targets": targets, "weights": weights}


def padded(sequences: Sequence[Any], rows: int, length: int, pad: int = PAD) -> tuple[np.ndarray, np.ndarray]:
    """Returns the padded sequences, int32 [rows, length], and a mask that is True on tokens."""
    tokens, mask = np.full((rows, length), pad, np.int32), np.zeros((rows, length), bool)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = True
    return tokens, mask


def iterate(batches: Any) -> Any:
    """Returns a Grain iterator that prefetches batches. `get_state` returns its position."""
    import grain  # imported here because it takes half a second

    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
    return iter(grain.MapDataset.source(batches).to_iter_dataset(ahead))


def _least_padding(longer_N: np.ndarray, shapes: int) -> list[np.ndarray]:
    """Splits examples by the length of their longer side into at most `shapes` groups with the least padding.

    Returns the indices of each group's examples, from short to long.
    """
    lengths, counts = np.unique(longer_N, return_counts=True)
    n, before = len(lengths), np.concatenate([[0], np.cumsum(counts)])
    # Dynamic program. cost[g, j]: positions of the j shortest lengths in g groups, each padded to its longest length;
    # start[g, j]: where the last of these groups begins.
    cost, start = np.full((shapes + 1, n + 1), np.inf), np.zeros((shapes + 1, n + 1), int)
    cost[:, 0] = 0
    for g in range(1, shapes + 1):
        for j in range(1, n + 1):
            costs = cost[g - 1, :j] + (before[j] - before[:j]) * lengths[j - 1]  # by the start of the last group
            start[g, j], cost[g, j] = costs.argmin(), costs.min()
    groups, end = list[np.ndarray](), n
    for g in range(shapes, 0, -1):
        if end:
            first, last = lengths[start[g, end]], lengths[end - 1]
            groups.append(np.flatnonzero((longer_N >= first) & (longer_N <= last)))
            end = start[g, end]
    return groups[::-1]

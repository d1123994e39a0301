"""Batches of sentence pairs that are segmented anew in each epoch; shapes and number are those of one drawing."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxf.data.batches import Batches, Bucket, Plan
from fxf.data.corpus import TokenPair
from fxf.data.merges import Texts
from fxf.data.order import shuffling


class RedrawnPairs(Sequence[TokenPair]):
    """The pairs of an epoch. `texts` has all sources and then all targets; `plain` says which pairs are plain instead.

    Attributes:
      lengths_N2: the tokens of each source and target.
    """

    def __init__(self, texts: Texts, plain: Sequence[TokenPair], plain_lengths_N2: np.ndarray) -> None:
        self._texts, self._plain, self._plain_lengths_N2 = texts, plain, plain_lengths_N2
        self.is_plain_N = np.zeros(len(plain), bool)
        self.lengths_N2 = np.diff(texts.bounds).reshape(2, -1).T.copy()

    def make_plain(self, places: np.ndarray) -> None:
        """Gives the pairs at `places` back their plain segmentation."""
        self.is_plain_N[places] = True
        self.lengths_N2[places] = self._plain_lengths_N2[places]

    def __len__(self) -> int:
        return len(self._plain)

    def __getitem__(self, i: Any) -> Any:
        if self.is_plain_N[i]:
            return self._plain[i]
        return TokenPair(self._texts.text(i), self._texts.text(len(self) + i))


class RedrawnBatches(Batches):
    """The batches of a run whose pairs have other tokens, and other lengths, in each epoch.

    The buckets, and the number of batches of each, come from one drawing of tokens, the same for all seeds. So all
    epochs have as many steps and the same shapes, and batch i remains a function of (seed, i) alone. Each epoch sorts
    its pairs by the bucket that they need, and fills the batches from the longest on. There is room for some more long
    pairs than that drawing has. Pairs that need a longer batch than there is room for have their plain segmentation in
    this epoch; if all have it, there is room for them.
    """

    def __init__(
        self,
        plain: Sequence[TokenPair],
        drawn: Callable[..., Texts],
        *,
        max_length: int,
        seed: int,
        **options: Any,
    ) -> None:
        """Makes the buckets.

        Args:
          plain: the pairs in their plain segmentation.
          drawn: `drawn(*numbers)` returns the tokens of all sources and then all targets, a function of the numbers.
          max_length: maximum of tokens in a source or target; a pair with a longer one has its plain segmentation.
          options: those of `Batches`.
        """
        self._plain, self._drawn, self._max_length = plain, drawn, max_length
        self._plain_lengths_N2 = np.array([(len(pair.source), len(pair.target)) for pair in plain])
        planned = self._redrawn(0)
        lengths_N2 = np.maximum(planned.lengths_N2, self._plain_lengths_N2)
        super().__init__(planned, seed=seed, lengths_N2=lengths_N2, **options)
        self._counts = self._batches_of_buckets(lengths_N2)
        self._plain_needed_N = self._needed(self._plain_lengths_N2)
        self._in_order = self._filled(planned, np.arange(len(plain)))
        self.per_epoch = len(self._in_order)

    def _redrawn(self, *seed: int) -> RedrawnPairs:
        pairs = RedrawnPairs(self._drawn(*seed), self._plain, self._plain_lengths_N2)
        pairs.make_plain(np.flatnonzero(pairs.lengths_N2.max(1) > self._max_length))
        return pairs

    def _plan(self, epoch: int) -> Plan:
        rng = shuffling(self._seed, epoch)
        pairs = self._redrawn(self._seed, epoch, 1)  # 1: another stream than that of the order
        batches = self._filled(pairs, rng.permutation(len(pairs)))
        return Plan(pairs, [batches[i] for i in rng.permutation(len(batches))])

    def _batches_of_buckets(self, lengths_N2: np.ndarray) -> list[int]:
        """Returns how many batches of each bucket an epoch has, and leaves out the buckets without any.

        The pairs that need a bucket or a longer one may be more in an epoch; there is room for as many more as one
        standard deviation of a binomial.
        """
        n, room = len(lengths_N2), 0
        counts: list[int] = []
        needed_N = self._needed(lengths_N2)
        for i in reversed(range(len(self.buckets))):
            longer = int((needed_N >= i).sum())
            spare = int(np.ceil(np.sqrt(longer * (n - longer) / n)))
            rows = self.buckets[i].rows
            counts.insert(0, -(-max(min(longer + spare, n) - room, 0) // rows))
            room += counts[0] * rows
        self.buckets = [bucket for bucket, count in zip(self.buckets, counts, strict=True) if count]
        return [count for count in counts if count]

    def _needed(self, lengths_N2: np.ndarray) -> np.ndarray:
        """Returns the index of the first bucket whose lengths hold each pair; the number of buckets if none does."""
        of_buckets = np.array([(bucket.source_length, bucket.target_length) for bucket in self.buckets])
        return np.searchsorted(of_buckets[:, 0], lengths_N2[:, 0]).clip(
            min=np.searchsorted(of_buckets[:, 1], lengths_N2[:, 1])
        )

    def _filled(self, pairs: RedrawnPairs, order_N: np.ndarray) -> list[tuple[Bucket, np.ndarray]]:
        """Returns the batches of an epoch, from long to short, with pairs that need the same bucket in this order."""
        needed_N = self._needed(pairs.lengths_N2)
        rows = [bucket.rows * count for bucket, count in zip(self.buckets, self._counts, strict=True)]
        for i in reversed(range(len(self.buckets) + 1)):
            n_over = int((needed_N >= i).sum()) - sum(rows[i:])
            if i and n_over > 0:
                shorter_N = (needed_N >= i) & (self._plain_needed_N < i)
                changed = order_N[shorter_N[order_N]][:n_over]
                pairs.make_plain(changed)
                needed_N[changed] = self._plain_needed_N[changed]
        sorted_N = order_N[np.argsort(-needed_N[order_N], kind="stable")]
        batches, start = [], 0
        for bucket, count in zip(reversed(self.buckets), reversed(self._counts), strict=True):
            for _ in range(count):
                batches.append((bucket, sorted_N[start : start + bucket.rows]))
                start += bucket.rows
        return batches

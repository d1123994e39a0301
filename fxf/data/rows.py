"""Rows of a language model's batches, cut from the tokens of documents by position."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxf.data.order import share, shuffling
from fxf.data.tokenizer import Special

FEW = 1000  # rows; Grain's shuffle permutes at least 16 bits, so with few rows a single one costs up to 25 ms

Arrays = dict[str, np.ndarray]


class Rows(NamedTuple):
    """The tokens of all documents, concatenated and cut into rows of equal length; only the last row has padding.

    Every token is a target exactly once. Its input is the previous token, or `first` at the start of a document.

    Attributes:
      tokens_N: the tokens of all documents. Each document ends with `special.eos`.
      special: the special tokens; padding is `special.pad`, with weight 0.
      first: the input at the start of a document.
      length: number of tokens in a row.
      apart: whether attention stays within a document. The batch then has `documents` [B, T], and `positions` [B, T]
        that start from 0 in each document. Where a row cuts a document, the next row counts from 0 again; its first
        input is the last token of the previous row.
    """

    tokens_N: np.ndarray
    special: Special
    first: int
    length: int
    apart: bool

    @property
    def n_rows(self) -> int:
        return -(-len(self.tokens_N) // self.length)

    def batch(self, rows_B: np.ndarray) -> Arrays:
        """Returns the batch of the rows with these indices. Indices from `n_rows` on give rows of padding."""
        index_BT = rows_B[:, None] * self.length + np.arange(self.length)[None]
        inside_BT = index_BT < len(self.tokens_N)
        clipped_BT = np.minimum(index_BT, len(self.tokens_N) - 1)
        targets_BT = np.where(inside_BT, self.tokens_N[clipped_BT], self.special.pad).astype(np.int32)
        before_BT = self.tokens_N[np.maximum(index_BT.clip(max=len(self.tokens_N)) - 1, 0)].astype(np.int32)
        starts_BT = (index_BT == 0) | (before_BT == self.special.eos)
        inputs_BT, weights_BT = np.where(starts_BT, np.int32(self.first), before_BT), inside_BT.astype(np.float32)
        batch = {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}
        if not self.apart:
            return batch
        t_BT = np.broadcast_to(np.arange(self.length, dtype=np.int32)[None], starts_BT.shape)
        last_start_BT = np.maximum.accumulate(np.where(starts_BT, t_BT, 0), axis=1)
        return {**batch, "documents": starts_BT.cumsum(axis=1, dtype=np.int32), "positions": t_BT - last_start_BT}

    def in_order(self, batch_size: int) -> Iterator[Arrays]:
        """Yields batches of all rows in order. Rows of padding fill the last one."""
        for start in range(0, self.n_rows, batch_size):
            yield self.batch(np.arange(start, start + batch_size))


class ShuffledRows:
    """The batches of a run as a random-access source for Grain; batch i is for step i, and depends on (seed, i) alone.

    `grain.MapDataset.mix` interleaves the sources by their shares. Each epoch of a source has each of its rows once, in
    a new order. Grain's index shuffle computes a long order position by position, so no permutation is in memory.
    """

    def __init__(
        self, rows_S: Sequence[Rows], shares_S: Sequence[float], batch_size: int, seed: int, process: tuple[int, int]
    ) -> None:
        """Keeps the rows of S sources.

        Args:
          shares_S: each source's share of the rows; they add up to 1.
          process: (index, count). This process reads its `share` of each batch.
        """
        import grain  # imported here because it takes half a second

        self._rows_S, self._batch_size, self._seed = rows_S, batch_size, seed
        self._mine = share(batch_size, process)
        endless = grain.MapDataset.range(2**62)
        sources = [endless.map(functools.partial(self._row, number)) for number in range(len(self._rows_S))]
        self._mixed = grain.MapDataset.mix(sources, shares_S)
        # A batch may begin in one epoch and end in another.
        self._order_of = functools.lru_cache(maxsize=2 * len(self._rows_S))(self._order)

    def __len__(self) -> int:
        return 2**31 - 1  # more than the steps of any run

    def __getitem__(self, i: int) -> Arrays:
        first = int(i) * self._batch_size
        drawn = [self._mixed[j] for j in range(first, first + self._batch_size)[self._mine]]
        parts, order = [], []
        for number, rows in enumerate(self._rows_S):
            slots = [j for j, (source, _) in enumerate(drawn) if source == number]
            order += slots
            parts.append(rows.batch(np.array([drawn[j][1] for j in slots], int)))
        back = np.argsort(order)
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}

    def _row(self, source: int, index: int) -> tuple[int, int]:
        """Returns the source, and the row that it reads at this index of its endless sequence."""
        epoch, index = divmod(index, self._rows_S[source].n_rows)
        return source, int(self._order_of(source, epoch)[index])

    def _order(self, source: int, epoch: int) -> Any:
        """Returns the order of a source's rows in an epoch, a random-access sequence."""
        import grain

        rng, n_rows = shuffling(self._seed, epoch, source), self._rows_S[source].n_rows
        if n_rows < FEW:
            return rng.permutation(n_rows)
        # Grain adds the epoch to the seed, so epoch 1 of a seed would be epoch 0 of the next seed.
        return grain.MapDataset.range(n_rows).shuffle(seed=int(rng.integers(2**32)))

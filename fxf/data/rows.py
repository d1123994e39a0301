"""Rows of a language model's batches, cut from the tokens of documents by position."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fxf.data.order import share, shuffling
from fxf.data.tokenizer import Special

FEW = 1000  # rows, of which each would cost Grain's shuffle, which permutes 16 bits at least, up to 25 ms

Arrays = dict[str, np.ndarray]


class Rows(NamedTuple):
    """The tokens of documents, one after the other, cut into rows of equal length; only the last one has padding.

    So every token is the target of one row. Its input is the token before it, or, at the start of a document, the
    token `first`.

    Attributes:
      tokens_N: the tokens of all documents. Each document ends with `special.eos`.
      special: the special tokens; padding is `special.pad`, with weight 0.
      first: the input at the start of a document.
      length: number of tokens in a row.
      apart: whether attention stays within a document: the batch then has `documents` [B, T], and positions [B, T]
        that start from 0 in each document. A document that goes on in another row starts there with its last token.
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
        place_BT = np.minimum(index_BT, len(self.tokens_N) - 1)
        targets_BT = np.where(inside_BT, self.tokens_N[place_BT], self.special.pad).astype(np.int32)
        before_BT = self.tokens_N[np.maximum(index_BT.clip(max=len(self.tokens_N)) - 1, 0)].astype(np.int32)
        starts_BT = (index_BT == 0) | (before_BT == self.special.eos)
        inputs_BT, weights_BT = np.where(starts_BT, np.int32(self.first), before_BT), inside_BT.astype(np.float32)
        batch = {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}
        if not self.apart:
            return batch
        t_BT = np.broadcast_to(np.arange(self.length, dtype=np.int32)[None], starts_BT.shape)
        last_start_BT = np.maximum.accumulate(np.where(starts_BT, t_BT, 0), axis=1)
        documents_BT = starts_BT.cumsum(axis=1, dtype=np.int32)
        return {**batch, "documents": documents_BT, "positions": t_BT - last_start_BT}

    def in_order(self, batch_size: int) -> Iterator[Arrays]:
        """Yields batches of all rows in order; the last one is filled with rows of padding."""
        for start in range(0, self.n_rows, batch_size):
            yield self.batch(np.arange(start, start + batch_size))


class ShuffledRows:
    """The batches of a run as a random-access source for Grain; batch i is for step i, and a function of (seed, i).

    The sources take turns by their shares (`grain.MapDataset.mix`). Each epoch of a source has every row of it once, in
    an order of its own. The order of many rows is computed by position (`grain`'s index shuffle), so nothing of the
    size of the data is in memory.
    """

    def __init__(
        self, rows_S: Sequence[Rows], shares_S: Sequence[float], batch_size: int, seed: int, process: tuple[int, int]
    ) -> None:
        """Keeps the rows of S sources.

        Args:
          shares_S: the share of the rows that each source has; they add up to 1.
          process: (index, count) of the process that reads its `share` of each batch.
        """
        import grain  # imported here because it takes half a second

        self._rows_S, self._batch_size, self._seed = rows_S, batch_size, seed
        self._mine = share(batch_size, process)
        every = grain.MapDataset.range(2**62)
        sources = [every.map(functools.partial(self._row, number)) for number in range(len(self._rows_S))]
        self._places = grain.MapDataset.mix(sources, shares_S)
        # A batch may begin in one epoch and end in another.
        self._order_of = functools.lru_cache(maxsize=2 * len(self._rows_S))(self._order)

    def __len__(self) -> int:
        return 2**31 - 1  # more than the steps of any run

    def __getitem__(self, i: int) -> Arrays:
        first = int(i) * self._batch_size
        found = [self._places[place] for place in range(first, first + self._batch_size)[self._mine]]
        parts, order = [], []
        for number, rows in enumerate(self._rows_S):
            mine = [j for j, (source, _) in enumerate(found) if source == number]
            order += mine
            parts.append(rows.batch(np.array([found[j][1] for j in mine], int)))
        back = np.argsort(order)
        return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}

    def _row(self, source: int, place: int) -> tuple[int, int]:
        """Returns a source, and which of its rows it reads at a place of all that it reads."""
        epoch, index = divmod(place, self._rows_S[source].n_rows)
        return source, int(self._order_of(source, epoch)[index])

    def _order(self, source: int, epoch: int) -> Any:
        """Returns the rows of a source in the order of an epoch, to be read by place."""
        import grain

        rng, n_rows = shuffling(self._seed, epoch, source), self._rows_S[source].n_rows
        if n_rows < FEW:
            return rng.permutation(n_rows)
        # Grain's own epochs add to the seed, so that epoch 1 of a seed would be epoch 0 of the next.
        return grain.MapDataset.range(n_rows).shuffle(seed=int(rng.integers(2**32)))

"""Sequences in parts: which pairs of queries and keys each device computes.

tests/training/sequences_on_devices.py compares the numbers with those of one device.
"""

import numpy as np
import pytest

from fxf.layers.context_parallel import earlier_blocks, pieces_of_queries


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("n", [2, 5])
def test_a_window_has_each_pair_of_tokens_once(n, length):
    for window in range(2, n * length):
        blocks = earlier_blocks(window, length, n)
        indices = np.arange(n * length).reshape(n, length)
        distances = indices.reshape(-1, 1) - indices.reshape(-1)
        count = np.where((distances >= 0) & (distances < window), 0, 9)
        for device, own in enumerate(indices):
            count[np.ix_(own, own)] += np.tri(length, dtype=int) - np.tri(length, k=-window, dtype=int)
            for block in blocks:
                if block.hops <= device:
                    pairs = own[block.queries], indices[device - block.hops][block.keys]
                    shape = tuple(map(len, pairs))
                    turned = np.tri(*shape, dtype=int)[::-1, ::-1]  # as the kernel sees it, from the end
                    count[np.ix_(*pairs)] += turned if block.band else 1
        assert np.isin(count, [1, 9]).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_each_device_has_two_pieces_of_queries_that_see_as_many_keys_as_those_of_others(n):
    pieces = pieces_of_queries(n)
    assert sorted(pieces.reshape(-1)) == list(range(2 * n)) and set(pieces.sum(1)) == {2 * n - 1}
    assert (pieces % 2 == [0, 1]).all()

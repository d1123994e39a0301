"""Sharded sequences: which pairs of queries and keys each device computes.

tests/training/sequences_on_devices.py compares the results with those of one device.
"""

import numpy as np
import pytest

from fxf.layers.context_parallel import pieces_of_queries, turns_of_window


@pytest.mark.parametrize(("n", "length"), [(2, 1), (2, 4), (5, 1), (5, 4)])
def test_a_window_has_each_pair_of_tokens_once(n, length):
    for window in range(2, n * length):
        indices = np.arange(n * length)
        distances = indices[:, None] - indices
        count = np.where((distances >= 0) & (distances < window), 0, 9)
        n_before = min(window - 1, (n - 1) * length)
        for device in range(n):
            own = device * length
            for turns in turns_of_window(n, length, window):
                if turns.hops <= device:
                    queries = turns.queries[0] + np.arange(turns.sizes[0])
                    keys = turns.keys[0] + np.arange(turns.sizes[1])
                    seen = np.tri(*turns.sizes, dtype=int) if turns.causal else np.ones(turns.sizes, int)
                    seen -= np.tri(*turns.sizes, k=-turns.window, dtype=int) if turns.window else 0
                    # Earlier keys are in front of a device's own; a band is reversed.
                    pairs = np.ix_(own + queries, own - n_before + keys)
                    count[pairs] += seen[::-1, ::-1] if turns.band else seen
        assert np.isin(count, [1, 9]).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_each_device_has_two_pieces_of_queries_with_as_many_visible_keys_as_others(n):
    pieces = pieces_of_queries(n)
    assert sorted(pieces.reshape(-1)) == list(range(2 * n)) and set(pieces.sum(1)) == {2 * n - 1}
    assert (pieces % 2 == [0, 1]).all()

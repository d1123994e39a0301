import itertools

import jax
import numpy as np
import pytest

from fxf.tasks.held_out import held_out, sample_held_out

ROWS = np.array(list(itertools.product(range(1, 18), repeat=3)), np.int32)


def test_the_hash_holds_out_a_sixteenth_alike_in_numpy_and_jax():
    np.testing.assert_array_equal(held_out(ROWS), jax.jit(held_out)(ROWS))
    assert held_out(ROWS).mean() == pytest.approx(1 / 16, abs=0.01)


def test_padding_does_not_change_the_hash():
    np.testing.assert_array_equal(held_out(np.pad(ROWS, ((0, 0), (0, 4)))), held_out(ROWS))


def test_a_sample_is_the_first_distinct_rows_that_are_held_out():
    counted, held = ROWS[~held_out(ROWS)], ROWS[held_out(ROWS)]
    drawn = np.concatenate([counted[:2], held[5:7], held[5:7], counted[:1], held[1:3]])
    assert sample_held_out(drawn, 3).tolist() == held[[5, 6, 1]].tolist()
    assert sample_held_out(drawn, 99).tolist() == held[[5, 6, 1, 2]].tolist()

from contextlib import contextmanager

import numpy as np

from fxf.runs.compiled import compiled_by_shape


def test_a_function_compiles_once_a_shape_and_that_is_when_compiling_is_entered():
    entered = []

    @contextmanager
    def compiling():
        entered.append(1)
        yield

    scaled_sum = compiled_by_shape(lambda params, batch: params * batch["x"].sum(), compiling)
    for length, times in ((3, 1), (3, 1), (5, 2)):
        assert scaled_sum(np.float32(2), {"x": np.ones(length, np.float32)}) == 2 * length
        assert len(entered) == times

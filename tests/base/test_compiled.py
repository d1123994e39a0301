from contextlib import contextmanager
from functools import partial

import jax
import numpy as np

from fxf.base.compiled import CompiledByShape


def test_a_function_compiles_once_for_each_shape_and_static_argument_and_that_is_when_compiling_is_entered():
    entered = []

    @contextmanager
    def compiling():
        entered.append(1)
        yield

    @partial(jax.jit, static_argnames="times")
    def scaled_sum(params, batch, times=1):
        return times * params * batch["x"].sum()

    compiled = CompiledByShape(scaled_sum, compiling)
    for length, times, programs in ((3, 1, 1), (3, 1, 1), (5, 1, 2), (5, 4, 3), (3, 1, 3)):
        assert compiled(np.float32(2), {"x": np.ones(length, np.float32)}, times=times) == 2 * length * times
        assert len(entered) == programs

import threading
from contextlib import contextmanager, nullcontext
from functools import partial

import jax
import numpy as np
import pytest

from fxf.machine.compiled import CompiledByShape


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


class Jitted:
    """Stands for a jitted function; notes in which thread it is traced and compiled."""

    def __init__(self):
        self.traced, self.compiled = [], []

    def lower(self, *_):
        self.traced.append(threading.current_thread())
        return self

    def compile(self, options=None):
        self.compiled.append(threading.current_thread())
        if len(self.compiled) > 1:
            raise ValueError("no memory")
        return lambda params, x: params * x


def test_what_has_begun_compiles_once_in_another_thread_and_a_call_uses_it_or_raises_its_error():
    jitted = Jitted()
    compiled = CompiledByShape(jitted, nullcontext)
    compiled.begin(2, 3)
    compiled.begin(2, 3)
    assert compiled(2, 5) == compiled(2, 7) - 4 == 10
    here = threading.current_thread()
    assert jitted.traced == [here] and len(jitted.compiled) == 1 and jitted.compiled != [here]
    compiled.begin(2, np.ones(3))
    with pytest.raises(ValueError, match="no memory"):
        compiled(2, np.ones(3))

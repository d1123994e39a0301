import threading

import jax
import jax.numpy as jnp

from fxf.base import compiled
from fxf.base.compiled import seconds_of_compiling


def test_what_is_compiled_inside_of_another_and_by_another_thread_is_not_counted(monkeypatch):
    monkeypatch.setattr(compiled, "_spans", [])
    monkeypatch.setattr(compiled.time, "perf_counter", iter([7.0, 8.0, 12.0]).__next__)
    for event, duration in (("jaxpr_trace_duration", 2.0), ("jaxpr_trace_duration", 4.0), ("backend_compile", 3.0)):
        compiled._count(f"/jax/core/compile/{event}", duration)
    compiled._count("/jax/checkpoint/write", 5.0)
    other = threading.Thread(target=compiled._count, args=("/jax/core/compile/backend_compile", 5.0))
    other.start()
    other.join()
    assert seconds_of_compiling() == 7  # the first trace is a part of the second


def test_jax_tells_of_each_program_once():
    function, x = jax.jit(lambda x: jnp.sin(x) + 1), jnp.ones(3)
    seconds = []
    for _ in range(2):
        before = seconds_of_compiling()
        function(x)
        seconds.append(seconds_of_compiling() - before)
    assert seconds[0] > 0 == seconds[1]

"""Compiling ahead of a call, so that the time it takes can be counted apart."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax


def compiled_by_shape(
    function: Callable[..., Any], compiling: Callable[[], AbstractContextManager], out_shardings: Any = None
) -> Callable:
    """Returns `function(params, batch)`, compiled once for each shape of `batch`, a dict of arrays.

    Args:
      compiling: entered while a program compiles.
      out_shardings: where the outputs shall be, as `jax.jit` takes it.
    """
    programs: dict[Any, Callable] = {}

    def call(params: Any, batch: Any) -> Any:
        shape = tuple((name, value.shape) for name, value in sorted(batch.items()))
        if shape not in programs:
            with compiling():
                programs[shape] = jax.jit(function, out_shardings=out_shardings).lower(params, batch).compile()
        return programs[shape](params, batch)

    return call

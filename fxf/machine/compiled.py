"""Compiling ahead of a call, which lets a clock count compiling apart."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np


def compiled_by_shape(
    jitted: Any, compiling: Callable[[], AbstractContextManager], programs: dict[Any, Any] | None = None
) -> Callable[..., Any]:
    """Returns a function that compiles `jitted` once for each shape of the arguments after the first.

    The first argument, params or a state, always has the same shapes. Static arguments are passed by name.

    Args:
      compiling: returns a context that is entered while a program compiles.
      programs: keeps the compiled programs, for other functions that are the same; by default they are kept with the
        returned function.
    """
    programs = {} if programs is None else programs

    def call(first: Any, *others: Any, **static: Any) -> Any:
        leaves, structure = jax.tree.flatten(others)
        shape = (structure, tuple(map(np.shape, leaves)), tuple(static.items()))
        if shape not in programs:
            with compiling():
                programs[shape] = jitted.lower(first, *others, **static).compile()
        return programs[shape](first, *others)

    return call

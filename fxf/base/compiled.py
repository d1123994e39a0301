"""Compiling ahead of a call, which lets a clock count compiling apart."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np


class CompiledByShape:
    """A function that compiles once for each shape of the arguments after the first.

    The first argument, params or a state, always has the same shapes. Static arguments are passed by name.
    """

    def __init__(
        self,
        jitted: Any,
        compiling: Callable[[], AbstractContextManager],
        programs: dict[Any, Any] | None = None,
        options: Callable[[Any], dict[str, Any] | None] = lambda lowered: None,
    ) -> None:
        """Compiles nothing yet.

        Args:
          compiling: returns a context that is entered while a program compiles.
          programs: keeps the compiled programs, for other functions that are the same; by default they are kept here.
          options: returns the compiler's options for a lowered program.
        """
        self._jitted, self._compiling, self._options = jitted, compiling, options
        self._programs = {} if programs is None else programs

    def program(self, first: Any, *others: Any, **static: Any) -> Any:
        """Returns the compiled program for arguments of these shapes; it takes all but the static ones."""
        leaves, structure = jax.tree.flatten(others)
        shape = structure, tuple(map(np.shape, leaves)), tuple(static.items())
        if shape not in self._programs:
            with self._compiling():
                lowered = self._jitted.lower(first, *others, **static)
                self._programs[shape] = lowered.compile(self._options(lowered))
        return self._programs[shape]

    def __call__(self, first: Any, *others: Any, **static: Any) -> Any:
        return self.program(first, *others, **static)(first, *others)

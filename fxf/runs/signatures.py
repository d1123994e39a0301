"""The arguments that functions of a user's own take; it does not import JAX."""

import inspect
from pathlib import Path
from typing import Any

from fxf.errors import UserError, shown


def require_takes(where: str, function: Any, names: str) -> None:
    """Raises a UserError if a function cannot be called with so many arguments.

    Args:
      names: the names of the arguments, with commas between them.
    """
    if not callable(function):
        raise UserError(f"{where}: expected a function of ({names}), got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return
    try:
        signature.bind(*filter(None, names.split(", ")))
    except TypeError:
        raise UserError(f"{where}: expected a function of ({names}), got {named(function)}") from None


def named(function: Any) -> str:
    """Returns a function's name with its arguments, and its file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f" in {shown(Path(code.co_filename))}:{code.co_firstlineno}" if code else ""
    return f"{getattr(function, '__name__', 'a function')}{inspect.signature(function)}{place}"


def required_names(function: Any) -> str:
    """Returns the names of the arguments that a function needs, with commas between them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return ", ".join(p.name for p in parameters if p.kind in positional and p.default is p.empty)


def described(x: Any) -> str:
    return f"{x.dtype} {list(x.shape)}"

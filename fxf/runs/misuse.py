"""The line for an exception that is caused by what a user's own function takes or returns."""

import contextlib
import gc
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from fxf.errors import UserError, shown, text_of
from fxf.runs import shipped
from fxf.runs.config_file import executed, line_of_file
from fxf.runs.signatures import described, named

OWN_CODE = Path(__file__).parents[1]
FILTERING = "JAX_TRACEBACK_FILTERING"  # off: JAX shows whole tracebacks, and so does fxf
# The exceptions of code that gets what it does not expect.
CODE_ERRORS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError)


@contextlib.contextmanager
def reading(where: str, shapes: Mapping[str, Any]) -> Iterator[None]:
    """Turns an exception of a model, while it is traced for the shapes of a user's batch, into one line with them."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except Exception as error:
        if line := line_of_file(error):
            raise UserError(line) from error
        what = "it lacks" if isinstance(error, KeyError) else f"{type(error).__name__}:"
        found = ", ".join(f"{name} {described(x)}" for name, x in shapes.items())
        raise UserError(f"{where}: the model cannot learn from {found}: {what} {text_of(error)}") from error


def line_of_misuse(error: BaseException) -> str:
    """Returns the line for an exception that may come of a user's registered function, else nothing."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(f"{OWN_CODE}{os.sep}")]
    users = [file for file in executed().values() if not file.path.is_relative_to(shipped.folder())]
    registering = [file for file in users if file.registered]
    if not (isinstance(error, CODE_ERRORS) and frames and registering) or os.environ.get(FILTERING) == "off":
        return ""
    what, at = f"{type(error).__name__}: {text_of(error)}", f"{shown(Path(frames[-1].filename))}:{frames[-1].lineno}"
    if (called := re.match(r"([\w.<>]+)\(\) (takes|missing|got)", str(error))) and (function := _function(called[1])):
        return f"{named(function)}: {what}; fxf calls it as {frames[-1].line} ({at})"
    names = ", ".join(sorted(f"{kind} '{name}' of {shown(f.path)}" for f in registering for kind, name in f.registered))
    return (
        f"{what} ({at}): either {names} takes or returns something else than docs/extending.md says, or fxf has a "
        f"bug; {FILTERING}=off shows the traceback"
    )


def _function(name: str) -> Any:
    """Returns the function of an executed file that has the qualified name, or None."""
    functions = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    files = {*map(str, executed())}
    return next((f for f in functions if f.__qualname__ == name and f.__code__.co_filename in files), None)

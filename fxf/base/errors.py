"""Errors that a user can mend: one line says what is wrong, where, what was expected, and the nearest valid name."""

import contextlib
import difflib
import errno
import functools
import inspect
import logging
import re
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

EXIT_USER_ERROR = 2
MAX_MESSAGE = 1000  # characters
FLAGS = ("by_document", "by_row", "cached", "ordered")  # what a layer may say of itself
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of writing to an open file, which do not name it
# Modules that an installation may lack, and the packages that bring them.
BROUGHT_BY = {
    "jax_cuda13_plugin": "jax-cuda13-plugin jax-cuda13-pjrt",
    "libtpu": "libtpu",
    "safetensors": "safetensors",
}


class UserError(Exception):
    """A wrong config, file, token or checkpoint. The command line prints its text alone and exits with code 2."""


class DivergedError(UserError):
    """The loss or the gradient is not finite."""


class Interrupted(Exception):  # noqa: N818  It is no error.
    """Work stopped on request after it was saved. The command line prints the text alone."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the valid name closest to `name`, or "" when none is close."""
    return did_you_mean(closest(name, valid))


def did_you_mean(name: str) -> str:
    return f"; did you mean '{name}'?" if name else ""


@functools.cache
def also_called(table: str = "names") -> dict[str, str]:
    """Returns fxf's name for each word of another library, or of the words without one, in "hints", what to do."""
    tables = tomllib.loads(Path(__file__).with_name("also_called.toml").read_text(encoding="utf-8"))
    return {word: name for name, words in tables[table].items() for word in words}


def closest(name: str, valid: Iterable[str]) -> str:
    """Returns the valid name that a wrong one may stand for, or "" when none is close.

    In this order: fxf's name for a word of another library (d_model for n_embd), the shortest name with this word
    (beam_width for beam), one with these initials (learning_rate for lr), one of similar spelling.
    """
    words = {each: each.split("_") for each in valid}
    in_any_case = {each.lower(): each for each in words}
    matches = [each for each in (also_called().get(name.lower(), ""),) if each in words]
    matches = matches or sorted((each for each in words if name in words[each]), key=len)
    matches = matches or [each for each in words if "_" in each and name == "".join(word[:1] for word in words[each])]
    matches = matches or [in_any_case[each] for each in difflib.get_close_matches(name.lower(), in_any_case, n=1)]
    return matches[0] if matches else ""


def require_keywords(function: Callable[..., Any], keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises a UserError, with the nearest name, if a keyword of a function is none of the names `known`."""
    for name in keys:
        if name not in known:
            valid = [*[*inspect.signature(function).parameters][:-1], *known]  # the last parameter is **keys
            near = nearest(name, valid) or f" (here are {', '.join(valid)})"
            raise UserError(f"{function.__name__}: no keyword '{name}'{near}")


@functools.cache
def warn_of_slips(cls: type) -> None:
    """Warns of methods and flags of a user's class with nearly the name of one of fxf, which the class never reads."""
    own, bases = vars(cls), cls.__mro__[1:]
    methods = [name for base in bases if base.__module__.startswith("fxf.") for name in vars(base)]
    called = {name for each in own.values() for name in getattr(getattr(each, "__code__", None), "co_names", ())}
    for name in own.keys() - called - {*dir(cls.__base__), *FLAGS}:
        known = methods if callable(own[name]) else FLAGS if isinstance(own[name], bool) else ()
        if near := difflib.get_close_matches(name, known, 1, 0.8):
            what = f"overrides nothing, and no method of the class reads it; did you mean '{near[0]}'?"
            log.warning("warning: %s: %s.%s %s", cls.__module__, cls.__name__, name, what)


# Control characters, line ends, halves of surrogate pairs, and characters that change the direction of text.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\\]")


def printable(text: str) -> str:
    r"""Returns the text on one line, with control characters and the backslash escaped as Python writes them.

    A line end becomes `\n`. No-break spaces stay.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Returns the text of a message on one line, escaped as by `printable`, except that backslashes stay."""
    return "\\".join(map(printable, text.split("\\")))


def of_shape(y: Any, shape: tuple[int, ...], name: str) -> Any:
    """Returns what the function `name` returned; raises a UserError if it has another shape, which may broadcast."""
    if getattr(y, "shape", None) != shape:
        got = [*y.shape] if hasattr(y, "shape") else type(y).__name__
        raise UserError(f"{name}: expected to return an array of shape {[*shape]}, got {got}")
    return y


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turns an exception of a file's code into one line, which names the innermost line of that file."""
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
        what = f"{kind}: {text_of(error)}".removesuffix(": ")
        if isinstance(error, SyntaxError) and error.filename == str(path):
            line, what = error.lineno, f"{kind}: {error.msg}"
        elif isinstance(error, UserError):
            what = str(error)
        elif words := _of_config(error):
            what = words
        elif frames[-1].filename != str(path):
            what += f" ({frames[-1].filename}:{frames[-1].lineno})"
        raise UserError(f"{shown(path)}{f':{line}' if line else ''}: {what}") from None


def _of_config(error: Exception) -> str:
    """Rewords an error of ml_collections about a wrong key or value; returns "" for another error."""
    types = r"is of \w* ?type <class '([\w.]+)'> .* <class '(?:[\w.]+\.)?(\w+)'>"
    if found := re.match(rf"Could not override field '(\w+)' \(reference\)\. (.*) {types}", text_of(error)):
        got = repr(found[2]) if found[3] == "str" else f"{found[2]} ({found[3]})"
        return f"{found[1]}: expected {found[4]}, got {got}"
    inside: Any = [*traceback.walk_tb(error.__traceback__)][-1][0].f_locals
    name, holder = inside.get("key", inside.get("attribute")), inside.get("self")
    if not isinstance(error, AttributeError | KeyError) or not hasattr(holder, "unlocked"):
        return ""
    keys = [f"{section}.{key}" for section in holder if hasattr(holder[section], "keys") for key in holder[section]]
    known = f" (here are {', '.join(holder)})" if len(holder) else "; set it to a dict of its keys"
    return f"{name}: unknown key{nearest(str(name), [*holder, *keys]) or known}"


def shown(path: Path) -> str:
    """Returns the path, relative to the working directory if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def text_of(error: BaseException) -> str:
    """Returns the text of an error of another library, its lines joined."""
    return " ".join(str(error).replace("\\n", " ").replace("\\'", "'").split()).strip('"')


def why_not_ours(error: BaseException) -> str:
    """Returns the line for an error that is no bug of this code, or ""."""
    kind, text = type(error).__name__, text_of(error)
    if isinstance(error, MemoryError) or (kind == "JaxRuntimeError" and text.startswith("RESOURCE_EXHAUSTED")):
        less = "a smaller train.batch_size, model or decode.beam_width, or more train.microbatches, may help"
        return f"out of memory: {text or 'of the host'}; {less}"
    if isinstance(error, OSError) and error.strerror and (error.filename or error.errno in FULL):
        return f"{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and (name := (error.name or "").split(".")[0]) in BROUGHT_BY:
        return f"{name} is not installed: pip install {BROUGHT_BY[name]}"
    # From a library in Rust; it is not an Exception.
    return f"a library failed: {text}" if kind == "PanicException" else ""


def line_of(error: BaseException) -> str:
    """Returns the line for any error: its own text if it is one of fxf's, else with its type."""
    own = str(error) if isinstance(error, UserError | Interrupted) else why_not_ours(error)
    return own or ": ".join(filter(None, (type(error).__name__, text_of(error))))


def shortened(text: str, most: int = MAX_MESSAGE) -> str:
    """Returns the text, without its middle if it is too long to read, for example because it quotes a long prompt."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"

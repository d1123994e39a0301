"""The command `fxf`: `fxf VERB …` or `python -m fxf VERB …`. A UserError ends it in one line and exit code 2."""

import fxf.base.listen  # noqa: F401  Must be the first import.

import gc
import importlib
import io
import logging
import os
import sys
import warnings
from typing import Any, NoReturn

from fxf import __version__, verbs
from fxf.base import signals, status
from fxf.base.errors import EXIT_USER_ERROR, Interrupted, UserError, nearest, one_line, shortened, why_not_ours

HELP = ("help", "--help", "-help", "-h")
EXIT_BROKEN_PIPE = 128 + 13  # the shell's exit code for a process killed by SIGPIPE


def main() -> None:
    """Runs the verb of the first argument on the other arguments."""
    verb, *arguments = sys.argv[1:] or HELP
    if verb in HELP and arguments and arguments[0] not in HELP:
        verb, arguments = arguments[0], ["--help"]
    if verb in HELP or verb == "--version":
        try:
            print(f"fxf {__version__}" if verb == "--version" else _overview(), flush=True)
        except BrokenPipeError:
            _end_unread()
    elif verb not in verbs.VERBS:
        known = ", ".join(verbs.VERBS)
        _end(f"fxf: unknown verb '{verb}'{nearest(verb, verbs.VERBS)} (here are {known})")
    else:
        with status.stage(f"fxf {verb}"):
            run_verb(f"fxf {verb}", f"fxf.verbs.{verb}", arguments)


def run_verb(name: str, place: str, arguments: list[str]) -> None:
    """Parses the flags of a module and runs its `main`. An error of the user's ends the process with one line.

    Args:
      name: the command, for its help.
      place: the module's name.
    """
    _quieten()
    try:
        # Imports and tracing make many lasting objects. Scanning them for garbage takes a tenth of the time to the
        # first step, so garbage collection skips what is imported, and runs less often.
        gc.disable()
        from fxf.verbs.flags import Parser

        module = importlib.import_module(place)
        args = Parser(name, module).parse(arguments)
        if getattr(module, "NEEDS_JAX", True):
            from fxf.base.devices import start_jax

            start_jax()  # before a config file imports JAX
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()
        module.main(args)
        print(end="", flush=True)
    except UserError as error:
        _end(str(error))
    except BrokenPipeError:
        _end_unread()
    except Interrupted as stop:
        signals.print_last_line(str(stop))
        sys.exit(signals.exit_code())
    except BaseException as error:
        if why := why_not_ours(error):
            _end(why)
        raise


def _quieten() -> None:
    """Silences warnings of libraries, and keeps each log record on one line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character outside the encoding is no error
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax logs errors that it also raises
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # Orbax raises only the first of several errors
    warnings.filterwarnings("ignore", module="orbax")
    sys.unraisablehook = _unraisable


class _OneLine(logging.Formatter):
    """A formatter that writes each log record on one line, even if names in it have line ends."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def _unraisable(error: Any) -> None:
    """Hides the error of a pending write after a save met a full disk: Orbax has closed the event loop by then."""
    if str(error.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(error)


def _end_unread() -> NoReturn:
    """Ends the process after the reader of its output has gone, as in `fxf generate … | head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at exit
    sys.exit(EXIT_BROKEN_PIPE)


def _end(line: str) -> NoReturn:
    signals.print_last_line(f"error: {shortened(one_line(line))}")
    sys.exit(EXIT_USER_ERROR)


def _overview() -> str:
    """Returns the verbs, each with the first line of its help. Importing their modules does not import JAX."""
    lines = [f"fxf {__version__}: transformers as pure functions in JAX", ""]
    for verb in verbs.VERBS:
        line, _, _ = (importlib.import_module(f"fxf.verbs.{verb}").__doc__ or "").partition("\n")
        lines.append(f"  fxf {verb:<10}{line}")
    return "\n".join([*lines, "", "'fxf help VERB' lists a verb's flags."])

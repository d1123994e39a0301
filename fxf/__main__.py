"""The command `fxf`: `fxf VERB …` or `python -m fxf VERB …`."""

import fxf.machine.listen  # noqa: F401  First of all.

import gc
import sys

from fxf import __version__, verbs
from fxf.errors import EXIT_USER_ERROR, nearest, one_line
from fxf.machine import signals, status

HELP = ("help", "--help", "-help", "-h")


def main(verb: str = "") -> None:
    """Runs a verb on the arguments of the process.

    Args:
      verb: the verb; without it, the first argument names one.
    """
    if not verb:
        verb, *arguments = sys.argv[1:] or HELP
        if verb in HELP and arguments and arguments[0] not in HELP:
            verb, arguments = arguments[0], ["--help"]
        if verb in HELP or verb == "--version":
            print(f"fxf {__version__}" if verb == "--version" else _overview())
            return
        if verb not in verbs.VERBS:
            known = ", ".join(verbs.VERBS)
            signals.print_last_line(
                one_line(f"error: fxf: unknown verb '{verb}'{nearest(verb, verbs.VERBS)} (here are {known})")
            )
            sys.exit(EXIT_USER_ERROR)
        sys.argv = [f"fxf {verb}", *arguments]
    import importlib

    with status.stage(f"fxf {verb}"):
        # Imports and tracing make many objects that stay. Python looks for garbage among them time and again, for a
        # tenth of the time to the first step: here it leaves out what is imported, and looks more seldom.
        gc.disable()
        from fxf.runs import cli

        act = importlib.import_module(f"fxf.verbs.{verb}").main
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()
        cli.run(act)


def _overview() -> str:
    """Returns the verbs, each with the first line of its help; it imports none, since verbs share names of flags."""
    import ast
    from pathlib import Path

    lines = [f"fxf {__version__}: transformers as pure functions in JAX", ""]
    for verb in verbs.VERBS:
        source = (Path(verbs.__file__).parent / f"{verb}.py").read_text(encoding="utf-8")
        lines.append(f"  fxf {verb:<10}{(ast.get_docstring(ast.parse(source)) or '').splitlines()[0]}")
    return "\n".join([*lines, "", "'fxf help VERB' lists a verb's flags."])


if __name__ == "__main__":
    main()

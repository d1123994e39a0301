"""The verbs of the command `fxf`, one module each: its docstring is its help, `flags` adds its flags, `main` acts."""

from typing import Any

VERBS = (
    *("train", "evaluate", "generate", "describe", "keys", "compile"),
    *("sweep", "try", "report", "compare", "probe", "export", "launch"),
)


def parser(name: str, module: Any) -> Any:
    """Returns the parser of a module's flags and arguments."""
    from fxf.verbs.flags import Parser

    made = Parser(name, module.__doc__ or "", getattr(module, "ARGUMENTS", ""))
    module.flags(made)
    return made

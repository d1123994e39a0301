"""The verbs of the command `fxf`, a module each: its docstring is its help, and `main` does the work."""

VERBS = ("train", "evaluate", "generate", "describe", "sweep", "probe", "export")

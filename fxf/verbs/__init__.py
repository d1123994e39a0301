"""The verbs of the command `fxf`, a module each: its docstring is the help, `flags` adds its flags, `main` runs it."""

VERBS = (
    *("train", "evaluate", "generate", "describe", "keys", "compile"),
    *("sweep", "try", "report", "compare", "probe", "export", "launch"),
)

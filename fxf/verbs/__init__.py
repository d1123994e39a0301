"""The verbs of the command `fxf`, one module each: its docstring is its help, `flags` adds its flags, `main` acts."""

VERBS = (
    *("train", "evaluate", "generate", "describe", "keys", "compile"),
    *("sweep", "try", "report", "compare", "probe", "export", "launch"),
)

"""The verbs of the command `fxf`, one module each. Its docstring is its help, and `main` does the work."""

VERBS = (
    *("train", "evaluate", "generate", "describe", "keys", "compile"),
    *("sweep", "try", "report", "compare", "probe", "export"),
)

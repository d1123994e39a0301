"""Tasks by name: the section class that configures each, and the function that builds it."""

from fxf.tasks.reversal import ReversalConfig, reversal

TASKS = {"reversal": (ReversalConfig, reversal)}

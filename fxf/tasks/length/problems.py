"""The table of problems."""

from fxf.tasks.length import binary, expressions, strings
from fxf.tasks.length.problem import Problem

PROBLEMS: dict[str, Problem] = {**strings.PROBLEMS, **expressions.PROBLEMS, **binary.PROBLEMS}

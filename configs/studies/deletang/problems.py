"""The table of problems."""

from . import binary, expressions, strings
from .problem import Problem

PROBLEMS: dict[str, Problem] = {
    "even_pairs": Problem("01", "01", strings.even_pairs),
    "parity": Problem("01", "01", strings.parity),
    "cycle_navigation": Problem("<.>", "01234", strings.cycle_navigation),
    "stack_manipulation": Problem("01-oi", "01", strings.stack_manipulation, lambda n: n + 1, ends=True),
    "reverse_string": Problem("01", "01", strings.reverse_string, lambda n: n),
    "duplicate_string": Problem("01", "01", strings.duplicate_string, lambda n: 2 * n),
    "missing_duplicate": Problem("01_.", "01", strings.missing_duplicate),
    "odds_first": Problem("01", "01", strings.odds_first, lambda n: n),
    "bucket_sort": Problem("01234", "01234", strings.bucket_sort, lambda n: n),
    "modular_arithmetic": Problem("01234+-*", "01234", expressions.modular_arithmetic, odd=True),
    "modular_arithmetic_brackets": Problem("01234+-*()", "01234", expressions.modular_arithmetic_brackets),
    "solve_equation": Problem("01234+-()x=", "01234", expressions.solve_equation),
    "binary_addition": Problem("01+", "01", binary.binary_addition, lambda n: n + 1, ends=True),
    "binary_multiplication": Problem("01*", "01", binary.binary_multiplication, lambda n: n, ends=True),
    "compute_sqrt": Problem("01", "01", binary.compute_sqrt, lambda n: (n + 1) // 2),
}

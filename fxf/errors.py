"""Errors a user can mend: one line that says what, where, what was expected, and the nearest valid name."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A wrong config, file, token or checkpoint. The command line prints its text alone and exits with code 2."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the valid name closest to `name`, or nothing when none is close."""
    matches = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean '{matches[0]}'?" if matches else ""

"""Errors a user can mend: one line that says what, where, what was expected, and the nearest valid name."""

import difflib
from collections.abc import Iterable

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 75  # "try again": the same command goes on from the newest checkpoint


class UserError(Exception):
    """A wrong config, file, token or checkpoint. The command line prints its text alone and exits with code 2."""


class Interrupted(Exception):  # noqa: N818  It is no error.
    """Training stopped between two steps because it was asked to; the last one's checkpoint is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}, which is saved; the same command goes on from there")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the valid name closest to `name`, or nothing when none is close."""
    matches = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean '{matches[0]}'?" if matches else ""

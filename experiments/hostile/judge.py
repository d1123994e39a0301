"""Compares the end of a case with the expected one."""

import re

from experiments.hostile.case import Case
from experiments.hostile.processes import Ended

REFUSED, ACCEPTED = "refused in one line", "accepted and named"
TRACEBACK, HANG, SILENCE, WRONG, FILES = (
    "tracebacks",
    "hangs",
    "accepted in silence",
    "wrong line",
    "files lost or left",
)
OUTCOMES = (REFUSED, ACCEPTED, TRACEBACK, HANG, SILENCE, WRONG, FILES)
MAX_LINE = 1100  # characters; nobody reads a longer line


def outcome(case: Case, ended: Ended) -> tuple[str, str]:
    """Returns the case's outcome, one of OUTCOMES, and what is wrong, or nothing."""
    expected, lines = case.expected, ended.err.splitlines()
    if ended.code is None:
        return HANG, f"no end after {case.seconds:g} s"
    if ended.code < 0 or "Traceback (most recent call last)" in ended.err:
        return TRACEBACK, f"exit code {ended.code}, {len(lines)} lines"
    missing = [part for part in expected.parts if not any(p in ended.out + ended.err for p in part.split("|"))]
    if not expected.refused:
        if ended.code:
            return WRONG, f"exit code {ended.code}, expected 0"
        if expected.lines is not None and (printed := ended.out.count("\n")) != expected.lines:
            return SILENCE, f"{printed} lines of output, expected {expected.lines}"
        return (SILENCE, f"nothing says {missing[0]!r}") if missing else (ACCEPTED, "")
    if ended.code == 0:
        return SILENCE, "exit code 0"
    n_lines = 0 if expected.code == 141 else 1
    wrong = [
        (ended.code != expected.code, f"exit code {ended.code}, expected {expected.code}"),
        (expected.alone and len(lines) != n_lines, f"{len(lines)} lines of stderr, expected {n_lines}"),
        (expected.code == 2 and not "".join(lines[-1:]).startswith("error: "), 'it does not begin with "error: "'),
        (any(not c.isprintable() for line in lines for c in line), "a character is not printable"),
        (expected.alone and len(ended.err) > MAX_LINE, f"{len(ended.err)} characters"),
        (bool(missing), f"it does not say {missing[:1]}"),
    ]
    if found := [what for is_wrong, what in wrong if is_wrong]:
        return WRONG, "; ".join(found)
    if changed := spoilt(case, ended):
        return FILES, changed
    return REFUSED, ""


def spoilt(case: Case, ended: Ended) -> str:
    """Returns the changes that a refused case made in its folder, or nothing."""
    kept = rf"(^|/)lock$|{case.writes}"
    before, after = ({p: x for p, x in c.items() if not re.search(kept, p)} for c in (ended.before, ended.after))
    new, lost = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    other = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    found = (("new", new), ("lost", lost), ("changed", other))
    return "; ".join(f"{what}: {', '.join(paths[:3])}" for what, paths in found if paths)

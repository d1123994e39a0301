"""A hostile case: a command, the changes of its folder, and its expected end."""

import re
from dataclasses import dataclass
from typing import Any

from experiments.hostile.fixtures import RUNS
from experiments.hostile.steps import Step

SECONDS = 60.0


@dataclass(frozen=True)
class Expected:
    """The expected end: exit code 2 and one line of stderr with all `parts`, or exit code 0 and output with them.

    A part may have alternatives: "a|b". `lines` is the number of lines of stdout, if it matters. `code` is 1 if a sweep
    names a failed point with the last line of its log, and 141, without a line, if nobody reads the output. Unless it
    is `alone`, other lines may precede the last one.
    """

    refused: bool
    parts: tuple[str, ...]
    lines: int | None = None
    code: int = 2
    alone: bool = True


def refused(*parts: str) -> Expected:
    return Expected(True, parts)


def failed(*parts: str) -> Expected:
    return Expected(True, parts, code=1, alone=False)


def refused_at_last(*parts: str) -> Expected:
    return Expected(True, parts, alone=False)


def unread() -> Expected:
    return Expected(True, (), code=141)


def accepted(*parts: str, lines: int | None = None) -> Expected:
    return Expected(False, parts, lines)


@dataclass(frozen=True)
class Case:
    """A command with a hostile input.

    Attributes:
      name: a name of the fault.
      command: a script of experiments/ and its arguments, with @NAME for the flags of a tiny run; or
        `load_weights FILE` or `load_huggingface FOLDER`, which read weights files.
      expected: the expected end.
      steps: changes of the folder before the command; it has the data files and the runs that the command names.
      runs: other runs that the folder must have.
      stdin: the content of standard input.
      env: changes of the environment; None removes a variable. Such a case needs its own process.
      stdout: "", or "closed", "full" or "broken pipe". Such a case needs its own process.
      own_process: whether to start a process in any case.
      unprivileged: whether to run without root's power to write read-only files.
      writes: a regular expression for the paths that a refused case may add or remove.
      seconds: the time limit.
    """

    name: str
    command: str
    expected: Expected
    steps: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    stdin: bytes = b""
    env: tuple[tuple[str, str | None], ...] = ()
    stdout: str = ""
    own_process: bool = False
    unprivileged: bool = False
    writes: str = r"$^"
    seconds: float = SECONDS

    def needed(self) -> list[str]:
        """Returns the runs that the case needs, by the first part of their folders."""
        words = {*re.findall(r"[\w]+", self.command), *self.runs}
        return [name for name in dict.fromkeys(name.split("/")[0] for name in RUNS) if name in words]


def case(name: str, command: str, expected: Expected, *steps: Step, **options: Any) -> Case:
    if "env" in options:
        options["env"] = tuple(options["env"].items())
    return Case(name, command, expected, steps, **options)

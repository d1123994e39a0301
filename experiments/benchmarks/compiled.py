"""Recompiles the programs of experiments/results/compile, each by the command at the top of its file.

python -m experiments.benchmarks.compiled [gpt2_h100-1 llama7b_h100-64 ...]

It needs the packages of EXTRAS=compile, and an hour for all. A file has its command, versions, time and output. To add
a program, write a file with its command.
"""

import os
import re
import shlex
import sys
import time
from importlib.metadata import version

from experiments.runner import RESULTS, command, keep, verb
from fxf.base.config import one_of

FOLDER = RESULTS / "compile"
VERSIONS = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt", "libtpu")
COMMAND = re.compile(r"\A\$ (?:.*\\\n)*.*\n")  # with its further lines


def split(line: str) -> tuple[dict[str, str], list[str]]:
    """Splits a command, of one or several lines, into the variables before `fxf`, and the verb with its flags."""
    words = shlex.split(line.removeprefix("$ ").replace("\\\n", " "))
    start = words.index("fxf")
    return dict(word.split("=", 1) for word in words[:start]), words[start + 1 :]


def main() -> None:
    paths = {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}
    names = [one_of(name, paths, "NAME") for name in sys.argv[1:]] or list(paths)
    keep(FOLDER)
    for name in ("JAX_PLATFORMS", "XLA_FLAGS"):  # which choose devices
        os.environ.pop(name, None)
    for name in names:
        line, start = COMMAND.findall(paths[name].read_text())[0], time.monotonic()
        variables, words = split(line)
        printed = command(verb(*words), variables)
        versions = ", ".join(f"{package} {version(package)}" for package in VERSIONS)
        paths[name].write_text(f"{line}# {versions}; {time.monotonic() - start:.0f} s\n\n{printed.strip()}\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()

"""Compiles the programs of experiments/results/compile again, each by the command at the top of its file.

python -m experiments.benchmarks.compiled [--only=gpt2_h100-1,llama7b_h100-64] [--into=FOLDER]

It needs the packages of EXTRAS=compile, and an hour for all of them. A file has its command, versions, time and
output. A new program begins as a file with its command.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from experiments.kept import RESULTS, note_what_made

FOLDER = RESULTS / "compile"
VERSIONS = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt", "libtpu")
COMMAND = re.compile(r"\A\$ (?:.*\\\n)*.*\n")  # with its further lines


def compile_again(command: str) -> str:
    """Returns the text of a file. Ends the program where the command fails."""
    start = time.monotonic()
    variables, words = split(command)
    run = subprocess.run(
        [sys.executable, "-m", "fxf", *words], env=environment() | variables, capture_output=True, text=True
    )
    if run.returncode:
        sys.exit(f"{command}{run.stderr}")
    versions = ", ".join(f"{package} {version(package)}" for package in VERSIONS)
    return f"{command}# {versions}; {time.monotonic() - start:.0f} s\n\n{run.stdout.strip()}\n"


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """Returns the variables before `fxf`, and the verb and the flags, of a command that may go over several lines."""
    words = shlex.split(command.removeprefix("$ ").replace("\\\n", " "))
    start = words.index("fxf")
    return dict(word.split("=", 1) for word in words[:start]), words[start + 1 :]


def environment() -> dict[str, str]:
    """Returns this process's environment without what chooses devices."""
    return {name: value for name, value in os.environ.items() if name not in ("JAX_PLATFORMS", "XLA_FLAGS")}


def main() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.txt"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(names), help="names of files, separated by commas")
    parser.add_argument("--into", type=Path, default=FOLDER, help="another folder to write to")
    given = parser.parse_args()
    chosen = given.only.split(",")
    for name in chosen:
        if name not in names:
            parser.error(f"--only: no {name}.txt in {FOLDER}; one of {', '.join(names)}")
    given.into.mkdir(parents=True, exist_ok=True)
    note_what_made(given.into)
    for name in chosen:
        command = COMMAND.findall((FOLDER / f"{name}.txt").read_text())[0]
        print(name, flush=True)
        (given.into / f"{name}.txt").write_text(compile_again(command))


if __name__ == "__main__":
    main()

"""Runs cases, each in a process and a folder of its own."""

import ctypes
import logging
import multiprocessing
import os
import resource
import runpy
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.hostile.case import Case
from experiments.hostile.fixtures import ROOT, arguments, data_files
from experiments.hostile.steps import borrow

MAX_MEMORY = 8 * 2**30  # bytes of a process's address space, which protects the machine
LOADERS = {
    "load_huggingface": "huggingface.load(arguments[1])",
    "load_weights": "weights_file.load_weights(Path(arguments[1]), run.load(Path('reversal'))[0].model.spec)",
}


@dataclass
class Ended:
    """The end of a case; the code is None if its time was up."""

    code: int | None
    out: str
    err: str
    before: dict[str, object]
    after: dict[str, object]


def script(name: str) -> str:
    """Returns the path of the script that a command names, relative to a case's folder."""
    if (ROOT / "experiments" / name).is_dir():
        return f"experiments/{name}/__main__.py"
    return f"experiments/{name}.py" if name not in LOADERS else f"../{name}.py"


def loader(name: str) -> str:
    """Returns a script that calls the function `name`, which reads weights files."""
    return (
        "from pathlib import Path\nimport sys\nfrom fxf.runs import cli, run\n"
        "from fxf.interop import huggingface, weights_file\n"
        f"cli.run(lambda given: print(type({LOADERS[name].replace('arguments', 'sys.argv')}).__name__))\n"
    )


def limits(case: Case) -> None:
    """Sets the limits of the case's process."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    if case.unprivileged:  # without capabilities even root may write only where the mode allows it
        ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    if case.stdout == "closed":
        os.close(1)


def in_child(case: Case, box: Path, argv: list[str], streams: tuple[int, int, int]) -> None:
    """Runs the script in this forked process."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.chdir(box)
    logging.root.handlers.clear()  # the imports have set up the log
    limits(case)
    sys.argv, sys.path[0] = argv, str((box / argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")


def start(case: Case, box: Path, new_processes: bool) -> tuple[Callable[[], int | None], int]:
    """Starts the case; returns a function for its exit code (None before its end), and its process group."""
    name, *rest = arguments(case.command)
    argv = [script(name), *rest]
    if name in LOADERS:
        (box / argv[0]).write_text(loader(name))
    (box.parent / "stdin").write_bytes(case.stdin)
    reads, writes = os.pipe()
    os.close(reads)
    with (
        (box.parent / "stdin").open("rb") as stdin,
        (box.parent / "stdout").open("wb") as stdout,
        (box.parent / "stderr").open("wb") as stderr,
        open("/dev/full", "wb") as full,
        os.fdopen(writes, "wb") as broken,
    ):
        out = {"full": full, "broken pipe": broken}.get(case.stdout, stdout)
        if new_processes or case.env or case.stdout or case.own_process:
            environment = {**os.environ, **{k: v for k, v in case.env if v is not None}}
            for variable in (k for k, v in case.env if v is None):
                environment.pop(variable, None)
            process = subprocess.Popen(
                [sys.executable, *argv], cwd=box, env=environment, start_new_session=True,
                stdin=stdin, stdout=out, stderr=stderr, preexec_fn=lambda: limits(case),
            )  # fmt: skip
            return process.poll, process.pid
        streams = (stdin.fileno(), out.fileno(), stderr.fileno())
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(case, box, argv, streams))
        child.start()
        assert child.pid
        return lambda: child.exitcode, child.pid


def stop(number: int, poll: Callable[[], int | None]) -> None:
    """Ends a process group whose time is up."""
    for sent, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(number, sent)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while poll() is None and time.monotonic() < until:
            time.sleep(0.02)


def run_all(cases: Iterable[Case], folder: Path, workers: int, new_processes: bool) -> Iterator[tuple[Case, Ended]]:
    """Runs each case in a folder `folder/NUMBER/box`; yields the cases in the order of their ends."""
    waiting = list(enumerate(cases, 1))
    running: list[tuple[Case, Path, dict, Callable[[], int | None], int, float]] = []
    while waiting or running:
        while waiting and len(running) < workers:
            number, case = waiting.pop(0)
            box = folder / f"{number:03}" / "box"
            prepare(box, case)
            before = contents(box)
            poll, group = start(case, box, new_processes)
            running.append((case, box, before, poll, group, time.monotonic() + case.seconds))
        time.sleep(0.02)
        for entry in [*running]:
            case, box, before, poll, group, deadline = entry
            if (code := poll()) is None and time.monotonic() < deadline:
                continue
            running.remove(entry)
            if code is None:
                stop(group, poll)
            out, err = ((box.parent / name).read_text("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
            yield case, Ended(code, out, err, before, contents(box))


def contents(box: Path) -> dict[str, Any]:
    """Returns the content of each path in a folder, without following links."""
    found: dict[str, Any] = {}
    for parent, folders, names in os.walk(box):
        for name in [*folders, *names]:
            path = Path(parent) / name
            info = path.lstat()
            kind = stat.S_IFMT(info.st_mode)
            is_file = stat.S_ISREG(kind)
            found[str(path.relative_to(box))] = path.read_bytes() if is_file and info.st_size < 2**24 else kind
    return found


def prepare(box: Path, case: Case) -> None:
    """Makes the case's folder."""
    data_files(box)
    borrow("tiny.json", "tiny.json")(box)
    for name in case.needed():
        borrow(name, name)(box)
    for step in case.steps:
        step(box)

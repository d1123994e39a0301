"""Small experiments, and the scripts run as a user runs them."""

import atexit
import functools
import gc
import io
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from fxf.config import Choices, flatten
from fxf.runs import guests, run
from fxf.runs.experiment import default_config
from fxf.runs.programs import share

ROOT = Path(__file__).parent.parent
# Starts a process that hears signals which the tests themselves ignore, as under nohup or in the background of a shell.
HEARING = ("env", "--default-signal=INT,HUP,TERM")
TINY = {
    "task": {"n_tokens": 3, "min_length": 1, "max_length": 2},
    "model": {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11},
    "train": {"steps": 6, "batch_size": 5},
    "checkpoint": {"every": 2, "keep": 3},
    "log": {"every": 3, "tensorboard": False, "report": False},
}
KEPT = {}  # the programs of runs in this process, whose files of tests have many of them in common


def tiny_config(**sections):
    """Returns a config that trains in no time; `sections` change keys, for example model={'n_layers': 2}."""
    config = default_config("reversal").to_dict()
    for changes in (TINY, sections):
        for name, values in changes.items():
            if isinstance(values, dict):
                config[name] |= values
            else:
                config[name] = values
    return config


def sharing_programs(patch):
    """Lets the runs that this process loads use the programs of its others, as its trainings do by `kept`."""
    load = run.load

    def load_and_share(*arguments, **options):
        experiment, *rest = load(*arguments, **options)
        return share(experiment, KEPT), *rest

    patch.setattr(run, "load", load_and_share)


def overrides(**sections):
    """Returns the flags that make configs/reversal.py the tiny config."""
    config = tiny_config(**sections)
    flags = ["--config=configs/reversal.py", f"--config.seed={config.pop('seed')}"]
    return flags + [f"--config.{key}={value}" for key, value in flatten(config)]


SECONDS = 600  # until a script counts as hung, on a machine however busy
STRICT = ("-W", "error::RuntimeWarning")


def script(name, *arguments, stdin="", env=None, cwd=ROOT, largest_file=0):
    """Runs experiments/NAME.py, by default in the checkout; returns the finished process, its output as text.

    It runs in a fork of the script server, unless it needs an environment of its own. With `largest_file` it cannot
    write files of more bytes, as on a full disk.
    """
    if env is None:
        with started(name, *arguments, stdin=stdin, cwd=cwd, largest_file=largest_file) as running:
            return running.finished()
    command = [sys.executable, *STRICT, f"{ROOT}/experiments/{name}.py", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=SECONDS, env=env)


def command(verb, *arguments, stdin="", cwd=ROOT):
    """Runs `fxf VERB` in this process, which takes a fraction of a new one's time; returns what `script` returns.

    It shares all compiled programs with the tests. Signals, and what only a new process imports, are not tried so.
    """
    code, before = 0, (gc.get_threshold(), sys.unraisablehook)
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["fxf", verb, *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(logging.root, "handlers", [])  # pytest's, beside which the command adds none
        with new_process(), descriptor_to(2, err):
            try:
                command_main()()
            except SystemExit as end:
                code = end.code
            except BaseException:
                code = 1
                traceback.print_exc()
            finally:
                gc.enable()
                gc.set_threshold(*before[0])
                sys.unraisablehook = before[1]
        said = [(file.flush(), file.seek(0), file.read())[-1] for file in (out, err)]
    return subprocess.CompletedProcess([verb, *arguments], code, *said)


@functools.cache
def command_main():
    """Returns the command's `main`, imported without the thread that would take this process's signals."""
    sys.modules.setdefault("fxf.machine.listen", SimpleNamespace(STARTED=time.perf_counter()))
    from fxf.__main__ import main

    return main


@contextmanager
def descriptor_to(number, file):
    """Sends what is written to a descriptor to a file: the last line of a command does without sys.stderr."""
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


class Running:
    """A script that the script server has started; the next one can start when this one has finished."""

    def __init__(self, arguments, folder):
        self._arguments, self._folder = arguments, folder
        self.pid = int(server().stdout.readline())
        self._code = None

    def ended(self):
        """Tells whether the process is gone."""
        return not Path(f"/proc/{self.pid}").exists()

    def finished(self):
        """Returns what the process leaves when it has ended."""
        if self._code is None:
            self._code = int(server().stdout.readline())
        texts = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(self._arguments, self._code, *texts)


@contextmanager
def started(name, *arguments, stdin="", cwd=ROOT, largest_file=0):
    """Starts experiments/NAME.py in a fork of the script server, and kills it in the end."""
    arguments = [f"{ROOT}/experiments/{name}.py", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "stdin").write_text(stdin)
        request = {"arguments": arguments, "environment": dict(os.environ), "folder": str(folder)}
        request |= {"cwd": str(cwd), "largest_file": largest_file}
        print(json.dumps(request), file=server().stdin, flush=True)
        running = Running(arguments, folder)
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
            running.finished()


@functools.cache
def server():
    command = [sys.executable, *STRICT, "tests/script_server.py"]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # no threads, which a fork would lose
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True)

    @atexit.register
    def end():
        process.stdin.close()
        process.stdout.close()
        process.wait()

    return process


def environment():
    """Returns the environment of scripts that share no compiled programs with others."""
    shared = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return shared | {"JAX_ENABLE_COMPILATION_CACHE": "false"}


@contextmanager
def no_file_larger_than(n_bytes):
    """Makes writes fail beyond so many bytes of a file, in this process and those it starts, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@contextmanager
def new_process():
    """Forgets before and after which files were executed, what they added to choices, and the modules beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        for choices, name, before in Choices.added:
            if before is None and name in [*choices]:
                patch.delitem(choices, name)
        patch.setattr(Choices, "added", added := [])
        for name in modules_of(guests._executed):
            patch.delitem(sys.modules, name)
        patch.setattr(guests, "_executed", executed := {})
        try:
            yield
        finally:
            for choices, name, before in added:
                if before is None:
                    choices.pop(name, None)
            for name in modules_of(executed):
                del sys.modules[name]


def modules_of(executed):
    """Returns the names of the modules in the folders of these files, but for the tests' own."""
    folders = {str(path.parent) for path in executed}
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return [name for name, file in files.items() if file.rpartition("/")[0] in folders and not name.startswith("test_")]

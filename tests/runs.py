"""Small experiments, and the scripts run as a user runs them."""

import atexit
import contextlib
import io
import os
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from absl import flags

from fxf.experiment import default_config

CACHE = tempfile.mkdtemp(prefix="fxf-scripts-")
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)

ROOT = Path(__file__).parent.parent
TINY = {
    "task": {"n_tokens": 3, "min_length": 1, "max_length": 2},
    "model": {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11},
    "train": {"steps": 6, "batch_size": 5},
    "checkpoint": {"every": 2, "keep": 3},
    "log": {"every": 3, "tensorboard": False},
}


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


def overrides(**sections):
    """Returns the flags that make configs/reversal.py the tiny config."""
    config = tiny_config(**sections)
    flags = ["--config=configs/reversal.py", f"--config.seed={config.pop('seed')}"]
    for section, values in config.items():
        flags += [f"--config.{section}.{key}={value}" for key, value in values.items()]
    return flags


def script(name, *arguments, stdin="", python=("-W", "error::RuntimeWarning"), env=None):
    """Runs experiments/NAME.py; returns the finished process, its output as text."""
    command = [sys.executable, *python, f"experiments/{name}.py", *map(str, arguments)]
    env = env or compiled_once()
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=600, env=env)


def script_here(name, *arguments, stdin=""):
    """Runs experiments/NAME.py in this process, which takes no seconds to start; returns what `script` returns.

    JAX, its devices and the environment are those of this process.
    """
    argv = [f"experiments/{name}.py", *map(str, arguments)]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before, hook = set(flags.FLAGS), sys.unraisablehook
    code = 0
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch("fxf.signals.listen"),  # signals are for this process
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        stderr_in_a_file() as err,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # as Python does outside of tests
        try:
            runpy.run_path(argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        finally:
            for flag in set(flags.FLAGS) - before:  # each script defines its own
                delattr(flags.FLAGS, flag)
            flags.FLAGS.unparse_flags()
            sys.unraisablehook = hook
        err.seek(0)
        errors = err.read()
    return subprocess.CompletedProcess(argv, code, out.buffer.getvalue().decode(), errors)


@contextmanager
def stderr_in_a_file():
    """Gives a file that gets what is written to stderr, also by its file descriptor."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", buffering=1) as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.redirect_stderr(file):
                yield file
        finally:
            file.flush()
            os.dup2(before, 2)
            os.close(before)


def environment():
    return {**os.environ, "JAX_PLATFORMS": "cpu"}


def compiled_once():
    """Returns the environment of scripts that run one after the other, and compile each program but once."""
    return {
        **environment(),
        "JAX_COMPILATION_CACHE_DIR": CACHE,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@contextmanager
def no_file_larger_than(n_bytes):
    """Makes writes fail beyond so many bytes of a file, in this process and those it starts, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))

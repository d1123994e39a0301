"""Small experiments, and the scripts run as a user runs them."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from fxf.experiment import default_config

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


def script(name, *arguments, stdin="", python=("-W", "error::RuntimeWarning")):
    """Runs experiments/NAME.py; returns the finished process, its output as text."""
    command = [sys.executable, *python, f"experiments/{name}.py", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=120, env=environment()
    )


def environment():
    return {**os.environ, "JAX_PLATFORMS": "cpu"}


@contextmanager
def no_file_larger_than(n_bytes):
    """Makes writes fail beyond so many bytes of a file, in this process and those it starts, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))

"""Small experiments, and commands run as a user runs them."""

import gc
import io
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest

import fxf
from fxf.base import signals
from fxf.base.config import flatten
from fxf.base.errors import Interrupted
from fxf.runs import guests, probe, run
from fxf.runs.experiment import default_config
from fxf.training import record
from helpers import table

ROOT = Path(__file__).parent.parent
# Starts a process that receives signals which the tests ignore, as they do under nohup or in a shell's background.
HEARING = ("env", "--default-signal=INT,HUP,TERM")
TINY, TEXT = (sections for sections, _ in table("small runs"))
ORIGIN = {"config_file": "test", "overrides": {}}
KEPT = {}  # programs of runs in this process, shared between files of tests


class Shared(dict):
    """Keeps one set of programs in KEPT for runs with different keys that compile the same programs."""

    def setdefault(self, key, programs):
        return super().setdefault("", KEPT.setdefault(key, programs))


def tiny_config(**sections):
    """Returns a config that trains quickly; `sections` change keys, for example model={'n_layers': 2}."""
    return with_sections(default_config("reversal").to_dict(), TINY, sections)


def text_config(path, **sections):
    """Returns a config of a language model on a text that trains quickly."""
    return with_sections(default_config("language_model").to_dict(), TEXT, {"data": {"path": str(path)}}, sections)


def with_sections(config, *changes):
    """Changes keys of a config in place, and returns it."""
    for name, values in (item for each in changes for item in each.items()):
        config[name] = {**config[name], **values} if isinstance(values, dict) else values
    return config


def trained(config, workdir, origin=None, **options):
    """Trains the run of a config in a folder, as the command does, and returns its result."""
    return run.train(config, workdir, origin or ORIGIN, **options)


@contextmanager
def crash_after(step):
    """Makes training crash after the call that reaches a step, before that step is saved."""

    class CrashError(Exception):
        pass

    def crash(history, before, _):
        if before + len(history["loss_sum"]) >= step:
            raise CrashError
        return 0

    with pytest.MonkeyPatch.context() as patch, pytest.raises(CrashError):
        patch.setattr(record, "_zero_nonfinite", crash)
        yield


def records(workdir):
    """Returns the records of a run."""
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def without_times(rows):
    """Returns rows of metrics without those of time."""
    return [{name: x for name, x in row.items() if "second" not in name and name != "goodput"} for row in rows]


def sharing_programs(patch):
    """Lets runs loaded in this process share programs, as trainings do by `kept`."""
    load = run.load

    def load_and_share(*arguments, **options):
        experiment, *rest = load(*arguments, **options)
        return experiment.sharing(KEPT), *rest

    patch.setattr(run, "load", load_and_share)


def assert_serves(workdir, result, prompt, text):
    """Asserts that a finished run reproduces its result, generates and can be inspected; returns the experiment."""
    with new_process():
        figures = run.evaluate(workdir)
        assert figures == {"step": result["steps"], **{name: result[name] for name in figures if name != "step"}}
    with new_process():
        ((answer, *_),) = fxf.load(workdir).answers([prompt])
        assert isinstance(answer[0], str)
    with new_process():
        experiment, _, params = run.load(workdir)
        arrays = probe.read(experiment, params, prompt, text).arrays
        assert any(key.startswith("params/") for key in arrays) and any("residual" in key for key in arrays)
    return experiment


def assert_stops(patch, train):
    """Asserts that a training that is told to stop saves its first step and stops."""
    with patch.context() as stopping, pytest.raises(Interrupted, match="which is saved"):
        stopping.setattr(signals, "asked", lambda: True)
        train()


def overrides(**sections):
    """Returns the flags that make configs/reversal.py the tiny config."""
    config = tiny_config(**sections)
    flags = ["--config=configs/reversal.py", f"--config.seed={config.pop('seed')}"]
    return flags + [f"--config.{key}={value}" for key, value in flatten(config)]


SECONDS = 600  # until a script counts as hung, even on a busy machine


def script(name, *arguments, stdin="", env=None, cwd=ROOT):
    """Runs `fxf NAME`, or a file, in a new process, by default in the checkout; returns the finished process.

    `command` takes a fraction of the time, and suits all tests except those of processes.
    """
    return subprocess.run(
        words_of(name, arguments), cwd=cwd, input=stdin, capture_output=True, text=True, timeout=SECONDS, env=env
    )


def words_of(name, arguments):
    """Returns the words of a shell command."""
    program = [f"{ROOT}/{name}"] if name.endswith(".py") else ["-P", "-m", "fxf", name]
    return [*HEARING, sys.executable, "-W", "error::RuntimeWarning", *program, *map(str, arguments)]


def command(verb, *arguments, stdin="", cwd=ROOT):
    """Runs `fxf VERB` in this process, which is much faster than a new one; returns what `script` returns.

    It shares all compiled programs with the tests. It does not cover signals, and imports of a new process.
    """
    from fxf.verbs.command import main  # only some tests need it

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
        patch.setattr(logging.root, "handlers", [])  # pytest's, so the command adds none
        with new_process(), descriptor_to(2, err):
            try:
                main()
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


@contextmanager
def descriptor_to(number, file):
    """Redirects a file descriptor to a file, because a command's last line bypasses sys.stderr."""
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextmanager
def started(name, *arguments):
    """Starts `fxf NAME`, and kills it at the end; the process's `finished` returns its outcome."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words_of(name, arguments), cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process):
    """Waits for a started process; returns its exit code and standard error."""
    errors = process.communicate(timeout=SECONDS)[1]
    return process.returncode, errors


def environment():
    """Returns the environment for scripts that share no compiled programs."""
    shared = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return shared | {"JAX_ENABLE_COMPILATION_CACHE": "false"}


@contextmanager
def no_file_larger_than(n_bytes):
    """Makes writes beyond a file size fail in this process and its children, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@contextmanager
def new_process():
    """Forgets, before and after, which files were executed, and the modules beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        for name in modules_of(guests._executed, [*sys.modules]):
            patch.delitem(sys.modules, name)
        known = {*sys.modules}
        patch.setattr(guests, "_executed", executed := {})
        try:
            yield
        finally:
            for name in modules_of(executed, sys.modules.keys() - known):
                del sys.modules[name]


def modules_of(executed, names):
    """Returns those of these names whose modules are in the folders of these files, except the tests' own."""
    folders = {str(path.parent) for path in executed}
    files = ((name, sys.modules[name].__dict__.get("__file__") or "") for name in names if folders)
    return [name for name, file in files if os.path.dirname(file) in folders and not name.startswith("test_")]

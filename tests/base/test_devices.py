"""JAX platforms that are requested but missing, and how small processes without JAX handle signals.

Also cached programs, reports of compilation and device memory, and what a terminal shows.
"""

import ast
import os
import signal
import stat
import subprocess
import sys
import warnings
from functools import partial
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from fxf.base import compiled, memory, status
from fxf.base.compiled import seconds_of_compiling
from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from fxf.base.kept_programs import folder_of_programs, keep_programs
from helpers import table
from small_runs import HEARING, ROOT

START = """
from fxf.base import devices
from fxf.base.errors import UserError
from fxf.verbs import generate
from fxf.verbs.flags import Parser
devices.ACCELERATORS = ["/dev/no_such*"]
try:
    Parser("fxf generate", generate)  # its flags are in a package that imports JAX
    import jax
    print(jax.config.jax_platforms)
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(("variables", "said"), table("environments in which JAX starts"))
def test_jax_starts_on_an_available_backend_or_one_line_says_why_not(variables, said):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"} | variables
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1 and done.stderr == ""


def test_a_missing_backend_is_named_in_one_line(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    for error, why in (
        (AssertionError(), r"JAX has no such devices here \(JAX_PLATFORMS=cuda"),
        (RuntimeError("Unable to initialize backend 'tpu'\nmore"), r"Unable to initialize backend 'tpu' \(JAX_PL"),
    ):
        monkeypatch.setattr(jax, "devices", mock.Mock(side_effect=error))
        with pytest.raises(UserError, match=f"^no device: {why}"):
            require_devices()


BEGIN = """
import fxf.base.listen
import ctypes, sys
from fxf.base import signals
def in_c(seconds=30):
    print("ready", flush=True)
    ctypes.CDLL(None).usleep(round(1e6 * seconds))
"""


def meet(program, *numbers, start=HEARING):
    """Sends a signal each time the program prints a line; returns exit code, standard output after it, and error."""
    command = [*start, sys.executable, "-c", BEGIN + program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        for number in numbers:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
        stdout, stderr = process.communicate(timeout=300)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_process_in_one_line_also_inside_c_unless_it_was_ignored_at_the_start(number):
    code = 130 if number == signal.SIGINT else 75
    assert meet("in_c()", number) == (code, "", f"stopped by {number.name}\n")
    start = ["env", f"--ignore-signal={number.name}"]
    assert meet("in_c(0.05)\nprint('done')", number, start=start) == (0, "done\n", "")


SAVES = """
signals.hold()
in_c(0.3)
while not signals.asked(): pass
SAVED
signals.print_last_line("saved")
sys.exit(signals.exit_code())
"""


@pytest.mark.parametrize(("case", "said"), table("signals while a run saves"))
def test_a_signal_saves_the_held_state_whatever_signals_follow(case, said):
    numbers = [signal.Signals[f"SIG{name}"] for name in case["signals"].split()]
    assert meet(SAVES.replace("SAVED", case["saved"]), *numbers) == (case["code"], "", f"{said}\n")


def config(folder=None, enabled=True):
    """Returns what `keep_programs` reads and changes of `jax.config`."""
    found = SimpleNamespace(jax_compilation_cache_dir=folder, jax_enable_compilation_cache=enabled)
    found.update = partial(setattr, found)
    return found


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def test_the_newest_programs_are_cached_in_a_folder_that_only_the_user_can_read(home, monkeypatch):
    monkeypatch.setattr("fxf.base.kept_programs.LARGEST", 3)
    for when in (2, 1, 3):
        keep_programs(found := config())
        (program := folder_of_programs() / f"{when}-cache").write_bytes(b"f()")
        os.utime(program, (when, when))
    assert {path.name for path in folder_of_programs().iterdir()} == {"2-cache", "3-cache"}
    assert found.jax_compilation_cache_dir == str(folder_of_programs())
    assert stat.S_IMODE(folder_of_programs().stat().st_mode) == 0o700
    assert found.jax_persistent_cache_min_compile_time_secs == 0
    warnings.warn("Error writing persistent compilation cache entry for 'f'", stacklevel=1)  # is ignored


@pytest.mark.parametrize("given", [config("elsewhere"), config(enabled=False)])
def test_the_environment_may_choose_another_cache_folder_or_none(given, home):
    before = vars(given).copy()
    keep_programs(given)
    assert (vars(given), folder_of_programs().exists()) == (before, False)


@pytest.mark.parametrize(("of", "expected"), table("memory of devices"))
def test_memory_is_that_of_the_fullest_device_and_unknown_on_a_cpu(of, expected, monkeypatch):
    devices = [SimpleNamespace(memory_stats=lambda stats=stats: stats) for stats in of["each"]]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.held_on_a_device() == ast.literal_eval(expected)


def test_nested_tracing_is_not_counted_twice(monkeypatch):
    monkeypatch.setattr(compiled, "_spans", [])
    monkeypatch.setattr(compiled.time, "perf_counter", iter([7.0, 8.0, 12.0]).__next__)
    for event, duration in (("jaxpr_trace_duration", 2.0), ("jaxpr_trace_duration", 4.0), ("backend_compile", 3.0)):
        compiled._count(f"/jax/core/compile/{event}", duration)
    assert seconds_of_compiling() == 7  # the first trace is a part of the second


def test_jax_reports_each_program_once():
    function, x = jax.jit(lambda x: jnp.sin(x) + 1), jnp.ones(3)
    seconds = []
    for _ in range(2):
        before = seconds_of_compiling()
        function(x)
        seconds.append(seconds_of_compiling() - before)
    assert seconds[0] > 0 == seconds[1]


def test_a_terminal_shows_the_open_stages_and_beside_the_innermost_its_text(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with status.stage("around"), status.stage("inside", 8) as progress:
        progress(2)
        status.tell("loss 3", "a log's line")
        status.say("[b]said")
        with status.stage("then"):
            pass
    shown = capsys.readouterr().err
    *_, around, inside, _ = shown.partition("then")[0].split("\n")
    assert "loss" not in around and all(text in inside for text in ("inside", "25%", "loss 3"))
    assert "[b]said\n" in shown and "log's" not in shown

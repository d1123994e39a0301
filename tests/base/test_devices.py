"""What the environment asks of JAX and cannot have, and what small processes without JAX do at signals."""

import os
import signal
import subprocess
import sys
from unittest import mock

import jax
import pytest

from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from helpers import table
from small_runs import HEARING, ROOT

START = """
from fxf.base import devices
from fxf.base.errors import UserError
devices.ACCELERATORS = ["/dev/no_such*"]
try:
    devices.start_jax()
    import jax
    print(jax.config.jax_platforms)
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(("variables", "said"), table("environments in which JAX starts"))
def test_jax_starts_on_what_is_there_or_one_line_says_why_not(variables, said):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"} | variables
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1 and done.stderr == ""


def test_a_backend_that_is_not_there_is_named_in_one_line(monkeypatch):
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
ALL = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


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


@pytest.mark.parametrize("number", ALL)
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
def test_what_is_held_is_saved_whatever_comes_next(case, said):
    numbers = [signal.Signals[f"SIG{name}"] for name in case["signals"].split()]
    assert meet(SAVES.replace("SAVED", case["saved"]), *numbers) == (case["code"], "", f"{said}\n")

"""What the environment asks of JAX and cannot have is one line. Each case needs a process that has not started JAX."""

import os
import subprocess
import sys

import jax
import pytest

from fxf.base.devices import require_devices
from fxf.base.errors import UserError

START = """
from fxf.base.devices import require_devices, start_jax
from fxf.base.errors import UserError
try:
    start_jax()
    require_devices()
except UserError as error:
    print(error)
"""


def said(**variables):
    """Returns what a process with these variables says when it starts JAX."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)


def test_what_jax_cannot_read_of_the_environment_is_one_line():
    finished = said(JAX_NUM_CPU_DEVICES="abc")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith('JAX does not start: Invalid value "abc" for JAX flag jax_num_cpu_devices (')
    assert finished.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("there", "platforms"),
    [("/dev/no_such*", "cpu"), pytest.param("/dev/null", "None", marks=pytest.mark.thorough)],
)
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev")
def test_jax_looks_for_no_accelerator_where_the_system_shows_none_and_the_user_names_none(there, platforms):
    program = f"from fxf.base import devices; devices.ACCELERATORS = [{there!r}]; devices.start_jax()"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-c", f"{program}; import jax; print(jax.config.jax_platforms)"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == (f"{platforms}\n", "")


def test_a_backend_without_a_reason_is_named_by_the_variable(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(UserError, match=r"no device: JAX has no such devices here \(JAX_PLATFORMS=cuda"):
        require_devices()

"""What the environment asks of JAX and cannot have is one line."""

import os
import subprocess
import sys

import jax
import pytest

from fxf.base.devices import require_devices
from fxf.base.errors import UserError

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


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"JAX_NUM_CPU_DEVICES": "abc"}, 'JAX does not start: Invalid value "abc" for JAX flag jax_num_cpu_devices ('),
        ({}, "cpu"),  # it looks for no accelerator where the system shows none and the user names none
    ],
)
def test_jax_starts_on_what_is_there_or_one_line_says_why_not(variables, said):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"} | variables
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (AssertionError(), r"JAX has no such devices here \(JAX_PLATFORMS=cuda"),
        (RuntimeError("Unable to initialize backend 'tpu'\nmore"), r"Unable to initialize backend 'tpu' \(JAX_PL"),
    ],
)
def test_a_backend_that_is_not_there_is_named_in_one_line(error, why, monkeypatch):
    def fail():
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(UserError, match=f"^no device: {why}"):
        require_devices()

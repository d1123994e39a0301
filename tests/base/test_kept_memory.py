import os
import platform
import subprocess
import sys
from unittest import mock

from fxf.base.kept_memory import keep_memory

# Prints the pages of memory that a step of 16 MiB of activations needs: the fewest of ten, as some steps grow the heap.
PAGES = """
import resource
import jax
import jax.numpy as jnp
from fxf.base.devices import require_devices

require_devices()
step, x, pages = jax.jit(lambda x: jnp.tanh(x @ x.T) @ x), jnp.ones((2048, 8)), []
for _ in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = jax.block_until_ready(step(x))
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(pages))
"""


def in_a_process(code):
    """Returns the numbers that a process prints whose malloc nobody has set."""
    unset = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES" and name[:7] != "MALLOC_"}
    environment = {**unset, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=120)
    return [int(number) for number in done.stdout.split()]


def test_a_step_gets_the_memory_that_the_step_before_has_freed():
    (pages,) = in_a_process(PAGES)
    new_pages = 16 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert pages < new_pages / 10 or platform.libc_ver()[0] != "glibc"


def test_the_variables_of_malloc_choose_otherwise(monkeypatch):
    for name, value in (("MALLOC_ARENA_MAX", "4"), ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            keep_memory(config := mock.Mock())
        assert not config.update.called

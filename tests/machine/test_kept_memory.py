import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fxf.machine import kept_memory
from fxf.machine.kept_memory import keep_memory

# Prints the pages of memory that a step of 16 MiB of activations needs: the fewest of ten, as some steps grow the heap.
PAGES = """
import resource
import jax
import jax.numpy as jnp
from fxf.machine.devices import require_devices

require_devices()
step, x, pages = jax.jit(lambda x: jnp.tanh(x @ x.T) @ x), jnp.ones((2048, 8)), []
for _ in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = jax.block_until_ready(step(x))
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(pages))
"""

# Prints the size of the heap for which huge pages are asked, and the memory that this takes, in kilobytes.
ADVISED = """
import re
import jax
from fxf.machine.kept_memory import keep_memory

def read(name):
    return open(f"/proc/self/{name}").read()

before = int(re.search(r"VmRSS:\\s+(\\d+)", read("status"))[1])
keep_memory(jax.config)
after = int(re.search(r"VmRSS:\\s+(\\d+)", read("status"))[1])
heaps = re.findall(r"\\[heap\\]\\n(?:[A-Z]\\w+:.*\\n)+", read("smaps"))
sizes = [int(re.search(r"Size: +(\\d+)", heap)[1]) for heap in heaps if " hg" in heap]
print(max(sizes, default=0), after - before)
"""

# Prints the flags of the memory that a thread allocates.
OF_A_THREAD = """
import ctypes
import re
import threading
import jax
from fxf.machine.kept_memory import keep_memory

keep_memory(jax.config)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
starts = []
thread = threading.Thread(target=lambda: starts.append(libc.malloc(2**25)))
thread.start()
thread.join()
areas = re.findall(r"(?ms)^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: (.*?)$", open("/proc/self/smaps").read())
middle = starts[0] + 2**24
print(*[flags for first, end, flags in areas if int(first, 16) <= middle < int(end, 16)])
"""

HAS_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage").exists() and platform.libc_ver()[0] == "glibc"


class Config:
    """Records what `keep_memory` changes of `jax.config`."""

    def __init__(self):
        self.changed = {}

    def update(self, name, value):
        self.changed[name] = value


def printed_by(program):
    """Returns what a program prints on a CPU without variables of malloc."""
    unset = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES" and name[:7] != "MALLOC_"}
    environment = {**unset, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_a_step_gets_the_memory_that_the_step_before_has_freed():
    printed = printed_by(PAGES)
    new_pages = 16 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert int(printed) < new_pages / 10 or platform.libc_ver()[0] != "glibc"


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="needs huge pages and glibc")
def test_huge_pages_are_asked_for_the_heap_and_no_memory_is_used_for_that():
    advised, used = map(int, printed_by(ADVISED).split())
    assert advised >= 2**20 and used < 2**13  # kilobytes


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="needs huge pages and glibc")
def test_huge_pages_are_asked_for_the_memory_of_another_thread():
    assert "hg" in printed_by(OF_A_THREAD).split()


def test_memory_is_prepared_once_in_a_process(monkeypatch):
    made = []
    monkeypatch.setattr(kept_memory, "_make_heaps", made.append)
    monkeypatch.setattr(kept_memory, "_ask_for_huge_pages", lambda size: None)
    config = Config()
    kept_memory.keep_memory(config)
    kept_memory.keep_memory(config)
    assert len(made) <= 1


def test_a_machine_that_allows_fewer_threads_gets_fewer_heaps_and_no_thread_stays(monkeypatch):
    allowed, made, start = [None] * 2, [], kept_memory.threading.Thread.start

    def start_if_allowed(thread):
        if not allowed:
            raise RuntimeError("can't start new thread")
        allowed.pop()
        start(thread)

    monkeypatch.setattr(kept_memory.threading.Thread, "start", start_if_allowed)
    monkeypatch.setattr(kept_memory, "_ask_for_huge_pages", made.append)
    before = set(kept_memory.threading.enumerate())
    kept_memory._make_heaps(5)
    assert len(made) == 2
    assert set(kept_memory.threading.enumerate()) <= before


@pytest.mark.parametrize("variable", ["MALLOC_ARENA_MAX=4", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"])
def test_the_variables_of_malloc_choose_otherwise(variable, monkeypatch):
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    config = Config()
    keep_memory(config)
    assert not config.changed

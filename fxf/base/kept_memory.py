"""Freed memory stays with the process, in huge pages, so that the buffers of the next step need no new pages."""

import ctypes
import functools
import os
from typing import Any

# The parameters of glibc's mallopt, with their numbers in malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
LARGEST = 2**31 - 1  # bytes that may stay free at the end of the main thread's heap
HEAP = 2**26  # bytes that glibc asks Linux for at a time
HUGE_PAGE, MADV_HUGEPAGE = 2**21, 14  # bytes; and the advice's number in Linux


@functools.cache
def keep_memory(config: Any) -> None:
    """Lets glibc keep memory that is freed, unless the environment sets variables of its malloc.

    XLA allocates the buffers of a step on a CPU, and frees them after it. By default glibc returns large ones to Linux,
    which then fills the pages of the next step with zeros: about a third of the time of a small model's step. Only the
    main thread's heap keeps buffers of any size. So JAX's asynchronous dispatch is turned off, and steps run in that
    thread, unless JAX has started its devices already. With another malloc nothing changes. It runs once per process.

    Args:
      config: `jax.config`.
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, LARGEST)
        libc.mallopt(TOP_PAD, HEAP)
        _ask_for_huge_pages(libc, LARGEST - 2 * HEAP)
        config.update("jax_cpu_enable_async_dispatch", False)


def _ask_for_huge_pages(libc: ctypes.CDLL, size: int) -> None:
    """Asks Linux for huge pages for the next `size` bytes of the heap; this uses no memory yet.

    The processor caches the addresses of few pages. With huge ones a small model's step takes about a tenth less time.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.madvise.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], [ctypes.c_void_p]
    start = libc.malloc(size)
    if start:
        first = -(-start // HUGE_PAGE) * HUGE_PAGE
        libc.madvise(first, (start + size - first) // HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE)
        libc.free(start)

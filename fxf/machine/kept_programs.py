"""Compiled programs are kept in a folder of the user's own, so that the next run of the same program starts sooner."""

import contextlib
import hashlib
import os
import platform
import time
from pathlib import Path
from typing import Any

LONGEST_WRITE = 60  # seconds
LARGEST = 2 * 2**30  # bytes; JAX removes the programs that were not used for longest


def keep_programs(config: Any) -> None:
    """Lets JAX keep each program that it compiles, and find it again, unless the environment names another folder.

    Only the user can read and write the folder, because a program in it is code. A machine whose folder cannot be made
    keeps none.

    Args:
      config: `jax.config`.
    """
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    try:
        folder = folder_of_programs()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError):  # a user without a home
        return
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        return
    _remove_unfinished(folder)
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_compilation_cache_max_size", LARGEST)
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _remove_unfinished(folder: Path) -> None:
    """Removes programs whose process ended while it wrote them: JAX writes the time of a program after the program."""
    for path in folder.glob("*-cache"):
        with contextlib.suppress(OSError):
            finished = path.with_name(path.name.removesuffix("-cache") + "-atime").exists()
            if not finished and time.time() - path.stat().st_mtime > LONGEST_WRITE:
                path.unlink()


def folder_of_programs() -> Path:
    """Returns the folder of the programs for this kind of processor; several machines may share a home."""
    cpu = "".join(line for line in _cpu_lines() if line.startswith(("model name", "flags", "Features")))
    kind = hashlib.sha256(f"{platform.machine()} {cpu}".encode()).hexdigest()[:16]
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "fxf" / f"programs-{kind}"


def _cpu_lines() -> list[str]:
    """Returns the description of the first processor, where the system has one."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return []

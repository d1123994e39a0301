"""Compiled programs are cached in a folder of the user's own, so that the next run of a program starts sooner."""

import contextlib
import hashlib
import os
import platform
import warnings
from pathlib import Path
from typing import Any

LARGEST = 2 * 2**30  # bytes; beyond them a start removes the least recently used programs


def keep_programs(config: Any) -> None:
    """Turns on JAX's cache of compiled programs, unless the environment names another folder or turns the cache off.

    Where the folder cannot be made, nothing is cached.

    Args:
      config: `jax.config`.
    """
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    try:
        folder = folder_of_programs()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a program in it is code, so nobody else may write there
        remove_unused(folder)
    except (OSError, RuntimeError):  # a user without a home
        return
    # Of each program, if the disk is full or read-only, or a call by root made the folder.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def remove_unused(folder: Path) -> None:
    """Removes the least recently used programs beyond `LARGEST`.

    JAX would do so at each program that it writes, after reading a file of each other one: a second for 15,000.
    """
    with contextlib.suppress(FileNotFoundError):  # another command removes them at the same time
        found, size = [(path, path.stat()) for path in folder.iterdir()], 0
        for path, facts in sorted(found, key=lambda pair: -max(pair[1].st_atime, pair[1].st_mtime)):
            size += facts.st_size
            if size > LARGEST:
                path.unlink()


def folder_of_programs() -> Path:
    """Returns the folder of the programs for this kind of processor; several machines may share a home."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").split("\n\n")[0].splitlines() if cpuinfo.exists() else []
    cpu = "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    kind = hashlib.sha256(f"{platform.machine()} {cpu}".encode()).hexdigest()[:16]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fxf" / f"programs-{kind}"

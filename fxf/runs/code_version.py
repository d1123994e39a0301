"""The code and the machine of a run: a digest of the sources, versions of packages, the commit and the devices."""

import functools
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from fxf.base.files import digest, file_digest, files_below

PACKAGE = Path(__file__).parent.parent  # the code of a run
PACKAGES = ("fxf", "jax", "flax", "optax", "orbax-checkpoint", "numpy")


def made_by() -> dict[str, Any]:
    """Returns the digest of the code, versions, commit and devices, as config.json records them."""
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    machine = f"{platform.platform()}, {os.cpu_count()} cores"
    return {**code(), "git_commit": _git_commit(), "device": device, "machine": machine}


def code() -> dict[str, Any]:
    """Returns the digest of the code, and the versions of Python and the packages."""
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}
    return {"code": code_digest(), "versions": versions}


def other_code(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the code that last trained the run of a config.json, and this code; None if they are equal."""
    last = next(each for each in reversed([record, *record.get("changes", [])]) if "code" in each)
    old, new = {name: last[name] for name in ("code", "versions")}, code()
    return (old, new) if old != new else None


@functools.cache
def code_digest() -> str:
    """Returns a digest of fxf's source files. It leaves out the configs that a wheel carries among them."""
    sources = [p for p in files_below(PACKAGE) if p.suffix == ".py" and PACKAGE / "configs" not in p.parents]
    return digest("\n".join(file_digest(path) for path in sources).encode())


@functools.cache
def _git_commit() -> str | None:
    """Returns the commit of the source tree, with '+changes' where files differ from it; None outside a checkout."""
    describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        done = subprocess.run(describe, cwd=PACKAGE, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

"""The code and the machine of a run: a digest of the sources, versions of packages, the commit and the devices."""

import functools
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from fxf.files import digest, file_digest, files_below

PACKAGE = Path(__file__).parent.parent  # the code of a run
PACKAGES = ("fxf", "jax", "flax", "optax", "orbax-checkpoint", "numpy")


def made_by() -> dict[str, Any]:
    """Returns the digest of the code, versions, commit and devices, as config.json records them."""
    return {"code": code_digest(), "versions": _versions(), "git_commit": _git_commit(), **_devices()}


def other_code(before: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the versions of the code that last trained a run and of this code, or None if they are equal."""
    last = next(record for record in reversed(before) if "code" in record)
    old, new = {"code": last["code"], "versions": last["versions"]}, {"code": code_digest(), "versions": _versions()}
    return (old, new) if old != new else None


def written_by(record: Mapping[str, Any]) -> str:
    """Returns which fxf wrote a config.json, as a part of a line; nothing if it is this one, or if it does not say."""
    versions, commit = record.get("versions"), record.get("git_commit")
    if not isinstance(versions, dict) or record.get("code") == code_digest():
        return ""
    return (
        f"; fxf {versions.get('fxf')}{f' of commit {commit}' if commit else ''} wrote it, this is {_versions()['fxf']}"
    )


@functools.cache
def code_digest() -> str:
    """Returns a digest of fxf's source files. It leaves out the configs that a wheel carries among them."""
    sources = [p for p in files_below(PACKAGE) if p.suffix == ".py" and PACKAGE / "configs" not in p.parents]
    return digest("\n".join(file_digest(path) for path in sources).encode())


@functools.cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}


@functools.cache
def _git_commit() -> str | None:
    """Returns the commit of the source tree, with '+changes' where files differ from it; None outside a checkout."""
    try:
        describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
        return subprocess.run(
            describe, cwd=PACKAGE, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _devices() -> dict[str, str]:
    device = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    return {"device": device, "machine": f"{platform.platform()}, {os.cpu_count()} cores"}

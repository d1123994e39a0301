"""The run folder: config.json, metrics.jsonl, tensorboard/, checkpoints/, result.json."""

import json
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from fxf import processes
from fxf.config import differing_keys, flatten
from fxf.errors import UserError
from fxf.files import write_atomically

PACKAGES = ("fxf", "jax", "flax", "optax", "orbax-checkpoint", "numpy")


def open_for_training(
    workdir: Path, config: dict[str, Any], origin: dict[str, Any], files: Mapping[str, str] = {}
) -> None:
    """Makes the folder and writes config.json, or checks that the run it holds has the same config.

    Of several processes the first one writes.

    Args:
      config: the resolved config.
      origin: what it came from: file and overrides.
      files: what the run carries with it, texts by file name.

    Raises:
      UserError: the folder cannot be written, or holds a run with another config.
    """
    require_same_config(workdir, config)
    path = workdir / "config.json"
    if path.exists() or not processes.first():
        return
    record = {"config": config, **origin, "versions": _versions(), "git_commit": _git_commit(), "device": _device()}
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(workdir / name, text)
        write_atomically(path, json.dumps(record, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{workdir}: cannot write the run folder: {error.strerror}") from error


def require_same_config(workdir: Path, config: Mapping[str, Any]) -> None:
    """Raises a UserError that names the differing keys if `workdir` holds a run with another config.

    `parallel` may differ, so that a run can go on with other devices.
    """
    if not (workdir / "config.json").exists():
        return
    there = read_config(workdir)
    differing = [key for key in differing_keys(there, config) if not key.startswith("parallel.")]
    if differing:
        old, new = dict(flatten(there)), dict(flatten(config))
        listed = ", ".join(f"{k} ({old.get(k, 'absent')} there, {new.get(k, 'absent')} here)" for k in differing)
        raise UserError(f"{workdir}: holds a run with another config; differing keys: {listed}")


def read_config(workdir: Path) -> dict[str, Any]:
    """Returns the resolved config of the run in `workdir`."""
    path = workdir / "config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))["config"]
    except FileNotFoundError:
        raise UserError(f"{workdir}: no run here (config.json is missing)") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(f"{path}: not a run's config: {error}") from error


def read_result(workdir: Path) -> dict[str, Any] | None:
    """Returns the figures of a finished run, or None."""
    path = workdir / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_result(workdir: Path, result: dict[str, Any]) -> None:
    if not processes.first():
        return
    write_atomically(workdir / "result.json", json.dumps(result, indent=2) + "\n")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in PACKAGES}


def _git_commit() -> str | None:
    """Returns the commit of the source tree, with '+changes' where files differ from it; None outside a checkout."""
    try:
        describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
        return subprocess.run(
            describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _device() -> str:
    return f"{jax.device_count()} x {jax.devices()[0].device_kind}"

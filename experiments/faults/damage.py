"""Damage of the files of a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fxf.runs import run
from fxf.training import checkpoint, checkpoint_files


def damage(workdir: Path, step: int, fault: str, rng: np.random.Generator) -> tuple[str, Callable[[], None]]:
    """Damages the run's folder; returns a description of the damage, and a function that mends it."""
    folder = workdir / run.CHECKPOINTS / str(step)
    if fault == "small file":
        return damage_small_file(workdir, folder, rng)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path: Path = rng.choice(np.array(files, object))
    how = fault
    if fault == "without digests":
        (folder / checkpoint_files.DIGESTS).unlink()
        how = str(rng.choice(["emptied", "truncated", "removed", "a plain file"]))
        path = path if path.exists() else folder / checkpoint.CONTENT
    data = bytearray(path.read_bytes())
    at = int(rng.integers(len(data)))
    if how == "flipped byte":
        data[at] ^= int(rng.integers(1, 256))
    if how == "removed":
        path.unlink()
    elif how == "a plain file":
        shutil.rmtree(folder)
        folder.write_bytes(data)
    else:
        path.write_bytes(data[: {"emptied": 0, "truncated": at}.get(how, len(data))])
    return f"{how}: {path.name}", lambda: None


def damage_small_file(workdir: Path, folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], None]]:
    places = (
        workdir / "config.json",
        workdir / "result.json",
        workdir / "metrics.jsonl",
        folder / checkpoint_files.DIGESTS,
    )
    path = places[int(rng.integers(len(places)))]
    before = path.read_bytes() if path.exists() else None
    config = json.loads((workdir / "config.json").read_text())
    without = {**config, "config": {k: v for k, v in config["config"].items() if k != "model"}}
    listed = {**config, "config": {**config["config"], "task": {**config["config"]["task"], "name": ["reversal"]}}}
    contents = {
        "empty": b"",
        "a list": b"[1, 2]",
        "binary": rng.bytes(100),
        "deep": b"[" * 100_000,
        "half": (before or b"{}")[: len(before or b"{}") // 2],
        **({"no model": json.dumps(without).encode()} if path.name == "config.json" else {}),
        **({"name a list": json.dumps(listed).encode()} if path.name == "config.json" else {}),
    }
    how = str(rng.choice(list(contents)))
    path.write_bytes(contents[how])

    def mend() -> None:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)

    return f"{path.name}: {how}", mend

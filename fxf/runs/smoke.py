"""Smoke runs: every stage of a config in seconds, to see that it works from end to end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from fxf.base.config import flatten
from fxf.base.errors import UserError
from fxf.base.files import read_json, remove
from fxf.layers.kinds import n_named
from fxf.reports.run_files import CONFIG, is_run

STEPS = 6
BLOCKS = 2  # at least, or each that model.blocks names; some layers occur only between two
TOKENS = 1024  # of a batch
# The largest values of other keys.
MOST = {"task.examples": 20, "task.length": 256, **dict.fromkeys(("task.longer", "task.longer_every"), 5)}
MOST |= {"data.shapes": 1, "data.batch_tokens": TOKENS}
SHARE, LARGE_PART = 0.01, 10_000  # the share of a text to score, if that is more than LARGE_PART bytes
MARK = "smoke"  # the key of config.json

INTERVALS = ("optimizer.warmup_steps", "optimizer.decay_steps")  # keys that count steps


def smoke_changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys that make a run of the config short, with their values.

    Steps and all that counts them are scaled, so that the run passes every stage: it validates once, and saves twice.
    Batches, scored examples and blocks become fewer, and windows of a text have at most 256 tokens. Other sizes stay.
    """
    keys = dict(flatten(config))
    n = min(STEPS, keys["train.steps"])
    half = max(1, n // 2)
    found = {"train.steps": n, "log.every": half, "checkpoint.every": half, "train.evaluate_every": n}
    found |= {key: min(max(1, round(keys[key] * n / keys["train.steps"])), half) for key in INTERVALS if keys.get(key)}
    rows, unit = keys["train.batch_size"], 2 * keys["train.microbatches"] * len(jax.devices())
    while rows * keys["model.max_len"] > TOKENS and rows % unit == 0:
        rows //= 2
    found["train.batch_size"] = rows
    found |= {key: min(keys[key], most) for key, most in MOST.items() if keys.get(key)}
    if keys.get("task.examples") == 0:  # all
        found["task.examples"] = MOST["task.examples"]
    if "model.n_layers" in keys and not keys["start.path"] and not keys["optimizer.frozen"]:  # which name blocks
        each_kind = max(BLOCKS, keys.get("model.global_every", 0), n_named(str(keys.get("model.blocks", "-"))))
        found["model.n_layers"] = min(keys["model.n_layers"], each_kind)
    path = Path(keys.get("data.path", ""))
    large = path == Path() or (path.is_file() and path.stat().st_size * SHARE > LARGE_PART)
    if isinstance(keys.get("data.validation"), float) and large:
        found |= {key: min(keys[key], SHARE) for key in ("data.validation", "data.test") if key in keys}
    if "task.score_every" in keys and keys["task.longest"] > keys["task.max_length"]:
        longest = min(keys["task.longest"], keys["task.max_length"] + MOST["task.longer"])
        found |= {"task.longest": longest, "task.score_every": longest}
    if keys.get("model.attention_implementation") == "flash" and jax.default_backend() == "cpu":
        found["model.attention_implementation"] = "xla"
    return {key: value for key, value in found.items() if value != keys[key]}


def new_folder(workdir: Path) -> Path:
    """Returns the folder of the smoke run beside `workdir`, without what an earlier smoke run left.

    Raises:
      UserError: the folder holds something else.
    """
    folder = workdir.parent / f"{workdir.name}-smoke"
    if folder.exists():
        if not (is_run(folder) and read_json(folder / CONFIG, "a run's config").get(MARK)):
            raise UserError(f"{folder}: holds no smoke run; move it away, or use another --workdir")
        remove(folder)
    return folder

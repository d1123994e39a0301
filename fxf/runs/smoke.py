"""Smoke runs: every stage of a config in seconds, to see that it works from end to end."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxf.config import flatten
from fxf.errors import UserError
from fxf.files import read_json, remove
from fxf.reports.run_files import CONFIG

STEPS = 6
TOKENS = 1024  # of a batch
BLOCKS = 1  # or as many as have one of each kind
WIDTH, PER_HEAD = 256, 16  # a wider model gets heads of this width
EXAMPLES = 20  # scored
LENGTH = 256  # of the windows of a text
LONGER = 5  # by how many symbols the longest of them are longer than in training
SHARE, LARGE_PART = 0.01, 10_000  # of a text that is scored, and the bytes of it that are enough for a share so small
SUFFIX = "-smoke"
MARK = "smoke"  # the key of config.json

INTERVALS = ("optimizer.warmup_steps", "optimizer.decay_steps")  # keys that count steps


def smoke_changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys that make a run of the config short, with their values.

    Steps and all that counts them are scaled, so that the run passes every stage: it validates once, and saves twice.
    Batches, scored examples and blocks become fewer, windows of a text have at most 256 tokens, and a model wider than
    256 becomes narrower. All other sizes stay.
    """
    keys = dict(flatten(config))
    steps = keys["train.steps"]
    n = min(STEPS, steps)
    found = {"train.steps": n}
    half = max(1, n // 2)
    for key in INTERVALS:
        if keys.get(key):
            found[key] = min(max(1, round(keys[key] * n / steps)), half)
    found |= {"log.every": half, "checkpoint.every": half, "train.evaluate_every": n, **_smaller(keys)}
    return {key: value for key, value in found.items() if value != keys[key]}


def _smaller(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changes of sizes."""
    import jax

    found: dict[str, Any] = {"train.batch_size": keys["train.batch_size"]}
    unit = 2 * keys["train.microbatches"] * len(jax.devices())
    while found["train.batch_size"] * keys["model.max_len"] > TOKENS and found["train.batch_size"] % unit == 0:
        found["train.batch_size"] //= 2
    if keys.get("task.examples") == 0:  # all
        found["task.examples"] = EXAMPLES
    most: dict[str, Any] = {"task.examples": EXAMPLES, "task.longer": LONGER, "task.longer_every": 0}
    most |= {"task.length": LENGTH, "data.shapes": 1, "data.batch_tokens": TOKENS}
    if not keys["start.path"] and not keys["optimizer.frozen"]:  # the blocks have no names elsewhere
        most["model.n_layers"] = max(BLOCKS, keys.get("model.global_every", 0))
        if keys.get("model.n_heads") and keys["model.d_model"] > WIDTH:
            width = PER_HEAD * keys["model.n_heads"]
            most |= {"model.d_model": width, "model.d_ff": 2 * width, "model.head_dim": PER_HEAD}
            most["model.base_width"] = keys["model.base_width"] * width // keys["model.d_model"]
    path = Path(keys.get("data.path", ""))
    if isinstance(keys.get("data.validation"), float) and (path == Path() or _is_large(path)):
        most |= {"data.validation": SHARE, "data.test": SHARE}
    found |= {key: min(found.get(key, keys[key]), value) for key, value in most.items() if key in keys}
    if "task.score_every" in keys and keys["task.longest"] > keys["task.max_length"]:
        longest = min(keys["task.longest"], keys["task.max_length"] + LONGER)
        found |= {"task.longest": longest, "task.score_every": longest}
    if keys.get("model.attention_implementation") == "flash" and jax.default_backend() == "cpu":
        found["model.attention_implementation"] = "xla"
    return found


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size * SHARE > LARGE_PART


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested config with other values of the keys in `changes`."""
    result = copy.deepcopy(dict(config))
    for key, value in changes.items():
        section, name = key.split(".")
        result[section][name] = value
    return result


def new_folder(workdir: Path) -> Path:
    """Returns the folder of the smoke run beside `workdir`, without what an earlier smoke run left.

    Raises:
      UserError: the folder holds something else.
    """
    if workdir.name in ("", ".."):  # such as the working directory
        workdir = workdir.resolve()
    if not workdir.name:
        raise UserError(f"--workdir: {workdir}: expected a folder with a name, which a smoke run adds {SUFFIX} to")
    folder = workdir.with_name(workdir.name + SUFFIX)
    if folder.exists():
        try:
            of_smoke = read_json(folder / CONFIG, "a run's config").get(MARK) is True
        except (FileNotFoundError, UserError):
            of_smoke = False
        if not of_smoke:
            raise UserError(f"{folder}: holds no smoke run; move it away, or use another --workdir")
        remove(folder)
    return folder

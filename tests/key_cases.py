"""For each key of every section another value, and the config under which the key is read: as keys.txt says."""

import ast
from pathlib import Path
from typing import Any

from helpers import values


def cases():
    """Returns {owner: {key: (another value, the other keys under which it is read, how it is refused or "")}}."""
    found: dict[str, dict[str, Any]] = {}
    for line in Path(__file__).with_name("keys.txt").read_text().splitlines():
        if line.startswith("# "):
            of_owner = found.setdefault(line[2:], {})
        elif line and line[0] != ";":
            line, _, refusal = line.partition("  ! ")
            line, _, under = line.partition("  under ")
            key, _, value = line.partition(" = ")
            of_owner[key] = ast.literal_eval(value), tuple(values(under).items()), refusal
    return found


CASES = cases()
BOOLEAN_MAP = "primer.boolean_map:BOOLEAN_MAP"  # the smallest experiment, of which most sections are seen

TINY_MODEL = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 17}
TINY: dict[str, dict[str, Any]] = {
    "reversal": {"task": {"n_tokens": 5, "max_length": 3}, "model": TINY_MODEL},
    "boolean_map": {"model": {"n_layers": 1}, "optimizer": {"learning_rate": 0.1}},
    "language_model": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "masking": {"task": {"length": 8}, "data": {"path": "text.txt"}, "model": TINY_MODEL},
    "translation": {"data": {"name": "six", "tokenizer": "word", "max_length": 17}, "model": TINY_MODEL},
}
COMMON = {"train": {"steps": 3, "batch_size": 4}, "log": {"every": 3, "tensorboard": False, "report": False}}

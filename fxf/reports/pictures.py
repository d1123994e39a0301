"""Pictures of a run for its trackers: the attention weights that its page shows."""

from pathlib import Path
from typing import Any

import numpy as np

from fxf.reports.run_files import read

SIDE = 480  # pixels of a map, about
WHITE, DARK = np.array([255.0, 255.0, 255.0]), np.array([8.0, 48.0, 107.0])


def pictures(folder: Path) -> dict[str, np.ndarray]:
    """Returns the maps of the first example in inside.json by tag, uint8 [height, width, 3], the heads side by side.

    A row is a query and a column a key; darker is more attention, and each head has a scale of its own.
    """
    examples = read(folder).inside.get("examples") or [{"maps": []}]
    maps = [shown for shown in examples[0]["maps"] if shown["rowName"] == "query"]
    return {f"attention/{shown['name'].split(',')[0]}": _picture(shown) for shown in maps}


def _picture(shown: dict[str, Any]) -> np.ndarray:
    shape = len(shown["rows"]), len(shown["columns"])
    size = max(1, SIDE // max(shape))
    heads = [np.array(head["values"], float).reshape(shape) for head in shown["heads"]]
    shares = [np.kron(head / max(head.max(), 1e-9), np.ones((size, size))) for head in heads]
    framed = np.concatenate([np.pad(share, size // 4 + 1, constant_values=0.5) for share in shares], axis=1)
    return (WHITE + framed[..., None] * (DARK - WHITE)).round().astype(np.uint8)

"""Writing files so that no reader ever sees half of one."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Writes `text` to `path`: the file holds either what it held before or all of it, also after a crash."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)

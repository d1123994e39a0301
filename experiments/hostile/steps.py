"""Steps that damage the folder of a case. Paths are relative to it."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[[Path], None]


def write(path: str, content: str | bytes) -> Step:
    def step(box: Path) -> None:
        (box / path).parent.mkdir(parents=True, exist_ok=True)
        remove(path)(box)
        (box / path).write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)

    return step


def remove(path: str) -> Step:
    def step(box: Path) -> None:
        for found in box.glob(path):
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()

    return step


def folder(path: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        (box / path).mkdir(parents=True)

    return step


def link(path: str, target: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        (box / path).symlink_to(target)

    return step


def fifo(path: str) -> Step:
    def step(box: Path) -> None:
        remove(path)(box)
        os.mkfifo(box / path)

    return step


def listening(path: str) -> Step:
    """Makes a socket."""

    def step(box: Path) -> None:
        remove(path)(box)
        before = Path.cwd()
        os.chdir(box)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        os.chdir(before)

    return step


def mode(path: str, bits: int) -> Step:
    return lambda box: (box / path).chmod(bits)


def move(path: str, to: str) -> Step:
    def step(box: Path) -> None:
        (box / path).replace(box / to)

    return step


def borrow(path: str, to: str) -> Step:
    """Replaces a file or folder by that of another run."""

    def step(box: Path) -> None:
        source = box.parents[2] / "fixtures" / path
        remove(to)(box)
        if source.is_dir():
            shutil.copytree(source, box / to)
        else:
            shutil.copy(source, box / to)

    return step


def rewrite(path: str, function: Callable[[str], str]) -> Step:
    """Replaces the content of a text file by a function of it."""

    def step(box: Path) -> None:
        before = (box / path).read_text(encoding="utf-8")
        after = function(before)
        assert after != before, path
        (box / path).write_text(after, encoding="utf-8")

    return step


def append(path: str, text: str) -> Step:
    return rewrite(path, lambda before: before + text)


def alter(path: str, function: Callable[[Any], Any]) -> Step:
    """Replaces the content of a JSON file by a function of it."""
    return rewrite(path, lambda text: json.dumps(function(json.loads(text))))


def change(path: str, keys: str, value: Any) -> Step:
    """Sets a key of a JSON file, KEY/KEY/KEY; a value `...` removes it."""

    def changed(record: Any) -> Any:
        *sections, last = keys.split("/")
        holder = record
        for name in sections:
            holder = holder[name]
        if value is ...:
            del holder[last]
        else:
            holder[last] = value
        return record

    return alter(path, changed)


def largest(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.stat().st_size, path))


def flip(path: str) -> Step:
    """Changes the byte in the middle of the largest file of a folder."""

    def step(box: Path) -> None:
        found = largest(box / path)
        data = bytearray(found.read_bytes())
        data[len(data) // 2] ^= 255
        found.write_bytes(data)

    return step


def cut(path: str) -> Step:
    """Halves the largest file of a folder."""

    def step(box: Path) -> None:
        found = largest(box / path)
        found.write_bytes(found.read_bytes()[: found.stat().st_size // 2])

    return step

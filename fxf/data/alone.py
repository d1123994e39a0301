"""Making a folder once, by one of several processes, on any file system."""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fxf.files import remove

BEAT = 5.0  # seconds between two signs of life of a process that holds a claim
GONE = 60.0  # seconds without one, after which another process takes the claim
POLL = 0.2
LEFT = 3600.0  # seconds without a change, after which the unfinished folder of another machine is removed


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lets one process at a time into the body; `path` is the file of the lock.

    The lock of the system ends with the process. Where the file system has none, a second file stands for it, which its
    holder touches again and again. There are file systems whose locks hold on one machine only, so two processes may
    be inside after all: what they make must be right then too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        except OSError:
            lock = _claimed(path.with_suffix(".claim"))
        with lock:
            yield


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Waits until the file is gone or nobody touches it, and makes one that it touches until the body ends."""
    seen, since = -1, time.monotonic()
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            time.sleep(POLL)
        with contextlib.suppress(FileNotFoundError):
            touched = path.stat().st_mtime_ns  # is compared with itself, since machines have clocks of their own
            if touched != seen:
                seen, since = touched, time.monotonic()
            elif time.monotonic() - since > GONE:
                path.unlink()
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=touch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        path.unlink(missing_ok=True)


def unfinished_folder(folder: Path) -> Path:
    """Makes a folder of this process that can become `folder`, and removes those of processes that are gone."""
    host = socket.gethostname()
    own = folder.with_name(f"{folder.name}.{host}.{os.getpid()}.unfinished")
    remove(own)
    own.mkdir()
    for other in folder.parent.glob(f"{folder.name}*.unfinished"):
        if other != own and _is_left(other, host, own.stat().st_mtime):
            remove(other)
    return own


def _is_left(folder: Path, host: str, now: float) -> bool:
    name = folder.name.split(".")
    if name[-2].isdecimal() and ".".join(name[1:-2]) == host:
        return not _is_running(int(name[-2]))
    return now - max(path.stat().st_mtime for path in (folder, *folder.glob("*"))) > LEFT


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

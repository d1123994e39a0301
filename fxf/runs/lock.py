"""A lock that lets one process train in a run folder, and that ends with the process."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fxf.base.errors import UserError
from fxf.base.files import is_remote
from fxf.reports.run_files import LOCK
from fxf.training import processes

log = logging.getLogger(__name__)
UNLOCKED = "warning: %s: no lock here (%s); let only one process train this run"


@contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes the folder, and keeps other processes from training in it until this one ends, however it ends.

    `flock` locks the file `lock`, which names the holder. On NFS Linux makes it a lock of the server, which holds for
    all its clients. If the file system has no locks, as in a bucket, a warning says so. Of several processes that train
    together the first one holds the lock.

    Raises:
      UserError: another process holds the lock, or the folder cannot be written; each process raises it.
    """
    with ExitStack() as held:
        why = _lock(workdir, held) if processes.is_first() else ""
        if processes.any_of(bool(why)):
            raise UserError(f"{workdir}: {why or 'the first process cannot train here'}")
        yield


def _lock(workdir: Path, held: ExitStack) -> str:
    """Locks the folder until `held` ends. Returns why that is not possible, or nothing."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if is_remote(workdir):
            log.warning(UNLOCKED, workdir, "a bucket has none")
            return ""
        file = held.enter_context((workdir / LOCK).open("a+", encoding="utf-8"))
    except OSError as error:
        return f"cannot write the run folder: {error.strerror or error}"
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}\n")
        file.flush()
    except BlockingIOError:
        file.seek(0)
        holder = file.read(200).strip() or "which one is unknown"
        return f"another process trains this run: {holder}; wait for its end, or stop it"
    except OSError as error:
        log.warning(UNLOCKED, workdir, error)
    return ""

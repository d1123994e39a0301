"""A lock that lets one process train in a run folder, and that ends with the process."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fxf.errors import UserError
from fxf.files import is_remote
from fxf.reports.run_files import LOCK
from fxf.training import processes

log = logging.getLogger(__name__)


@contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes the folder, and keeps other processes from training in it until this one ends, however it ends.

    `flock` locks the file `lock`, which names the holder. On NFS Linux makes it a lock of the server, which holds for
    all its clients. If the file system has no locks, as in a bucket, a warning says so. Of several processes that train
    together the first one holds the lock.

    Raises:
      UserError: another process holds the lock, or the folder cannot be written; each process raises it.
    """
    file, why = None, ""
    if processes.is_first():
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            if is_remote(workdir):
                log.warning("warning: %s: a bucket has no locks; let only one process train this run", workdir)
            else:
                file = (workdir / LOCK).open("a+", encoding="utf-8")
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.truncate(0)
                file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}\n")
                file.flush()
        except BlockingIOError:
            assert file is not None
            file.seek(0)
            holder = file.read(200).strip() or "which one is unknown"
            why = f"another process trains this run: {holder}; wait for its end, or stop it"
        except OSError as error:
            if file is None or isinstance(error, PermissionError):
                why = f"cannot write the run folder: {error.strerror or error}"
            else:
                log.warning("warning: %s: no lock here (%s); let only one process train this run", workdir, error)
    try:
        if processes.any_of(bool(why)):
            raise UserError(f"{workdir}: {why or 'the first process cannot train here'}")
        yield
    finally:
        if file is not None:
            file.close()

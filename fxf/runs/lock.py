"""One trainer a run folder: a lock that ends with the process that has it."""

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
from fxf.training import processes

log = logging.getLogger(__name__)

LOCK = "lock"


@contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes the folder, and keeps every other process from training in it until the end of this one, however it ends.

    The lock is `flock`'s, on the file `lock`, which says who has it. On NFS Linux makes it a lock of the server, which
    holds for all its clients. Where the file system has none, as in a bucket, a line says so. Of several processes
    that train together the first one has it.

    Raises:
      UserError: in each process, if another one has the lock, or the folder cannot be written.
    """
    file, why = None, ""
    if processes.is_first():
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            if is_remote(workdir):
                log.warning("warning: %s: a bucket has no locks; see that one process alone trains this run", workdir)
            else:
                file = (workdir / LOCK).open("a+", encoding="utf-8")
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.truncate(0)
                file.write(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}\n")
                file.flush()
        except BlockingIOError:
            assert file is not None
            file.seek(0)
            holder = file.read(200).strip() or "it has not said which"
            why = f"another process trains this run: {holder}; wait for its end, or stop it"
        except OSError as error:
            if file is None or isinstance(error, PermissionError):
                why = f"cannot write the run folder: {error.strerror or error}"
            else:
                log.warning("warning: %s: no lock here (%s); see that one process trains this run", workdir, error)
    try:
        if processes.any_of(bool(why)):
            raise UserError(f"{workdir}: {why or 'the first process cannot train here'}")
        yield
    finally:
        if file is not None:
            file.close()

"""Runs scripts in forks of one process that has imported the libraries and fxf, for which they take the longest.

Reads requests as lines of JSON from standard input, one after the other, and answers each with the number of the
process, and then with its exit code. Of fxf all is imported before the fork that every verb imports, but not what hears
signals and defines flags: from there on all is as in a process of its own.
"""

import atexit
import gc
import json
import logging
import os
import resource
import runpy
import signal
import sys
import threading

import absl.logging  # noqa: F401
import jax.numpy  # noqa: F401
import ml_collections.config_flags  # noqa: F401
import optax  # noqa: F401
import orbax.checkpoint  # noqa: F401
import tokenizers  # noqa: F401

import fxf.runs.run  # noqa: F401
import quick  # noqa: F401

gc.freeze()
logging.root.handlers.clear()  # a library's, which a script is ahead of

SECONDS = 600  # that a script may take, on a machine however busy


def child_with_a_request():
    """Returns the request in the child that has to fulfil it, and None in the parent when there are no more."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


if request := child_with_a_request():
    signal.alarm(SECONDS)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = os.open(os.path.join(request["folder"], name), os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    if most := request["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = request["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # As Python ends, but for taking apart what the libraries hold, which takes longer than most scripts.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

import os
import signal
import subprocess
import sys

import pytest

from fxf.base.errors import UserError
from fxf.runs import run_folder
from fxf.runs.run_folder import locked

HOLD = """
import sys, time
from pathlib import Path
from fxf.runs.run_folder import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


def test_a_second_trainer_is_refused_by_a_line_that_names_the_first(tmp_path):
    with locked(tmp_path / "run"):
        with pytest.raises(UserError) as error, locked(tmp_path / "run"):
            pass
        assert f"{tmp_path / 'run'}: another process trains this run: pid {os.getpid()} on " in str(error.value)
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path / "run"):
        pass


def test_the_lock_ends_with_its_process_however_that_ends(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(UserError, match=f"pid {process.pid} on "), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with locked(tmp_path):
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_file_system_without_locks_is_named_and_trains(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(run_folder.fcntl, "flock", no_locks)
    with locked(tmp_path):
        pass
    assert "no lock here" in caplog.records[0].getMessage()

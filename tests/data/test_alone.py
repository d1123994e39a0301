"""Several processes that make one folder, also where the file system has no locks."""

import fcntl
import os
import socket
import threading
import time

import pytest

from fxf.data import alone as module
from fxf.data.alone import alone, unfinished_folder


def no_locks(patch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    patch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("locks", [True, False])
def test_one_at_a_time_is_inside(locks, tmp_path, monkeypatch):
    if not locks:
        no_locks(monkeypatch)
    monkeypatch.setattr(module, "POLL", 0.001)
    inside, most = [], []

    def enter():
        with alone(tmp_path / "a.lock"):
            inside.append(1)
            time.sleep(0.01)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]


def test_what_a_holder_that_is_gone_has_claimed_is_taken_and_what_a_holder_touches_is_not(tmp_path, monkeypatch):
    no_locks(monkeypatch)
    for name, value in (("POLL", 0.001), ("BEAT", 0.01), ("GONE", 0.2)):
        monkeypatch.setattr(module, name, value)
    (tmp_path / "a.claim").touch()  # of a process that was killed
    left, entered = [], threading.Event()

    def hold():
        with alone(tmp_path / "a.lock"):
            entered.set()
            time.sleep(0.6)
            left.append(True)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    with alone(tmp_path / "a.lock"):
        assert left == [True]
    thread.join()


def test_the_folders_of_processes_that_are_gone_are_removed_and_others_stay(tmp_path):
    host, own = socket.gethostname(), f"a.{socket.gethostname()}.{os.getpid()}.unfinished"
    names = [own, f"a.{host}.{2**22 + 7}.unfinished", f"a.{host}.1.unfinished", "a.other.3.unfinished"]
    names += ["a.old.3.unfinished", "b.old.3.unfinished"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.tokens").touch()
        if ".old." in name:
            for path in (tmp_path / name / "train.tokens", tmp_path / name):
                os.utime(path, (0, 0))
    assert unfinished_folder(tmp_path / "a").name == own
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {own, f"a.{host}.1.unfinished", "a.other.3.unfinished", "b.old.3.unfinished"}
    assert not list((tmp_path / own).iterdir())

import subprocess
import sys
import threading
import time

import pytest

from fxf.machine import work
from fxf.machine.work import by_threads


def test_results_come_in_the_order_of_the_items_whoever_is_first():
    first_may_end = threading.Event()

    def square(i):
        if i == 0:
            first_may_end.wait(9)
        if i == 1:
            first_may_end.set()
        return i * i

    assert list(by_threads(square, range(31))) == [i * i for i in range(31)]


def test_only_a_few_items_are_taken_ahead(monkeypatch):
    monkeypatch.setattr(work.os, "cpu_count", lambda: 3)
    taken = []
    results = by_threads(lambda i: i, (taken.append(i) or i for i in range(99)))
    assert next(results) == 0
    assert len(taken) == 7


def test_an_error_of_an_item_comes_in_its_turn():
    results = by_threads(lambda i: 1 // (3 - i), range(9))
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_items_that_have_not_begun_are_left_out_after_an_error():
    begun = []

    def work(i):
        begun.append(i)
        if i == 1:
            time.sleep(0.2)  # so that the next ones wait for the only thread
        return 1 // i

    with pytest.raises(ZeroDivisionError):
        list(by_threads(work, range(9), 1))
    assert 2 not in begun


def test_a_call_ends_with_its_running_items_and_the_threads_serve_the_next_calls():
    threads, ended = set(), []

    def work(i):
        threads.add(threading.get_ident())
        if i == 1:
            time.sleep(0.2)
            ended.append(i)
        return 1 // i

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            list(by_threads(work, range(2), 2))
    assert ended == [1, 1, 1]
    assert len(threads) <= 2


def test_a_forked_process_has_threads_of_its_own():
    program = """
import os, time
from fxf.machine import work
from fxf.machine.work import by_threads
work.n_cores = lambda: 1
assert list(by_threads(abs, [-1, 2])) == [1, 2]
time.sleep(0.1)  # the thread waits for work
if os.fork():
    assert os.wait()[1] == 0
else:
    assert list(by_threads(abs, [-3, 4])) == [3, 4]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)

import os
import subprocess
import sys
import threading
import time

import pytest

from fxf.machine import work
from fxf.machine.work import by_threads

# Works in a process and in one that is forked from it, and prints the exit status of the latter.
FORKED = """
import os
from fxf.machine.work import by_threads

assert list(by_threads(abs, range(9), 2)) == list(range(9))
if not (child := os.fork()):
    os._exit(list(by_threads(abs, range(9), 2)) != list(range(9)))
print(os.waitpid(child, 0)[1])
"""


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
        if i > 0:
            time.sleep(0.3)  # so that the next ones wait for a thread
        return 1 // i

    with pytest.raises(ZeroDivisionError):
        list(by_threads(work, range(9), 2))
    assert not {3, 4} & set(begun)


def test_one_thread_is_that_of_the_caller_and_takes_nothing_ahead():
    taken = []
    results = by_threads(lambda i: threading.get_ident(), (taken.append(i) or i for i in range(9)), 1)
    assert next(results) == threading.get_ident()
    assert taken == [0]


def test_the_next_call_has_the_same_threads():
    def threads_of_a_call():
        both = threading.Barrier(2, timeout=60)
        return set(by_threads(lambda i: both.wait() * 0 + threading.get_ident(), range(2), 2))

    assert threads_of_a_call() == threads_of_a_call() and len(threads_of_a_call()) == 2


def test_a_call_within_another_has_threads_of_its_own():
    def inner(i):
        return threading.get_ident(), set(by_threads(lambda j: threading.get_ident(), range(3), 2))

    for outer, inners in by_threads(inner, range(5), 2):
        assert outer not in inners


def test_threads_whose_work_has_failed_work_again():
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            list(by_threads(lambda i: 1 // i, range(9), 2))
    assert list(by_threads(lambda i: i + 1, range(9), 2)) == list(range(1, 10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_has_threads_of_its_own():
    printed = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == "0\n"


def test_the_work_of_several_callers_is_done_side_by_side():
    both = threading.Barrier(2, timeout=60)

    def caller():
        assert len(list(by_threads(lambda i: both.wait(), range(3), 1))) == 3

    callers = [threading.Thread(target=caller) for _ in range(2)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not both.broken

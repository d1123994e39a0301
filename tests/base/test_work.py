import threading

import pytest

from fxf.base.work import by_threads


def test_results_come_in_the_order_of_the_items_whoever_is_first():
    first_may_end = threading.Event()

    def square(i):
        if i == 0:
            first_may_end.wait(9)
        if i == 1:
            first_may_end.set()
        return i * i

    assert list(by_threads(square, range(31))) == [i * i for i in range(31)]


def test_an_error_of_an_item_comes_in_its_turn():
    results = by_threads(lambda i: 1 // (3 - i), range(9))
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)

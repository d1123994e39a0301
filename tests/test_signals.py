import os
import signal
import threading

import pytest

from fxf.signals import STOPPING, listening


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_heard_and_a_second_one_does_what_it_always_does(number):
    caught = []
    before = signal.signal(number, lambda *_: caught.append(1))
    try:
        with listening() as heard:
            assert not heard()
            os.kill(os.getpid(), number)
            assert heard() and not caught
            os.kill(os.getpid(), number)
            assert caught == [1]
        os.kill(os.getpid(), number)
        assert caught == [1, 1]
    finally:
        signal.signal(number, before)


def test_another_thread_hears_nothing_and_changes_nothing():
    before, found = signal.getsignal(signal.SIGTERM), []

    def listen():
        with listening() as heard:
            found.append((heard(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [(False, before)]

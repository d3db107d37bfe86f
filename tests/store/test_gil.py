"""The switch interval is short during transactions and as it was behind them."""

import sys
import threading

import pytest

from hyperbloom.store.lmdb.gil import INTERVAL, short_switch_interval


@pytest.fixture
def usual():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield 0.004
    sys.setswitchinterval(before)


def test_the_interval_is_short_inside_and_as_usual_outside(usual):
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
        with short_switch_interval():
            pass
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_the_last_one_out_puts_it_back(usual):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with short_switch_interval():
            inside.set()
            leave.wait(240)

    with short_switch_interval():
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(240)
    assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    leave.set()
    thread.join(240)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_a_failure_inside_puts_it_back(usual):
    with pytest.raises(ZeroDivisionError), short_switch_interval():
        raise ZeroDivisionError
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_reads_and_writes_take_short_switch_interval(store, usual):
    with store.environment.read():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    with store.environment.write():
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    assert sys.getswitchinterval() == pytest.approx(usual)

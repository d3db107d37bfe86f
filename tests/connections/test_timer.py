"""One timer that is set again and again."""

from __future__ import annotations

from twisted.internet.task import Clock

from hyperbloom.connections.timer import Timer


class Bench:
    def __init__(self):
        self.clock = Clock()
        self.woken = []
        self.timer = Timer(self.clock, lambda: self.woken.append(self.clock.seconds()))


def test_it_calls_once_at_the_moment_that_was_set_last():
    for moments in ([5.0], [9.0, 5.0], [2.0, 5.0], [5.0, 5.0], [5.0, None, 5.0]):
        bench = Bench()
        for moment in moments:
            bench.timer.set(moment)
        assert len(bench.clock.getDelayedCalls()) == 1
        bench.clock.pump([0.5] * 40)
        assert bench.woken == [5.0], moments
        assert bench.clock.getDelayedCalls() == []


def test_none_is_never():
    bench = Bench()
    bench.timer.set(None)
    bench.timer.set(5.0)
    bench.timer.set(None)
    assert bench.clock.getDelayedCalls() == []
    bench.clock.advance(10)
    assert bench.woken == []


def test_a_moment_that_is_past_is_at_once_but_not_before_the_caller_goes_on():
    bench = Bench()
    bench.clock.advance(10)
    bench.timer.set(3.0)
    assert bench.woken == []
    bench.clock.advance(0)
    assert bench.woken == [10.0]


def test_it_can_be_set_to_the_same_moment_again_once_it_has_called():
    bench = Bench()
    bench.timer.set(5.0)
    bench.clock.advance(5)
    bench.timer.set(5.0)
    bench.clock.advance(0)
    assert bench.woken == [5.0, 5.0]


def test_whom_it_wakes_may_set_it():
    clock, woken = Clock(), []

    def wake():
        woken.append(clock.seconds())
        if len(woken) < 3:
            timer.set(clock.seconds() + 2)

    timer = Timer(clock, wake)
    timer.set(1.0)
    clock.pump([1.0] * 10)
    assert woken == [1.0, 3.0, 5.0]

"""Timers that are set again and again: one alone, and many with one call in the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from hyperbloom.connections.timer import Alarm, Alarms, Timer


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


class Sleeper:
    """Notes when it is woken; what it does then may be given."""

    def __init__(self, bench, does=lambda: None):
        self.alarm = Alarm(self)
        self.woken = []
        self._bench, self._does = bench, does

    def set(self, moment):
        self._bench.alarms.set(self.alarm, moment)

    def wake(self):
        self.woken.append(self._bench.clock.seconds())
        self._does()


class Many:
    def __init__(self):
        self.clock = Clock()
        self.alarms = Alarms(self.clock)

    def one(self, *moments, does=lambda: None):
        sleeper = Sleeper(self, does)
        for moment in moments:
            sleeper.set(moment)
        return sleeper


@pytest.fixture
def many():
    return Many()


def test_each_is_woken_once_at_the_moment_that_was_set_last(many):
    sleepers = {
        moments: many.one(*moments)
        for moments in ((5.0,), (9.0, 5.0), (2.0, 5.0), (5.0, 5.0), (5.0, None, 5.0))
    }
    never = many.one(4.0, None)
    assert len(many.alarms) == len(sleepers)
    assert len(many.clock.getDelayedCalls()) == 1, "one call for all"
    many.clock.pump([0.5] * 40)
    assert {moments: one.woken for moments, one in sleepers.items()} == {
        moments: [5.0] for moments in sleepers
    }
    assert never.woken == []
    assert many.clock.getDelayedCalls() == []


def test_who_is_cancelled_is_out_of_the_heap_at_once(many):
    sleepers = [many.one(float(number)) for number in range(100)]
    for sleeper in sleepers:
        sleeper.set(None)
    assert len(many.alarms) == 0
    assert many.clock.getDelayedCalls() == []


def test_a_past_moment_is_soon_but_not_before_the_caller_goes_on(many):
    many.clock.advance(10)
    sleeper = many.one(3.0)
    assert sleeper.woken == []
    many.clock.advance(0)
    assert sleeper.woken == [10.0]


def test_who_sets_itself_to_a_past_moment_lets_others_have_their_turn(many):
    order = []

    def once_more():
        order.append("again")
        if len(order) < 4:
            again.set(0.5)

    again = many.one(1.0, does=once_more)
    many.one(1.0, does=lambda: order.append("other"))
    many.clock.advance(1)
    assert sorted(order[:2]) == ["again", "other"]
    assert order.count("other") == 1
    assert len(order) > 2


def test_one_that_is_due_may_cancel_or_put_off_another(many):
    def end_others():
        ended.set(None)
        later.set(8.0)

    many.one(5.0, does=end_others)
    ended, later = many.one(5.0), many.one(5.0)
    many.clock.pump([1.0] * 10)
    assert (ended.woken, later.woken) == ([], [8.0])


def test_one_that_fails_is_logged_and_the_others_are_woken(many):
    def fail():
        raise RuntimeError("a mistake")

    with capturedLogs() as logged:
        many.one(5.0, does=fail)
        other = many.one(5.0)
        many.clock.advance(5)
    assert other.woken == [5.0]
    assert [event["log_failure"].type for event in logged] == [RuntimeError]


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 19), st.one_of(st.none(), st.integers(0, 30))), max_size=80
    )
)
def test_any_sequence_wakes_who_a_list_would_wake(steps):
    many = Many()
    sleepers = [many.one() for _ in range(20)]
    due = {}
    for number, wait in steps:
        moment = None if wait is None else many.clock.seconds() + wait
        sleepers[number].set(moment)
        due[number] = moment
        assert len(many.alarms) == sum(moment is not None for moment in due.values())
        many.clock.advance(0.75)
        for other, moment in due.items():
            if moment is not None and moment <= many.clock.seconds():
                assert sleepers[other].woken.pop() == many.clock.seconds()
                due[other] = None
        assert not any(sleeper.woken for sleeper in sleepers)

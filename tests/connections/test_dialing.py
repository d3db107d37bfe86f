"""One attempt to be connected with an address, and the wait before the next."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.dialing import dial_once, retry_wait


class Connection:
    def __init__(self):
        self.ready, self.lost = Deferred(), Deferred()

    def when_ready(self):
        return self.ready

    def when_lost(self):
        return self.lost


class Endpoint:
    def __init__(self, result):
        self.result = result

    def connect(self, factory):
        return self.result


class Attempt:
    """`dial_once`, and all that it told."""

    def __init__(self, result):
        self.clock = Clock()
        self.told, self.endured = [], []
        self.running = Deferred.fromCoroutine(
            dial_once(
                Endpoint(result),
                Factory(),
                self.clock,
                connected=lambda one: self.told.append("connected"),
                ready=lambda one: self.told.append("ready"),
                failed=lambda error: self.told.append(error),
            )
        )
        self.running.addBoth(self.endured.append)


def test_a_connection_counts_from_when_it_is_ready_until_it_is_lost():
    one = Connection()
    attempt = Attempt(succeed(one))
    attempt.clock.advance(3)
    one.ready.callback(one)
    attempt.clock.advance(7)
    assert (attempt.told, attempt.endured) == (["connected", "ready"], [])
    one.lost.callback(None)
    assert attempt.endured == [7.0]


def test_a_connection_that_comes_to_nothing_is_waited_for_until_it_is_closed():
    one = Connection()
    attempt = Attempt(succeed(one))
    why = CloseReason("twin", "there is one already")
    one.ready.errback(why)
    assert (attempt.told, attempt.endured) == (["connected", why], [])
    one.lost.callback(None)
    assert attempt.endured == [0.0]


def test_an_address_where_nobody_is_counts_nothing():
    error = ConnectionLost("nobody is there")
    attempt = Attempt(fail(error))
    assert (attempt.told, attempt.endured) == ([error], [0.0])


def test_an_attempt_that_is_cancelled_tells_nothing():
    attempt = Attempt(Deferred())
    attempt.running.cancel()
    assert attempt.told == []
    (failure,) = attempt.endured
    assert failure.check(CancelledError)


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 2.0), (1, 2.0), (2, 3.4), (3, 5.78), (9, 60.0), (10**9, 60.0)]
)
def test_the_wait_grows_with_each_failure_up_to_the_longest(failures, wait):
    assert retry_wait(failures, first=2.0, longest=60.0) == pytest.approx(wait)

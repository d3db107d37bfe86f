"""What is kept of connections that are there and that are over."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock
from twisted.logger import Logger

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.limits import MAX_CLOSED_SHOWN, TOLD_SINGLY
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.registry import Registry


class One:
    """A connection that is closed when it is told so, and gone when the test says."""

    def __init__(self, registry, *, outgoing=False, is_ready=False):
        self.registry = registry
        self.outgoing = outgoing
        self.is_ready = is_ready
        self.address = "192.0.2.1:6000"
        self.network = "192.0.2.1"
        self.bytes_in, self.bytes_out = 10, 1
        assert registry.admit(self) is None

    def close(self, why):
        self.registry.closing(self, why)


@pytest.fixture
def lines():
    return []


@pytest.fixture
def registry(lines):
    clock = Clock()
    return Registry(
        clock,
        lambda: 1_900_000_000.0,
        Logger(observer=lines.append),
        ordinary=frozenset({"stopped"}),
        strangers="Strangers",
        members="Members",
        reactor_budget=ReactorBudget(clock, most=8, seconds=1.0),
    )


def test_as_many_closings_are_shown_as_may_be_the_newest_first(registry):
    for number in range(MAX_CLOSED_SHOWN + 1):
        One(registry).close(CloseReason("protocol", f"number {number}"))
    shown = [closed.reason for closed in registry.recently_closed]
    assert shown == [f"number {number}" for number in range(MAX_CLOSED_SHOWN, 0, -1)]
    assert registry.closed == {"protocol": MAX_CLOSED_SHOWN + 1}


def test_ordinary_closings_are_counted_and_neither_shown_nor_told(registry, lines):
    One(registry).close(CloseReason("stopped", "this node is stopping"))
    assert (registry.closed, len(registry.recently_closed), lines) == ({"stopped": 1}, 0, [])


def test_members_are_told_one_by_one_up_to_the_limit_and_strangers_once(registry, lines):
    for is_ready in (True, False):
        for _ in range(TOLD_SINGLY + 1):
            One(registry, is_ready=is_ready).close(CloseReason("slow", "it is slow"))
    assert len(lines) == TOLD_SINGLY + 1
    assert (lines[0]["peer"], lines[0]["why"]) == ("192.0.2.1:6000", "it is slow")


def test_bytes_of_connections_that_are_over_still_count(registry):
    one, two = One(registry), One(registry, outgoing=True)
    registry.forget(one)
    two.bytes_in = 5
    assert registry.moved() == (15, 2)
    assert (len(registry), registry.opened) == (1, {False: 1, True: 1})


def test_all_are_closed_once_the_last_is_gone(registry):
    some = [One(registry) for _ in range(2)]
    gone = []
    registry.close_all(CloseReason("stopped", "this node is stopping")).addCallback(gone.append)
    registry.forget(some[0])
    assert gone == []
    registry.forget(some[1])
    assert gone == [None]
    assert registry.close_all(CloseReason("stopped", "again")).called


class Slow(One):
    """One that notes when and why it was closed."""

    def __init__(self, registry, clock, seconds):
        super().__init__(registry)
        self.clock, self.closed = clock, []
        registry.awaits_handshake(self, seconds)

    def close(self, why):
        self.closed.append((self.clock.seconds(), why.kind))


@pytest.fixture
def clock(registry):
    return registry._clock


def test_whose_handshake_does_not_come_is_closed_in_its_own_time(registry, clock):
    first = Slow(registry, clock, 10)
    clock.advance(4)
    second, sooner = Slow(registry, clock, 10), Slow(registry, clock, 2)
    assert len(clock.getDelayedCalls()) == 1, "one timer for all"
    clock.pump([0.5] * 40)
    assert [one.closed for one in (first, second, sooner)] == [
        [(10.0, "slow")],
        [(14.0, "slow")],
        [(6.0, "slow")],
    ]


def test_who_has_shaken_hands_or_is_gone_is_not_closed(registry, clock):
    done, gone, slow = (Slow(registry, clock, 10) for _ in range(3))
    registry.shook_hands(done)
    registry.forget(gone)
    clock.pump([1.0] * 20)
    assert [one.closed for one in (done, gone, slow)] == [[], [], [(10.0, "slow")]]


def test_no_timer_is_left_when_all_are_gone(registry, clock):
    some = [Slow(registry, clock, 10) for _ in range(3)]
    for one in some:
        registry.forget(one)
    assert clock.getDelayedCalls() == []

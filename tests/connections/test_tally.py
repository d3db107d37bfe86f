"""Events that strangers cause: the first is told, the others are counted."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import Logger, LogLevel, formatEvent

from hyperbloom.connections.limits import MAX_SOURCES, TALLY_SECONDS, TOLD_OF_BRANCH
from hyperbloom.connections.tally import Tally


def tally(**more):
    clock, lines = Clock(), []
    return clock, lines, Tally(clock, Logger(observer=lines.append), what="Junk", **more)


def told(lines):
    return [formatEvent(line) for line in lines]


def test_the_first_of_a_kind_is_told_and_the_others_are_counted():
    clock, lines, one = tally()
    for number in range(1_000):
        one.tell("slow", f"192.0.2.{number % 49}", "{peer}: too slow", peer=number)
    one.tell("protocol", "192.0.2.1", "{peer}: nonsense", peer="x", level=LogLevel.warn)
    assert told(lines) == ["0: too slow", "x: nonsense"]
    assert [line["kind"] for line in lines] == ["slow", "protocol"]
    assert lines[1]["log_level"] is LogLevel.warn
    clock.advance(TALLY_SECONDS)
    assert told(lines)[2:] == [
        "Junk in the last minute, not told one by one: slow 999; from 49 addresses"
    ]
    clock.advance(10 * TALLY_SECONDS)
    assert len(lines) == 3
    assert not clock.getDelayedCalls()


def test_the_next_minute_begins_anew():
    clock, lines, one = tally(singly=2)
    for _ in range(3):
        for kind in ("a", "b"):
            for _ in range(4):
                one.tell(kind, "somewhere", kind)
        clock.advance(TALLY_SECONDS)
    summed = "Junk in the last minute, not told one by one: a 2, b 2; from 1 address"
    assert told(lines) == ["a", "a", "b", "b", summed] * 3


def test_no_more_addresses_are_remembered_than_the_limit_says():
    clock, lines, one = tally()
    for number in range(3 * MAX_SOURCES):
        one.tell("slow", str(number), "slow")
    assert len(one._sources) == MAX_SOURCES + 1
    clock.advance(TALLY_SECONDS)
    assert told(lines)[-1].endswith("slow 2,999; from more than 1,000 addresses")


def test_what_was_counted_is_told_at_the_end_and_nothing_after_it():
    clock, lines, one = tally()
    for _ in range(3):
        one.tell("slow", "x", "slow")
    one.stop()
    one.stop()
    one.tell("slow", "x", "slow")
    assert len(lines) == 2
    assert not clock.getDelayedCalls()


def test_of_one_branch_a_few_are_told_and_those_of_others_as_well():
    clock, lines, one = tally(singly=TOLD_OF_BRANCH + 2)
    for number in range(100):
        one.tell("gone", "here", "member", branch=b"member", number=number)
    for _ in range(3):
        one.tell("gone", "there", "honest", branch=b"honest")
    assert told(lines) == ["member"] * TOLD_OF_BRANCH + ["honest"] * 2
    clock.advance(TALLY_SECONDS)
    untold = 100 - TOLD_OF_BRANCH + 1
    assert told(lines)[-1].endswith(f"not told one by one: gone {untold}; from 2 addresses")
    one.tell("gone", "here", "again", branch=b"member")
    assert told(lines)[-1] == "again"

"""When a peer is asked that somebody waits for: without the interval, and never twice."""

from __future__ import annotations

from dataclasses import replace

from driven_schedule import PLAN, Driven, in_sync

from hyperbloom.replication.limits import DOUBT_FACTOR, DOUBT_SECONDS
from hyperbloom.replication.schedule.sync_commands import CompareDigests
from hyperbloom.replication.schedule.sync_schedule import HURRY_SECONDS


def moved(one):
    one.situation = replace(one.situation, moved_at=one.now)


def test_who_waits_for_it_does_not_have_it_asked_twice_for_what_is_coming():
    one = Driven()
    one.wake()
    one.schedule.digest_came(1, now=one.now)
    assert one.compared(1, in_sync(yes=False)) == PLAN
    one.planned()
    for _ in range(1, 30):
        one.now += 0.7
        moved(one)
        one.schedule.hurry(now=one.now)
        if one.wait <= 0:
            assert one.wake() is None, "the answer is under way"
    assert 0 < one.wait <= DOUBT_SECONDS
    assert one.wake() is None
    assert one.wake() == CompareDigests(number=2), "nothing has moved for a while"


def test_who_waits_for_it_does_not_wait_for_doubts_that_have_grown():
    one = Driven()
    for number in (1, 2, 3):
        one.wake()
        one.schedule.digest_came(number, now=one.now)
        one.compared(number, in_sync(yes=False))
        one.planned()
    assert one.wait == DOUBT_SECONDS * DOUBT_FACTOR**2
    one.now += HURRY_SECONDS
    one.schedule.hurry(now=one.now)
    assert one.wait == DOUBT_SECONDS
    assert one.wake() == CompareDigests(number=4)

"""Tries and sequences of symbols are shared out by branch: who makes more keys gets no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sketched_pairs import WaitingTry
from twisted.internet.task import Clock

from hyperbloom.replication.limits import MAX_HELD_SKETCHES, MAX_TRIES, SLOW_TRY_SECONDS
from hyperbloom.replication.sketch_slots import SketchSlots

FEED = b"feed"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slots(clock):
    return SketchSlots(clock)


def tries(count, *branch, asked_at=None):
    """Tries with so many keys below a branch."""
    return [
        WaitingTry(FEED, *branch, b"key %d" % number, asked_at=asked_at) for number in range(count)
    ]


def begun(slots, some):
    return [slots.begin_try(one) for one in some]


def test_so_many_tries_are_under_way_at_one_time(slots):
    some = tries(MAX_TRIES + 1, b"branch")
    assert begun(slots, some) == [True] * MAX_TRIES + [False], "a branch alone may have them all"
    assert slots.begin_try(some[0]), "one that is under way goes on"
    slots.end_try(some[3])
    assert some[-1].told == ["go on"]
    assert slots.begin_try(some[-1])


def test_a_try_that_ended_while_it_waited_gets_no_place(slots):
    some = tries(MAX_TRIES + 2, b"branch")
    begun(slots, some)
    slots.end_try(some[-2])
    slots.end_try(some[0])
    assert [one.told for one in some[-2:]] == [[], ["go on"]]


def test_the_next_place_is_for_the_branch_with_the_fewest(slots):
    many, (other,) = tries(MAX_TRIES + 50, b"many"), tries(1, b"other")
    begun(slots, [*many, other])
    slots.end_try(many[0])
    assert other.told == ["go on"]
    assert not any(one.told for one in many)


def test_and_within_a_branch_for_the_key_with_the_fewest(slots):
    greedy, (other,) = tries(MAX_TRIES + 50, b"group", b"greedy"), tries(1, b"group")
    begun(slots, [*greedy, other])
    slots.end_try(greedy[0])
    assert other.told == ["go on"]


def test_feeds_have_their_shares_before_branches(slots):
    branches = [WaitingTry(FEED, b"branch %d" % number) for number in range(MAX_TRIES + 50)]
    other = WaitingTry(b"other feed", b"branch 0", b"key")
    begun(slots, [*branches, other])
    slots.end_try(branches[0])
    assert other.told == ["go on"]


def test_among_equals_who_came_first_goes_on(slots):
    some = [WaitingTry(FEED, b"branch %d" % number) for number in range(MAX_TRIES + 2)]
    begun(slots, some)
    slots.end_try(some[0])
    assert [one.told for one in some[-2:]] == [["go on"], []]


def test_a_slow_try_gives_way_to_a_branch_that_has_fewer(slots, clock):
    slow = tries(MAX_TRIES, b"slow", asked_at=0.0)
    begun(slots, slow)
    clock.advance(SLOW_TRY_SECONDS - 0.1)
    (other,) = tries(1, b"other")
    assert not slots.begin_try(other), "its answers may be on their way"
    assert not other.told
    clock.advance(1.0)
    assert other.told == ["go on"]
    assert [one.told for one in slow].count(["give way"]) == 1
    assert slow[0].told == ["give way"], "the one that came first"


def test_a_slow_try_gives_way_at_once_when_it_is_slow_already(slots, clock):
    slow = tries(MAX_TRIES, b"slow", asked_at=0.0)
    begun(slots, slow)
    clock.advance(SLOW_TRY_SECONDS)
    (other,) = tries(1, b"other")
    assert slots.begin_try(other)
    assert other.told == [], "it is told by the call itself"


def test_a_try_that_works_here_gives_way_to_nobody(slots, clock):
    begun(slots, tries(MAX_TRIES, b"slow"))
    clock.advance(60)
    (other,) = tries(1, b"other")
    assert not slots.begin_try(other)
    clock.advance(60)
    assert not other.told


def test_a_branch_gives_way_down_to_its_share_and_no_further(slots, clock):
    slow, others = tries(MAX_TRIES, b"slow", asked_at=0.0), tries(MAX_TRIES, b"other")
    begun(slots, slow)
    clock.advance(SLOW_TRY_SECONDS)
    begun(slots, others)
    clock.advance(10)
    assert [one.told for one in slow].count(["give way"]) == MAX_TRIES // 2


def test_no_clock_runs_when_nobody_waits(slots, clock):
    some = tries(MAX_TRIES + 1, b"branch")
    begun(slots, some)
    slots.end_try(some[-1])
    clock.advance(10)
    assert not clock.getDelayedCalls()


class Held:
    def __init__(self, *path):
        self.path, self.is_held = (FEED, *path), False

    def drop(self):
        self.is_held = False


def hold(slots, some):
    for one in some:
        one.is_held = True
        slots.hold(one.path, one.drop)


def test_so_many_sequences_are_held_and_the_oldest_gives_way(slots):
    some = [Held(b"%d" % number) for number in range(MAX_HELD_SKETCHES)]
    hold(slots, [*some, some[0]])
    assert all(one.is_held for one in some), "the first one was asked for again"
    hold(slots, [Held(b"new")])
    assert [one.is_held for one in some[:3]] == [True, False, True]
    slots.release(some[2].drop)
    hold(slots, [Held(b"newer")])
    assert [one.is_held for one in some].count(False) == 1


def test_a_branch_with_many_sequences_gives_way_and_not_the_others(slots):
    others = [Held(b"other %d" % number) for number in range(3)]
    deep = Held(b"far", b"down", b"in", b"a", b"chain")
    many = [Held(b"many", b"%d" % number) for number in range(200)]
    hold(slots, [*others, deep, *many])
    assert all(one.is_held for one in [*others, deep])
    assert sum(one.is_held for one in many) == MAX_HELD_SKETCHES - 4
    assert many[-1].is_held, "of these it is the oldest"


PATHS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=5).map(
    lambda keys: (FEED, *keys)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(PATHS, st.booleans()), max_size=60), st.integers(0, 59))
def test_no_branch_waits_while_another_has_two_more(steps, ended):
    """Whatever comes and goes: once all that are slow were looked at, nobody is passed over."""
    clock = Clock()
    slots, some = SketchSlots(clock), []
    for number, (path, is_over) in enumerate(steps):
        one = WaitingTry(*path, asked_at=0.0)
        some.append(one)
        slots.begin_try(one)
        if is_over:
            slots.end_try(some[ended % (number + 1)])
    clock.advance(SLOW_TRY_SECONDS)
    clock.advance(1.0)
    under_way, waiting = list(slots._tries), list(slots._waiting)
    assert len(under_way) <= MAX_TRIES
    assert not waiting or len(under_way) == MAX_TRIES
    assert not set(under_way) & set(waiting)
    for one in waiting[:1]:
        held = {path[1]: 0 for path in (other.path for other in under_way)}
        for other in under_way:
            held[other.path[1]] += 1
        fewest = min(held.get(other.path[1], 0) for other in waiting)
        assert max(held.values()) <= fewest + 1, (held, one.path)

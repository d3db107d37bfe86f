"""A feed gets what it lacks from one peer at a time, and none can keep its turn for ever."""

from __future__ import annotations

from hyperbloom.replication.broadcast.catch_up import CatchUp
from hyperbloom.replication.limits import CATCH_UP_FIRST, CATCH_UP_LONGEST, CATCH_UP_SECONDS

ONE, TWO = "one", "two"
PATHS = {ONE: (b"one",), TWO: (b"two",)}
NOW = 50.0


def test_nobody_has_the_turn_at_first():
    turn = CatchUp()
    assert not turn.is_of_another(ONE, PATHS[ONE], now=NOW)
    assert not turn.goes_on(ONE, now=NOW)


def test_the_turn_lasts_while_values_come():
    turn = CatchUp()
    turn.begins(ONE, PATHS[ONE], now=NOW)
    assert turn.is_of(ONE, now=NOW)
    assert turn.is_of_another(TWO, PATHS[TWO], now=NOW + CATCH_UP_FIRST - 0.1)
    assert not turn.is_of_another(TWO, PATHS[TWO], now=NOW + CATCH_UP_FIRST)
    assert turn.goes_on(ONE, now=NOW + 1)
    assert turn.until == NOW + 1 + CATCH_UP_SECONDS
    assert not turn.goes_on(ONE, now=turn.until)


def test_the_turn_of_who_sends_little_by_little_ends_all_the_same():
    turn = CatchUp()
    turn.begins(ONE, PATHS[ONE], now=NOW)
    now = NOW
    while turn.goes_on(ONE, now=now):
        now += CATCH_UP_SECONDS / 2
    assert now == NOW + CATCH_UP_LONGEST
    assert not turn.is_of_another(TWO, PATHS[TWO], now=now)


def test_what_another_sends_does_not_make_it_longer():
    turn = CatchUp()
    turn.begins(ONE, PATHS[ONE], now=NOW)
    assert not turn.goes_on(TWO, now=NOW)
    turn.ends(TWO, now=NOW)
    assert turn.until == NOW + CATCH_UP_FIRST


def test_it_ends_when_both_are_equal_and_when_another_one_is_asked():
    turn = CatchUp()
    turn.begins(ONE, PATHS[ONE], now=NOW)
    turn.ends(ONE, now=NOW)
    assert not turn.is_of_another(TWO, PATHS[TWO], now=NOW)
    turn.begins(ONE, PATHS[ONE], now=NOW)
    turn.begins(TWO, PATHS[TWO], now=NOW)
    assert turn.is_of_another(ONE, PATHS[ONE], now=NOW)


def longest(turn, path, now):
    """One of these keys after the other has the turn as long as it can; until when that lasts."""
    turn.begins(path, path, now=now)
    while turn.goes_on(path, now=now):
        now += CATCH_UP_SECONDS / 2
    return now


def test_a_member_with_many_keys_keeps_those_of_others_waiting_for_one_turn_and_no_longer():
    turn = CatchUp()
    now = longest(turn, (b"member", b"key 0"), NOW)
    for number in range(1, 50):
        path = (b"member", b"key %d" % number)
        turn.begins(path, path, now=now)
        assert not turn.is_of_another(ONE, PATHS[ONE], now=now), "it waits no more"
        is_held = turn.is_of_another("other", (b"member", b"another"), now=now)
        assert is_held, "his own keys wait for each other"
        now += 0.5
        turn.ends(path, now=now)
    now += 2 * CATCH_UP_LONGEST
    turn.begins(path, path, now=now)
    assert turn.is_of_another(ONE, PATHS[ONE], now=now), "it is forgotten by and by"


def test_below_one_coordinator_a_member_with_many_keys_keeps_the_others_waiting_as_little():
    turn, now = CatchUp(), NOW
    for number in range(3):
        now = longest(turn, (b"coordinator", b"member", b"key %d" % number), now)
    turn.begins("again", (b"coordinator", b"member", b"key"), now=now)
    assert not turn.is_of_another(ONE, (b"coordinator", b"one"), now=now)

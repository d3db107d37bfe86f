"""A feed gets what it lacks from one peer at a time, and none can keep its turn for ever."""

from __future__ import annotations

from hyperbloom.replication.broadcast.catch_up import CatchUp
from hyperbloom.replication.limits import CATCH_UP_FIRST, CATCH_UP_LONGEST, CATCH_UP_SECONDS

ONE, TWO = "one", "two"
NOW = 50.0


def test_nobody_has_the_turn_at_first():
    turn = CatchUp()
    assert not turn.is_of_another(ONE, now=NOW)
    assert not turn.goes_on(ONE, now=NOW)


def test_the_turn_lasts_while_values_come():
    turn = CatchUp()
    turn.begins(ONE, now=NOW)
    assert turn.is_of(ONE, now=NOW)
    assert turn.is_of_another(TWO, now=NOW + CATCH_UP_FIRST - 0.1)
    assert not turn.is_of_another(TWO, now=NOW + CATCH_UP_FIRST)
    assert turn.goes_on(ONE, now=NOW + 1)
    assert turn.until == NOW + 1 + CATCH_UP_SECONDS
    assert not turn.goes_on(ONE, now=turn.until)


def test_the_turn_of_who_sends_little_by_little_ends_all_the_same():
    turn = CatchUp()
    turn.begins(ONE, now=NOW)
    now = NOW
    while turn.goes_on(ONE, now=now):
        now += CATCH_UP_SECONDS / 2
    assert now == NOW + CATCH_UP_LONGEST
    assert not turn.is_of_another(TWO, now=now)


def test_what_another_sends_does_not_make_it_longer():
    turn = CatchUp()
    turn.begins(ONE, now=NOW)
    assert not turn.goes_on(TWO, now=NOW)
    turn.ends(TWO)
    assert turn.until == NOW + CATCH_UP_FIRST


def test_it_ends_when_both_are_equal_and_when_another_one_is_asked():
    turn = CatchUp()
    turn.begins(ONE, now=NOW)
    turn.ends(ONE)
    assert not turn.is_of_another(TWO, now=NOW)
    turn.begins(ONE, now=NOW)
    turn.begins(TWO, now=NOW)
    assert turn.is_of_another(ONE, now=NOW)

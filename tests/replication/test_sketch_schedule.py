"""When a peer is asked by symbols, and what follows when they do not lead to the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from driven_schedule import INTERVAL, PLAN, QUIET, Driven, in_sync

from hyperbloom.replication.limits import (
    CATCH_UP_LONGEST,
    CATCH_UP_SECONDS,
    DOUBT_SECONDS,
    FULL_PLAN_SECONDS,
    LEAST_RATE,
    MAX_TRY_SYMBOLS,
    SKETCH_ROUNDS,
    SKETCH_SECONDS,
)
from hyperbloom.replication.schedule.sketch_try import SYMBOL_BYTES, SketchOutcome, first_symbols
from hyperbloom.replication.schedule.sync_commands import (
    BeginSketch,
    CompareDigests,
)

#: A peer that speaks `reconcile`, about a feed whose filters weigh a megabyte.
SPEAKS = replace(QUIET, can_reconcile=True, filters_bytes=1_000_000.0)
COUNTS = (40_000, 40_010)
TRY = BeginSketch(first=first_symbols(*COUNTS), most=MAX_TRY_SYMBOLS, is_salted=False)


def begun(one, counts=COUNTS):
    """The command that a comparison with different digests leads to."""
    while not isinstance(command := one.wake(), CompareDigests):
        assert command is None
    return one.schedule.compared(
        command.number, in_sync(False), 0.0, now=one.now, situation=one.situation, counts=counts
    )


def over(one, outcome, seconds=0.0):
    return one.schedule.sketch_over(outcome, seconds, now=one.now, situation=one.situation)


def test_different_digests_lead_to_symbols_where_both_speak_them():
    one = Driven(SPEAKS)
    assert begun(one) == TRY
    assert one.schedule.is_reconciling
    assert one.wait == SKETCH_SECONDS
    assert over(one, SketchOutcome.TAKEN) is None
    assert one.wait == DOUBT_SECONDS, "a look follows, as behind a plan"
    assert isinstance(one.wake(), CompareDigests)


@pytest.mark.parametrize(
    "counts",
    [None, (0, 40_000), (40_000, 1), (19_999, 40_000), (40_000, 19_999), (40_000, 79_000)],
)
def test_where_symbols_gain_nothing_there_is_a_plan(counts):
    one = Driven(SPEAKS)
    assert begun(one, counts) == PLAN


def test_filters_that_weigh_less_than_symbols_are_sent():
    one = Driven(replace(SPEAKS, filters_bytes=(128 + 23) * SYMBOL_BYTES - 1.0))
    assert begun(one, (1_000, 1_014)) == PLAN
    one = Driven(replace(SPEAKS, filters_bytes=(128 + 23) * SYMBOL_BYTES + 1.0))
    assert begun(one, (1_000, 1_014)).first == 128 + 23


def test_a_try_takes_no_more_than_the_plans_of_both_would():
    one = Driven(replace(SPEAKS, filters_bytes=10_000.0))
    assert begun(one, (2_000, 3_000)) == PLAN, "1,000 differ at least"
    assert begun_again(one, (2_000, 2_010)).most == int(10_000 * (1 + 2_010 / 2_000) / SYMBOL_BYTES)


def begun_again(one, counts=COUNTS):
    one.planned()
    return begun(one, counts)


def test_who_does_not_speak_it_is_asked_by_a_plan():
    assert begun(Driven(replace(SPEAKS, can_reconcile=False))) == PLAN
    assert begun(Driven(replace(SPEAKS, keeps_anything=False))) is None


def test_each_block_gives_the_peer_its_time_again():
    one = Driven(SPEAKS)
    begun(one)
    one.now += SKETCH_SECONDS - 1
    one.schedule.sketch_moved(0, now=one.now)
    assert one.wait == SKETCH_SECONDS
    assert one.wake() == PLAN, "nothing came for so long"
    one.schedule.sketch_moved(0, now=one.now)
    assert one.schedule.is_planning


def test_an_answer_has_more_time_the_longer_it_is_and_not_again_while_it_comes():
    one = Driven(SPEAKS)
    begun(one)
    one.schedule.sketch_moved(20_000, now=one.now)
    wait = SKETCH_SECONDS + 20_000 * SYMBOL_BYTES / LEAST_RATE
    assert one.wait == wait
    one.schedule.sketch_moved(0, now=one.now + 1)
    assert one.wait == wait


def test_what_does_not_decode_is_tried_with_a_salt_and_then_by_a_plan():
    one = Driven(SPEAKS)
    begun(one)
    assert over(one, SketchOutcome.UNDECODED) == replace(TRY, is_salted=True)
    assert one.wait == SKETCH_SECONDS
    assert over(one, SketchOutcome.UNDECODED) == PLAN
    one.planned()
    assert begun(one) == TRY, "the plan is a new beginning"
    one.situation = replace(SPEAKS, may_salt=False)
    assert over(one, SketchOutcome.UNDECODED) == PLAN


def test_a_peer_that_has_no_symbols_is_asked_by_a_plan_at_once():
    one = Driven(SPEAKS)
    begun(one)
    assert over(one, SketchOutcome.REFUSED) == PLAN


def test_tries_that_move_nothing_lead_to_a_salt_and_to_a_plan():
    one = Driven(SPEAKS)
    begun(one)
    assert over(one, SketchOutcome.NOTHING) is None
    assert begun(one) == replace(TRY, is_salted=True)
    assert over(one, SketchOutcome.NOTHING) is None
    assert begun(one) == PLAN
    one.planned()
    begun(one)
    over(one, SketchOutcome.NOTHING)
    one.situation = replace(SPEAKS, may_salt=False)
    assert begun(one) == PLAN


def test_digests_that_were_equal_meanwhile_begin_anew():
    one = Driven(SPEAKS)
    begun(one)
    over(one, SketchOutcome.NOTHING)
    command = one.wake()
    one.compared(command.number, in_sync())
    assert begun(one) == TRY


def test_after_so_many_rounds_by_symbols_there_is_a_plan():
    one = Driven(SPEAKS)
    for _ in range(SKETCH_ROUNDS):
        assert begun(one) == TRY
        over(one, SketchOutcome.TAKEN)
    assert begun(one) == PLAN
    one.planned()
    assert begun(one) == TRY


def test_while_the_peer_asks_this_side_does_not():
    one = Driven(replace(SPEAKS, is_reconciled=True))
    for _ in range(SKETCH_ROUNDS):
        assert begun(one) is None
        assert one.wait <= INTERVAL
    assert begun(one) == PLAN, "it may go on like this for ever"
    other = Driven(SPEAKS)
    begun(other)
    assert over(other, SketchOutcome.CROSSED) is None
    assert other.wait == DOUBT_SECONDS


def test_while_another_peer_brings_what_is_lacking_this_one_is_compared_with_again():
    one = Driven(replace(SPEAKS, another_brings=True))
    assert begun(one) is None
    assert one.wait == CATCH_UP_SECONDS
    one.situation = SPEAKS
    assert isinstance(begun(one), BeginSketch)


def test_it_does_not_wait_for_another_peer_for_ever_and_each_time_anew():
    one = Driven(replace(SPEAKS, another_brings=True))
    waited = 0
    while begun(one) is None:
        waited += 1
    assert waited == CATCH_UP_LONGEST / CATCH_UP_SECONDS
    over(one, SketchOutcome.TAKEN)
    assert begun(one) is None


def test_equal_digests_end_the_waiting_for_another_peer():
    one = Driven(replace(SPEAKS, another_brings=True))
    for _ in range(40):
        assert begun(one) is None
    one.compared(one.wake().number, in_sync())
    for _ in range(40):
        assert begun(one) is None


def test_the_hourly_plan_stays():
    one = Driven(SPEAKS, wait=FULL_PLAN_SECONDS)
    assert begun(one) == PLAN
    one.planned()
    assert begun(one) == TRY


def test_what_is_over_changes_nothing_any_more():
    one = Driven(SPEAKS)
    assert over(one, SketchOutcome.TAKEN) is None
    begun(one)
    over(one, SketchOutcome.TAKEN)
    assert over(one, SketchOutcome.UNDECODED) is None
    one.schedule.stop()
    assert over(one, SketchOutcome.UNDECODED) is None


def test_a_try_of_the_peer_that_came_to_nothing_is_not_repeated():
    one = Driven(SPEAKS)
    one.schedule.symbols_failed()
    assert begun(one) == PLAN
    one.planned()
    assert begun(one) == TRY


def test_behind_a_try_of_the_peer_it_is_compared_with_soon_but_not_for_ever():
    one = Driven(replace(SPEAKS, is_reconciled=True))
    waits = []
    for _ in range(SKETCH_ROUNDS):
        assert begun(one) is None
        one.schedule.peer_tried(now=one.now)
        waits.append(one.wait)
    assert waits[:2] == [DOUBT_SECONDS] * 2
    assert waits[2:] == [16.0, INTERVAL], (
        "who begins try after try is not compared with each second"
    )

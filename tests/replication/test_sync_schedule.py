"""When a peer is asked, and in which way: events in, commands out, and no clock but a number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from driven_schedule import INTERVAL, NPM, PLAN, QUIET, Driven, in_sync
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.replication.limits import (
    AWAITED_SECONDS,
    DIGEST_SECONDS,
    DOUBT_FACTOR,
    DOUBT_SECONDS,
    FULL_PLAN_SECONDS,
    SYNC_SHARE,
)
from hyperbloom.replication.schedule.plan import FILTER_BYTES
from hyperbloom.replication.schedule.sketch_try import SketchOutcome
from hyperbloom.replication.schedule.sync_commands import (
    BeginPlan,
    BeginSketch,
    ChangeWay,
    CompareDigests,
    Way,
    choose_way,
)
from hyperbloom.replication.schedule.sync_schedule import (
    ANSWER_SECONDS,
    HURRY_SECONDS,
    LEAST_FILTER_BYTES,
    SyncSchedule,
)
from hyperbloom.replication.settings import WHOLE
from hyperbloom.replication.status import SyncState


def test_a_round_begins_with_a_comparison_and_equal_digests_end_it():
    one = Driven()
    assert one.wake() == CompareDigests(number=1)
    assert one.wait == DIGEST_SECONDS
    assert one.schedule.digest_came(1, now=one.now)
    assert one.compared(1, in_sync()) is None
    assert one.schedule.state == in_sync()
    assert one.wait == INTERVAL
    assert one.wake() == CompareDigests(number=2)


def test_different_digests_lead_to_a_plan():
    one = Driven()
    one.wake()
    one.schedule.digest_came(1, now=one.now)
    assert one.compared(1, in_sync(False)) == PLAN
    assert one.schedule.next_deadline is None, "nothing is due while the plan is asked"
    assert not one.schedule.state.in_sync


def compared_with(one, there):
    """The round's comparison: the peer has so many values, and they are not those that are here."""
    command = one.wake()
    assert one.schedule.digest_came(command.number, now=one.now)
    state, counts = in_sync(False), (100_000, there)
    return one.schedule.compared(
        command.number, state, 0.0, now=one.now, situation=one.situation, counts=counts
    )


def test_a_new_peer_is_not_asked_while_it_has_no_more_than_it_was_sent():
    one = Driven()
    assert compared_with(one, 0) is None
    assert one.wait == DOUBT_SECONDS
    one.situation = replace(QUIET, values_sent=500, moved_at=one.schedule.next_deadline)
    assert one.wake() is None, "it is being answered"
    assert one.wait == DOUBT_SECONDS
    assert compared_with(one, 500) is None
    assert not one.schedule.state.in_sync
    one.situation = replace(QUIET, values_sent=500, moved_at=one.now)
    assert compared_with(one, 501) == PLAN, "it has a value of its own"


def test_a_new_peer_that_has_all_it_was_sent_is_asked_after_the_interval_at_the_latest():
    one = Driven()
    begun = one.now
    while compared_with(one, 0) is None:
        assert one.now < begun + INTERVAL
    assert one.now == begun + INTERVAL


@pytest.mark.parametrize("first", ["equal", "planned"])
def test_only_a_new_peer_is_spared(first):
    one = Driven(replace(QUIET, values_sent=500))
    one.wake()
    if first == "equal":
        one.compared(1, in_sync())
    else:
        one.compared(1, None)
        one.planned()
    assert compared_with(one, 400) == PLAN, "it lost values of late, or has others"


def test_a_digest_without_a_result_leads_to_a_plan_and_leaves_what_was_known():
    one = Driven()
    one.wake()
    one.compared(1, in_sync())
    one.wake()
    assert one.compared(2, None) == PLAN
    assert one.schedule.state == in_sync()


def test_without_an_answer_there_is_a_plan_after_a_while():
    one = Driven()
    one.wake()
    begun = one.now
    assert one.wake() == PLAN
    assert one.now - begun == DIGEST_SECONDS


def test_an_answer_that_came_has_its_time_to_be_compared():
    one = Driven()
    one.wake()
    one.now += DIGEST_SECONDS - 1
    assert one.schedule.digest_came(1, now=one.now)
    assert one.wait == DIGEST_SECONDS
    assert one.wake() == PLAN, "adding up did not come to its end"


def test_answers_that_nobody_awaits_are_dropped():
    one = Driven()
    assert not one.schedule.digest_came(0, now=one.now)
    one.wake()
    assert not one.schedule.digest_came(2, now=one.now)
    assert one.schedule.digest_came(1, now=one.now)
    assert not one.schedule.digest_came(1, now=one.now), "a second answer"
    assert one.compared(2, in_sync()) is None
    assert one.schedule.state is None
    one.compared(1, in_sync(False))
    assert one.compared(1, in_sync()) is None, "the round is over"
    assert not one.schedule.state.in_sync


def test_a_peer_that_cannot_be_compared_with_is_asked_at_once():
    assert Driven(NPM).wake() == PLAN


def test_who_keeps_nothing_asks_nothing_and_rests():
    one = Driven(replace(NPM, keeps_anything=False))
    assert one.wake() is None
    assert one.wait == INTERVAL


def test_equal_digests_spare_the_plan_for_an_hour():
    one = Driven()
    begun = one.now
    while True:
        command = one.wake()
        if isinstance(command, BeginPlan):
            break
        assert one.now - begun <= FULL_PLAN_SECONDS + INTERVAL
        if one.compared(command.number, in_sync()) is not None:
            break
    assert FULL_PLAN_SECONDS <= one.now - begun <= FULL_PLAN_SECONDS + INTERVAL


def differing(one):
    """A round whose digests differ, up to the end of its plan."""
    command = one.wake()
    assert one.compared(command.number, in_sync(False)) == PLAN
    one.planned()


def test_a_plan_is_followed_by_a_comparison_ever_later_while_the_sets_differ():
    one = Driven()
    differing(one)
    waits = []
    for _ in range(5):
        waits.append(one.wait)
        differing(one)
    expected = [DOUBT_SECONDS * DOUBT_FACTOR**n for n in range(5)]
    assert waits == [min(wait, INTERVAL) for wait in expected]
    command = one.wake()
    one.compared(command.number, in_sync())
    differing(one)
    assert one.wait == DOUBT_SECONDS, "they were equal once"


def test_while_values_move_the_comparison_waits_but_not_beyond_the_interval():
    one = Driven()
    differing(one)
    begun = one.now
    while one.now < begun + INTERVAL - DOUBT_SECONDS:
        one.situation = replace(one.situation, moved_at=one.schedule.next_deadline)
        assert one.wake() is None
        assert one.wait <= DOUBT_SECONDS
    one.situation = replace(one.situation, is_receiving=True)
    assert isinstance(one.wake(), CompareDigests)
    assert one.now == begun + INTERVAL


def lacking(one, here, there):
    """A round that finds so many values there and here, and its plan."""
    number = one.wake().number
    one.schedule.compared(
        number, in_sync(False), 0.0, now=one.now, situation=one.situation, counts=(here, there)
    )
    one.planned()


@pytest.mark.parametrize("interval", [0.25, 10.0, INTERVAL])
def test_a_peer_whose_answer_still_comes_is_not_asked_for_it_again(monkeypatch, interval):
    """A first sync of a thousand values that takes ten intervals: one a hundredth of it."""
    monkeypatch.setattr(Driven, "interval", lambda self, least: max(interval, least))
    one = Driven()
    lacking(one, 0, 1_000)
    begun, came = one.now, 0
    while came < 999:
        came = min(999, int((one.schedule.next_deadline - begun) / interval * 100) + 1)
        one.situation = replace(one.situation, values_new=came, moved_at=one.schedule.next_deadline)
        assert one.wake() is None, f"asked again after {one.now - begun} s, {came} values"
    assert one.now - begun >= 9 * interval
    # The last one never comes: nothing moves any more, and it is asked for.
    for _ in range(3):
        if isinstance(command := one.wake(), CompareDigests):
            break
    assert isinstance(command, CompareDigests)


def test_who_draws_an_answer_out_is_asked_again_within_an_hour():
    one = Driven()
    lacking(one, 0, 1 << 40)
    begun, command = one.now, None
    while command is None:
        assert one.now - begun <= AWAITED_SECONDS + INTERVAL
        came = one.situation.values_new + 1
        one.situation = replace(one.situation, values_new=came, moved_at=one.schedule.next_deadline)
        command = one.wake()
    assert isinstance(command, CompareDigests)
    assert one.now - begun >= AWAITED_SECONDS


def test_the_comparison_comes_a_second_after_the_last_value():
    one = Driven()
    differing(one)
    moved_at = one.now + 0.02
    one.situation = replace(one.situation, moved_at=moved_at)
    assert one.wake() is None
    assert isinstance(one.wake(), CompareDigests)
    assert one.now == moved_at + DOUBT_SECONDS


def test_what_takes_long_is_done_less_often():
    one = Driven(replace(QUIET, peers=10))
    one.wake()
    one.compared(1, in_sync(), seconds=2.0)
    assert one.wait == pytest.approx(2.0 * 10 / SYNC_SHARE)


def test_the_peers_first_sync_lets_ours_begin():
    one = Driven(wait=5.0)
    assert one.wait == 5.0
    assert one.asked() is None
    assert one.wait == 0.0
    assert one.wake() == CompareDigests(number=1)


def test_a_later_sync_of_the_peer_changes_nothing():
    one = Driven(replace(QUIET, was_asked=True), wait=5.0)
    assert one.asked() is None
    assert one.wait == 5.0


@pytest.mark.parametrize(
    ("peer_bytes", "way"),
    [(None, Way.FILTERS), (1_000, Way.FILTERS), (999, Way.EMPTY_FILTER), (0, Way.EMPTY_FILTER)],
)
def test_the_way_that_moves_the_fewest_bytes_is_chosen(peer_bytes, way):
    assert choose_way(peer_bytes=peer_bytes, filters_bytes=1_000) is way
    one = Driven(NPM)
    one.asked(peer_bytes)
    assert one.wake() == BeginPlan(way=way, filter_bytes=FILTER_BYTES)


def test_what_the_peer_was_sent_counts_as_what_it_holds():
    one = Driven(NPM)
    one.asked(900.0)
    one.schedule.peer_was_sent(100)
    assert one.wake() == PLAN


def test_a_plan_under_way_goes_on_the_other_way_once():
    one = Driven(NPM)
    assert one.wake() == PLAN
    assert one.asked(None) is None
    assert one.asked(5_000.0) is None
    assert one.asked(10.0) == ChangeWay(way=Way.EMPTY_FILTER)
    assert one.asked(10.0) is None
    assert one.asked(5_000.0) is None, "an empty filter has asked for all there is"


@pytest.mark.parametrize(
    ("recommended", "taken"),
    [(1, LEAST_FILTER_BYTES), (20_000, 20_000), (FILTER_BYTES + 1, FILTER_BYTES)],
)
def test_the_peer_recommends_smaller_filters(recommended, taken):
    one = Driven(NPM)
    one.schedule.filters_recommended(recommended)
    assert one.wake() == BeginPlan(way=Way.FILTERS, filter_bytes=taken)


def test_who_waits_for_it_has_the_peer_asked_without_the_interval():
    one = Driven()
    one.wake()
    one.schedule.hurry(now=one.now)
    assert one.wait == DIGEST_SECONDS, "it is being asked already"
    one.compared(1, in_sync())
    one.schedule.hurry(now=one.now)
    assert one.wait == INTERVAL, "it was asked just now"
    one.now += HURRY_SECONDS
    one.schedule.hurry(now=one.now)
    assert one.wake() == CompareDigests(number=2)


def npm_round(one):
    """A plan, and the look at its answers."""
    while not isinstance(one.wake(), BeginPlan):
        pass
    one.planned()
    assert one.wait == ANSWER_SECONDS


def test_by_sync_alone_a_peer_is_in_sync_when_both_plans_brought_nothing():
    one = Driven(NPM)
    npm_round(one)
    assert one.wake() is None
    assert one.schedule.state is None, "the peer has not asked"
    one.schedule.peer_was_answered(WHOLE)
    npm_round(one)
    assert one.wake() is None
    assert one.schedule.state == SyncState(in_sync=True, at=NPM.at, source="sync")


@pytest.mark.parametrize("busy", ["is_receiving", "awaits_reply"])
def test_answers_that_still_come_are_waited_for(busy):
    one = Driven(NPM)
    one.schedule.peer_was_answered(WHOLE)
    npm_round(one)
    one.situation = replace(NPM, **{busy: True})
    one.wake()
    assert one.schedule.state is None
    assert one.wait == ANSWER_SECONDS
    one.situation = replace(NPM, values_new=1)
    one.wake()
    assert one.schedule.state == SyncState(in_sync=False, at=NPM.at, source="sync")


def test_a_peer_that_was_not_sent_everything_is_not_in_sync():
    one = Driven(NPM)
    one.schedule.peer_was_answered(WHOLE)
    npm_round(one)
    one.situation = replace(NPM, is_sending=True)
    one.wake()
    assert one.schedule.state is None


def test_answers_are_looked_at_though_plans_follow_each_other_faster():
    one = Driven(NPM)
    one.interval = lambda least: 1.0
    one.schedule = SyncSchedule([WHOLE], interval=one.interval, now=one.now)
    one.schedule.begin(0.0, now=one.now)
    one.schedule.peer_was_answered(WHOLE)
    begun = one.now
    while one.schedule.state is None:
        if isinstance(one.wake(), BeginPlan):
            one.planned()
        assert one.now <= begun + ANSWER_SECONDS + 1
    assert one.schedule.state.in_sync


def test_nothing_is_due_before_it_begins_and_after_it_ends():
    schedule = SyncSchedule([WHOLE], interval=lambda least: INTERVAL, now=0.0)
    assert schedule.next_deadline is None
    one = Driven(NPM)
    one.wake()
    one.planned()
    one.schedule.stop()
    assert one.schedule.next_deadline is None
    assert one.schedule.wake(now=one.now + 9_999, situation=NPM) is None
    one.schedule.hurry(now=one.now + 9_999)
    assert one.asked(1.0) is None
    one.planned()
    assert one.schedule.next_deadline is None


SITUATIONS = st.builds(
    lambda can_compare, keeps, busy, moved, speaks: replace(
        QUIET,
        can_compare=can_compare,
        can_reconcile=speaks,
        is_reconciled=speaks and busy,
        another_brings=busy,
        filters_bytes=10_000.0,
        keeps_anything=keeps,
        was_asked=busy,
        is_receiving=busy,
        awaits_reply=busy,
        moved_at=moved,
        values_new=moved,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
    st.booleans(),
)
EVENTS = st.sampled_from(
    ["wake", "due", "hurry", "asked", "asked little", "came", "compared", "differs", "planned",
     "symbols", *SketchOutcome]
)  # fmt: skip


@given(st.lists(st.tuples(EVENTS, SITUATIONS, st.floats(0.0, 100.0)), max_size=60))
def test_in_any_order_of_events_one_thing_is_asked_at_a_time(events):
    one = Driven()
    asking = number = None
    for name, situation, later in events:
        one.situation = situation
        one.now += later if name != "due" else 0.0
        before = asking
        deadline = one.schedule.next_deadline
        assert deadline is not None or asking is BeginPlan, "there is always a next deadline"
        command = None
        match name:
            case "wake":
                command = one.schedule.wake(now=one.now, situation=situation)
            case "due" if deadline is not None:
                one.now = max(one.now, deadline)
                command = one.schedule.wake(now=one.now, situation=situation)
            case "hurry":
                one.schedule.hurry(now=one.now)
            case "asked" | "asked little":
                command = one.asked(1.0 if name == "asked little" else 9_999.0)
            case "came" if number is not None:
                one.schedule.digest_came(number, now=one.now)
            case "symbols":
                one.schedule.sketch_moved(0, now=one.now)
            case SketchOutcome():
                command = one.schedule.sketch_over(name, 0.0, now=one.now, situation=situation)
                if before is BeginSketch:
                    asking = None
            case "compared" | "differs" if number is not None:
                command = one.compared(number, in_sync(name == "compared"))
                if before is CompareDigests:
                    asking = None
            case "planned":
                one.planned()
                if before is BeginPlan:
                    asking = None
        if before is CompareDigests and not one.schedule.is_comparing:
            asking = None
        if before is BeginSketch and not one.schedule.is_reconciling:
            asking = None
        match command:
            case CompareDigests():
                assert before is None, "not beside a plan or another comparison"
                assert situation.can_compare
                assert number is None or command.number == number + 1
                number, asking = command.number, CompareDigests
            case BeginPlan():
                assert before is not BeginPlan, "never two plans at once"
                assert situation.keeps_anything
                asking = BeginPlan
            case ChangeWay():
                assert before is BeginPlan
            case BeginSketch():
                assert before in (None, CompareDigests, BeginSketch)
                assert before is not BeginSketch or command.is_salted
                assert situation.keeps_anything
                asking = BeginSketch
        assert one.schedule.is_planning == (asking is BeginPlan)
        assert one.schedule.is_comparing == (asking is CompareDigests)
        assert one.schedule.is_reconciling == (asking is BeginSketch)

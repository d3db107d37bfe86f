"""Plans and replies without I/O: what is asked, cut, answered and asked on."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.bloom import BloomFilter, capacity
from hyperbloom.connections.shares import WorkBudget
from hyperbloom.replication.limits import LONGEST_VALUE_BYTES, OUTSTANDING_SYNCS, SLICE_BYTES
from hyperbloom.replication.reading.range_digests import QUESTION_VALUES
from hyperbloom.replication.reading.ranges import contains, overlap, union, within
from hyperbloom.replication.schedule.plan import (
    FILTER_BYTES,
    MAX_BOUND_BYTES,
    Asked,
    SyncPlan,
    reply_limit,
    separator,
)
from hyperbloom.replication.sync.reply import reply_to_request, reply_to_sync
from hyperbloom.wire import Range, Request, Sync
from hyperbloom.wire.limits import SEND_FRAME_BYTES


@dataclass
class Piece:
    values: list[bytes]
    next_start: bytes | None


class SortedValues:
    """A sorted list read in slices, as the store is."""

    def __init__(self, values: list[bytes], slice_values: int = 7) -> None:
        self.values = sorted(set(values))
        self.slice_values = slice_values

    def __call__(self, start: bytes, end: bytes | None, most: int = 0) -> Piece:
        first = bisect_left(self.values, start)
        last = len(self.values) if end is None else bisect_left(self.values, end)
        stop = min(last, first + (most or self.slice_values))
        values = self.values[first:stop]
        return Piece(values, values[-1] + b"\0" if stop < last else None)


def fresh_seeds():
    numbers = random.Random(5)
    return lambda: numbers.getrandbits(32)


def make_plan(values, ranges=((b"", None),), filter_bytes=64, **more):
    return SyncPlan(
        ranges,
        read=SortedValues(values),
        seed=fresh_seeds(),
        false_positive=1e-6,
        filter_bytes=filter_bytes,
        **more,
    )


def all_syncs(plan, limit=None):
    syncs = []
    while (sync := plan.next_sync(limit=limit)) is not None:
        syncs.append(sync)
        assert len(syncs) < 10_000
    return syncs


def bloom_of(sync: Sync) -> BloomFilter:
    return BloomFilter.from_bytes(sync.filter, size=sync.size, n=sync.n, seed=sync.seed)


byte_strings = st.binary(min_size=1, max_size=6)


@given(st.lists(byte_strings, min_size=2, max_size=2, unique=True))
def test_a_separator_lies_between_and_is_no_longer_than_needed(pair):
    low, high = sorted(pair)
    bound = separator(low, high)
    assert low < bound <= high
    assert len(bound) == 1 or bound[:-1] <= low


@settings(max_examples=60, deadline=None)
@given(st.sets(byte_strings, max_size=200))
def test_the_ranges_of_a_plan_cover_everything_once_and_each_filter_knows_its_values(values):
    syncs = all_syncs(make_plan(list(values)))
    if len(syncs) == 1:
        assert syncs[0].range is None
        assert bloom_of(syncs[0]).missing(sorted(values)) == []
        return
    assert syncs[0].range.start == b""
    assert syncs[-1].range.end is None
    for before, after in itertools.pairwise(syncs):
        assert before.range.end == after.range.start
    for sync in syncs:
        bounds = (sync.range.start, sync.range.end)
        inside = [value for value in values if contains(bounds, value)]
        assert inside
        assert bloom_of(sync).missing(inside) == []


def test_each_filter_has_a_fresh_seed():
    syncs = all_syncs(make_plan([b"%05d" % i for i in range(300)]))
    assert len(syncs) > 3
    assert len({sync.seed for sync in syncs}) == len(syncs)


def test_only_the_listed_ranges_are_asked():
    values = [b"%05d" % i for i in range(300)]
    ranges = ((b"00010", b"00050"), (b"00200", None))
    syncs = all_syncs(make_plan(values, ranges))
    asked = [(s.range.start, s.range.end) for s in syncs]
    assert asked[0][0] == b"00010"
    assert asked[-1][1] is None
    gap = next(i for i, (_, end) in enumerate(asked) if end == b"00050")
    assert asked[gap + 1][0] == b"00200"


def test_a_light_node_asks_nothing():
    plan = make_plan([b"a"], ranges=())
    assert plan.done
    assert plan.next_sync() is None


def test_an_empty_feed_asks_for_everything():
    (sync,) = all_syncs(make_plan([]))
    assert sync.range is None
    assert bloom_of(sync).missing([b"x", b"y"]) == [0, 1]


def test_a_collapsed_plan_asks_for_the_rest_with_one_empty_filter():
    plan = make_plan([b"%05d" % i for i in range(300)])
    first = plan.next_sync()
    plan.collapse()
    (rest,) = all_syncs(plan)
    assert (rest.range.start, rest.range.end) == (first.range.end, None)
    assert bloom_of(rest).is_empty


def test_refused_values_are_in_the_filters_of_their_range():
    values = [b"%05d" % i for i in range(300)]
    refused = (b"00007x", b"00299x")
    for sync in all_syncs(make_plan(values, refused=refused)):
        bounds = (sync.range.start, sync.range.end)
        inside = [value for value in refused if contains(bounds, value)]
        assert bloom_of(sync).missing(inside) == []
    everything = all_syncs(make_plan(values, refused=refused))
    assert sum(contains((s.range.start, s.range.end), r) for s in everything for r in refused) == 2


def test_no_cut_is_made_where_the_bound_would_be_long():
    prefix = b"p" * (MAX_BOUND_BYTES + 10)
    values = [prefix + b"%05d" % i for i in range(200)] + [b"z%05d" % i for i in range(200)]
    for sync in all_syncs(make_plan(values)):
        assert len(sync.range.start) <= MAX_BOUND_BYTES
        assert sync.range.end is None or len(sync.range.end) <= MAX_BOUND_BYTES


@pytest.mark.parametrize("slice_values", [1, 7, 16, 17, 18, 100])
def test_a_cut_is_made_right_behind_the_last_value_that_fits(slice_values):
    most = capacity(64, 1e-6)
    assert most == 17, "so that slices end before the cut, at it and behind it"
    values = [b"a%02d" % n for n in range(most - 1)] + [b"ba", b"bb"]
    plan = SyncPlan(
        ((b"", None),),
        read=SortedValues(values, slice_values),
        seed=fresh_seeds(),
        false_positive=1e-6,
        filter_bytes=64,
    )
    first, second = all_syncs(plan)
    assert (first.range.end, second.range.start) == (b"bb", b"bb")


def test_a_full_size_filter_with_the_longest_bounds_fits_a_frame():
    bound = b"b" * (MAX_BOUND_BYTES - 1)
    values = [bound + bytes([2])] + [b"c%07d" % i for i in range(80_000)]
    plan = SyncPlan(
        ((bound + b"\1", b"d" * MAX_BOUND_BYTES),),
        read=SortedValues(values, 8_192),
        seed=fresh_seeds(),
        false_positive=1e-6,
    )
    syncs = all_syncs(plan, limit=1000)
    assert len(syncs) == 2
    assert max(len(sync.encode()) for sync in syncs) < SEND_FRAME_BYTES
    assert max(len(sync.filter) for sync in syncs) > 200_000


ranges = st.tuples(st.binary(max_size=3), st.none() | st.binary(min_size=1, max_size=3))


@given(ranges, ranges, st.binary(min_size=1, max_size=4))
def test_overlap_is_where_both_contain(a, b, value):
    common = overlap(a, b)
    both = contains(a, value) and contains(b, value)
    assert both == (common is not None and contains(common, value))


# Replies


@settings(max_examples=60, deadline=None)
@given(
    st.sets(byte_strings, max_size=120),
    st.sets(byte_strings, max_size=30),
    st.none() | st.integers(1, 50),
)
def test_a_reply_has_what_the_filter_lacks_in_order_up_to_the_limit(values, known, limit):
    bloom = BloomFilter(4096, 20, 7)
    bloom.add(sorted(known))
    sync = Sync(
        filter=bloom.to_bytes(),
        size=4096,
        n=20,
        seed=7,
        limit=limit,
        range=Range(start=b"\x10", end=b"\xf0"),
    )
    reply = reply_to_sync(sync, SortedValues(list(values)), list)
    sent = []
    while not reply.done:
        sent += reply.next_portion(most_slices=2)
    missing = [v for v in sorted(values - known) if b"\x10" <= v < b"\xf0" and v not in bloom]
    assert sent == missing[:limit]


@given(st.sets(byte_strings, max_size=60), st.none() | st.integers(1, 20))
def test_a_request_is_answered_with_the_smallest_values_of_its_range(values, limit):
    request = Request(start=b"\x20", end=None, limit=limit)
    reply = reply_to_request(request, SortedValues(list(values)), list)
    sent = []
    while not reply.done:
        sent += reply.next_portion()
    assert sent == [value for value in sorted(values) if value >= b"\x20"][:limit]


def test_a_range_that_ends_before_it_starts_is_empty():
    reply = reply_to_request(Request(start=b"b", end=b"a"), SortedValues([b"a", b"b"]), list)
    assert reply.done


def test_work_is_counted_and_slows_down():
    budget = WorkBudget(rate=100, burst=1000, now=0)
    assert budget.spend(1000, now=0) == 0
    assert budget.spend(200, now=0) == pytest.approx(2.0)
    assert budget.spend(0, now=10) == 0
    assert budget.spend(1000, now=1000) == 0, "no more than the burst is saved up"
    assert budget.spend(1, now=1000) > 0


# Asking on


def question(limit, start=b"a", end=b"k"):
    return Sync(filter=b"\0", size=8, n=1, seed=0, limit=limit, range=Range(start=start, end=end))


def test_a_full_reply_is_asked_on_from_its_last_value():
    asked = Asked()
    asked.ask(question(2), deadline=10)
    following, wanted = asked.answered([b"b", b"c"])
    assert (following.range.start, following.range.end) == (b"c\0", b"k")
    assert wanted is None
    assert not asked.is_waiting(now=0)


def test_a_short_reply_ends_the_question():
    asked = Asked()
    asked.ask(question(3), deadline=10)
    assert asked.answered([b"b", b"c"]) is None
    assert not asked.is_waiting(now=0)


def test_a_broadcast_outside_the_range_is_no_answer():
    asked = Asked()
    asked.ask(question(1), deadline=10)
    assert asked.answered([b"z"]) is None
    assert asked.is_waiting(now=0)


def test_an_answer_retires_the_questions_before_it():
    asked = Asked()
    asked.ask(question(5, b"a", b"c"), deadline=10)
    asked.ask(question(1, b"c", b"e"), deadline=10)
    asked.ask(question(5, b"e", b"g"), deadline=10)
    following, _ = asked.answered([b"d"])
    assert following.range.start == b"d\0"
    assert asked.is_waiting(now=0), "the third is still open"
    assert asked.answered([b"a"]) is None, "the first was retired"


def test_questions_retire_at_their_deadline_and_limit_how_many_are_open():
    asked = Asked()
    for number in range(4):
        assert not asked.is_full(now=0)
        asked.ask(question(1), deadline=10 + number)
    assert asked.is_full(now=9)
    assert not asked.is_full(now=10)
    assert asked.is_waiting(now=12)
    assert not asked.is_waiting(now=13)


def test_a_request_is_asked_on_until_enough_has_come():
    asked = Asked()
    asked.ask(Request(start=b"a", end=None, limit=2), deadline=10, wanted=3)
    following, wanted = asked.answered([b"b", b"c"])
    assert following == Request(start=b"c\0", end=None, limit=1)
    asked.ask(following, deadline=10, wanted=wanted)
    assert asked.answered([b"d"]) is None


def test_the_limit_leaves_room_in_a_frame_and_is_never_zero():
    assert 1_000 < reply_limit(64) < 4_096
    assert reply_limit(300_000) == 1
    assert reply_limit(64, 0.25) == reply_limit(256)


def test_a_long_last_value_is_asked_on_from_within_a_frame():
    asked = Asked()
    sync = Sync(filter=b"\0" * FILTER_BYTES, size=FILTER_BYTES * 8, n=1, seed=0, limit=2)
    asked.ask(sync, deadline=5.0)
    long = b"b" * 100_000
    message, _ = asked.answered([b"a", long])
    assert len(message.range.start) <= 4_096
    assert message.range.start > long


@given(
    st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=8),
    st.lists(st.binary(min_size=1, max_size=3), max_size=20),
)
def test_a_union_of_ranges_holds_the_values_of_each(ranges, values):
    expected = [v for v in values if any(contains(bounds, v) for bounds in ranges)]
    assert within(union(ranges), values) == expected


# What an answer weighs, and how it is cut


def request_of(values, *, slice_values=7, **fields):
    request = Request(**{"start": b"", "end": None, "limit": None} | fields)
    return reply_to_request(request, SortedValues(values, slice_values), list)


def test_the_work_of_an_answer_is_counted_in_values_of_64_bytes():
    reply = request_of([bytes([n]) * 64 for n in range(20)], slice_values=5)
    assert reply.take_tested() == QUESTION_VALUES
    assert reply.take_tested() == 0
    reply.next_portion(most_slices=2)
    assert reply.take_tested() == 10
    reply = request_of([b"a" * 640, b"b" * 640])
    reply.next_portion()
    assert reply.take_tested() == QUESTION_VALUES + 20
    sync = Sync(filter=bytes(6_400), size=51_200, n=1, seed=0, limit=None, range=None)
    reply = reply_to_sync(sync, SortedValues([b"v"]), list)
    assert reply.take_tested() == QUESTION_VALUES + 100
    assert reply.weight - request_of([]).weight == 6_400


def test_a_portion_ends_with_the_slice_that_fills_a_frame():
    half = SEND_FRAME_BYTES // 2
    reply = request_of([bytes([n]) * half for n in range(5)], slice_values=1)
    sent = []
    while not reply.done:
        sent.append(len(reply.next_portion()))
    assert sent == [2, 2, 1]
    reply = request_of([bytes([n]) * (half - 1) for n in range(5)], slice_values=1)
    assert len(reply.next_portion()) == 3
    reply = request_of([b"%03d" % n for n in range(100)], slice_values=10)
    assert len(reply.next_portion()) == 40
    assert len(reply.next_portion(most_slices=1)) == 10


@pytest.mark.parametrize(("limit", "cut"), [(None, False), (4, False), (3, True), (1, True)])
def test_an_answer_says_whether_its_limit_cut_it(limit, cut):
    everything = Sync(filter=b"\0", size=8, n=1, seed=0, limit=limit, range=None)
    reply = reply_to_sync(everything, SortedValues([b"a", b"b", b"c"], 1), list)
    while not reply.done:
        reply.next_portion()
    assert reply.was_cut is cut
    assert reply.about == (b"", None)
    assert reply_to_sync(question(limit), SortedValues([]), list).about == (b"a", b"k")
    assert request_of([b"a"]).about is None


def test_what_came_after_the_question_is_not_in_the_answer():
    def was_here(values):
        return [value for value in values if value != b"b"]

    request = Request(start=b"", end=None, limit=2)
    reply = reply_to_request(request, SortedValues([b"a", b"b", b"c", b"d"]), was_here)
    sent = []
    while not reply.done:
        sent += reply.next_portion()
    assert sent == [b"a", b"c"]


@pytest.mark.parametrize("length", [1, LONGEST_VALUE_BYTES])
@pytest.mark.parametrize("count", [1, 40])
def test_the_store_tells_what_was_there_when_it_was_asked(network, count, length):
    """Few values are looked up; of many, what came later is read from the log if that is short."""
    owner = network.add("owner")
    feed = owner.feed(owner.key)
    there = [b"a%03d" % n for n in range(count)]
    feed.insert(there)
    was_here = feed.values.slices.was_here()
    assert was_here(there) == there
    # The long ones are one more than a slice of the log holds.
    later = [bytes([n]) * length for n in range(1 + SLICE_BYTES // LONGEST_VALUE_BYTES)]
    feed.insert(later)
    assert was_here([*later, *there]) == there
    assert was_here([]) == []


def test_a_request_reads_no_more_than_it_sends_and_a_sync_whole_slices():
    asked = []
    values = SortedValues([b"%03d" % n for n in range(50)])

    def read(start, end, most):
        asked.append(most)
        return values(start, end, most)

    reply_to_request(Request(start=b"", end=None, limit=3), read, list).next_portion()
    reply_to_request(Request(start=b"", end=None, limit=None), read, list).next_portion(
        most_slices=1
    )
    reply_to_sync(question(3, b"0", b"1"), read, list).next_portion(most_slices=1)
    assert asked == [3, 0, 0]


def test_a_filter_that_is_dropped_in_between_is_unpacked_again():
    bloom = BloomFilter(4_096, 20, 7)
    bloom.add([b"%03d" % n for n in range(0, 40, 2)])
    sync = Sync(filter=bloom.to_bytes(), size=4_096, n=20, seed=7, limit=None, range=None)
    reply = reply_to_sync(sync, SortedValues([b"%03d" % n for n in range(40)]), list)
    assert not reply.is_unfolded
    sent = []
    while not reply.done:
        sent += reply.next_portion(most_slices=1)
        assert reply.is_unfolded
        reply.fold()
        assert not reply.is_unfolded
    assert sent == [b"%03d" % n for n in range(1, 40, 2)]
    plain = request_of([b"a"])
    plain.next_portion()
    assert not plain.is_unfolded


@pytest.mark.parametrize("end", [b"a", b"b"])
def test_a_range_that_ends_where_it_starts_or_before_is_empty(end):
    assert request_of([b"a", b"b"], start=b"b", end=end).done
    assert not request_of([b"a", b"b"], start=b"b", end=b"b\0").done


# Where a question goes on


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (b"b", b"b\0"),
        (b"b" * (MAX_BOUND_BYTES - 1), b"b" * (MAX_BOUND_BYTES - 1) + b"\0"),
        (b"b" * MAX_BOUND_BYTES, b"b" * (MAX_BOUND_BYTES - 1) + b"c"),
        (b"b" + b"\xff" * MAX_BOUND_BYTES, b"c"),
        (b"\xff" * MAX_BOUND_BYTES, None),
    ],
)
def test_a_question_goes_on_behind_the_last_value(last, following):
    asked = Asked()
    asked.ask(Request(start=b"", end=None, limit=1), deadline=10)
    answer = asked.answered([last])
    if following is None:
        assert answer is None
    else:
        assert answer == (Request(start=following, end=None, limit=1), None)


def test_a_question_whose_range_is_used_up_does_not_go_on():
    asked = Asked()
    asked.ask(question(1, b"a", b"c\0"), deadline=10)
    assert asked.answered([b"c"]) is None
    asked.ask(question(1, b"a", b"c\0\0"), deadline=10)
    following, _ = asked.answered([b"c"])
    assert (following.range.start, following.range.end) == (b"c\0", b"c\0\0")


def test_what_is_wanted_bounds_the_next_question():
    for wanted, got, following in ((10, 2, (2, 8)), (3, 2, (1, 1)), (2, 2, None), (1, 2, None)):
        asked = Asked()
        asked.ask(Request(start=b"", end=None, limit=2), deadline=10, wanted=wanted)
        answer = asked.answered([b"a", b"b"][:got])
        if following is None:
            assert answer is None
        else:
            assert (answer[0].limit, answer[1]) == following


def test_the_oldest_question_is_forgotten_when_far_too_many_are_open():
    asked = Asked()
    for number in range(2 * OUTSTANDING_SYNCS):
        asked.ask(question(1, b"%d" % number, b"%d\xff" % number), deadline=10)
    asked.ask(question(1, b"x", b"z"), deadline=11)
    assert asked.answered([b"0"]) is None
    assert asked.answered([b"1"]) is not None
    assert asked.answered([b"y"]) is not None
    assert not asked.is_waiting(now=0)


def test_the_size_of_a_plan_is_that_of_its_filters():
    sizes = []
    plan = make_plan([b"%04d" % n for n in range(500)])
    while not plan.done:
        before = plan.sent_bytes
        sync = plan.next_sync()
        assert plan.sent_bytes == before + len(sync.filter)
        sizes.append(sync.size)
    assert plan.next_sync() is None
    assert min(sizes) >= 256
    (empty,) = all_syncs(make_plan([]))
    assert (empty.size, empty.range) == (256, None)


def test_values_of_no_length_are_asked_for_as_if_they_had_one_byte():
    assert reply_limit(0.0) == reply_limit(0.5) == reply_limit(1.0)
    assert reply_limit(2.0) == pytest.approx(reply_limit(1.0) / 2, abs=1)
    assert reply_limit(64, 2.0) == pytest.approx(2 * reply_limit(64), abs=1)

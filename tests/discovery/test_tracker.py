"""One tracker at a time: its steps and their timing, failures, the end."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from tracker_sim import EPOCH, FEED_KEY, Node, Storer, World
from twisted.logger import LogEvent, globalLogPublisher

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem
from hyperbloom.discovery.tracker.content import RecordContent
from hyperbloom.discovery.tracker.limits import ITEMS_PER_TURN
from hyperbloom.discovery.tracker.reading import read_records
from hyperbloom.discovery.tracker.record import record_item, seal_record, sign_record
from hyperbloom.discovery.tracker.settings import TrackerSettings
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.keys import Identity

TOPIC = Topic.of_feed(FEED_KEY)
STRANGER = Identity(b"s" * 32)


def world(**changes: object) -> World:
    return World(1, loss=0.0, **changes)  # type: ignore[arg-type]


def minute(one: World) -> int:
    return int(one.now() // 60)


def stored(one: World) -> dict[bytes, MutableItem]:
    return {item.value: item for storer in one.storers for item in storer.items.values()}


def place(one: World, publisher: Identity, at_minute: int, content: RecordContent) -> None:
    keys = TOPIC.keys(at_minute)
    entropy = one.random.randbytes(96)
    record = sign_record(publisher, keys, content)
    item = record_item(seal_record(record, keys, entropy=entropy), keys)
    for storer in one.storers:
        storer.put(item, MAX_SEQ)


def test_a_lone_node_publishes_at_once_and_then_once_a_minute() -> None:
    one = world()
    node = one.node()
    one.run(190)
    assert [int(at // 60) for at in node.store.puts] == [0, 1, 2, 3]
    assert node.store.puts[0] < 1
    assert not node.around.is_joined()
    one.stop()


def test_its_record_says_where_it_is() -> None:
    one = world()
    node = one.node()
    one.run(5)
    (item,) = stored(one).values()
    assert item.seq == MAX_SEQ
    (record,) = read_records([item], TOPIC.keys(minute(one)), own=b"").records
    assert record.publisher == node.identity.public_key
    assert record.decoded == RecordContent(addresses=(node.around.address,))
    one.stop()


def test_it_looks_again_after_the_retry_interval() -> None:
    one = world()
    node = one.node()
    one.run(20)
    # A lookup takes 0.04 to 0.6 s and reads two minutes; the first is the startup record's.
    assert 2 * 20 / 2.1 - 1 <= node.store.lookups - 1 <= 2 * 20 / 1.54 + 1
    one.stop()


def test_the_startup_record_can_be_left_out() -> None:
    settings = TrackerSettings()
    settings = replace(settings, bootstrap=replace(settings.bootstrap, publish_on_startup=False))
    one = world(settings=settings)
    place(one, STRANGER, minute(one), RecordContent(addresses=(Address("10.9.9.9", 1),)))
    node = one.node()
    assert one.run(1, until=lambda: bool(node.around.joins))
    # All lookups take about as long: a record of the start would be put by now, and the one that
    # follows a failed attempt to join is not due.
    one.run(0.45)
    assert node.store.puts == []
    one.stop()


def test_it_reads_older_minutes_first_if_told_so() -> None:
    settings = TrackerSettings()
    settings = replace(settings, bootstrap=replace(settings.bootstrap, check_older_first=True))
    one = world(settings=settings)
    place(one, STRANGER, minute(one) - 2, RecordContent())
    node = one.node()
    one.run(1)
    assert [candidate.node_id for candidate in node.around.joins] == [STRANGER.public_key]
    one.stop()


def test_it_reads_older_minutes_only_in_its_first_attempt() -> None:
    settings = TrackerSettings()
    settings = replace(settings, bootstrap=replace(settings.bootstrap, check_older_first=True))
    one = world(settings=settings)
    newcomer = Identity(b"n" * 32)
    place(one, STRANGER, minute(one) - 2, RecordContent())
    place(one, newcomer, minute(one), RecordContent())
    node = one.node()
    one.run(10)
    first, *later = [candidate.node_id for candidate in node.around.joins]
    assert first == STRANGER.public_key
    assert set(later) == {newcomer.public_key}
    one.stop()


def test_before_it_has_done_anything_its_status_says_so() -> None:
    one = world()
    status = one.node().tracker.status()
    assert not status.joined
    assert (status.records_seen, status.records_now, status.refused) == (0, 0, {})
    assert (status.lookup_asked, status.lookup_answered, status.candidates) == (0, 0, 0)
    assert (status.puts, status.put_asked, status.put_stored) == (0, 0, 0)
    assert (status.put_refused, status.put_silent, status.rate_limited) == (0, 0, 0)
    assert (status.last_lookup, status.last_publish, status.reachable) == (None, None, None)
    one.stop()


def test_five_records_of_others_keep_it_from_publishing() -> None:
    one = world(storers=6)
    for number, storer in enumerate(one.storers[:5]):
        keys = TOPIC.keys(minute(one))
        record = sign_record(Identity(bytes([number]) * 32), keys, RecordContent())
        item = record_item(seal_record(record, keys, entropy=one.random.randbytes(96)), keys)
        storer.put(item, MAX_SEQ)
    node = one.node()
    one.run(40)
    assert node.store.puts == []
    assert node.tracker.status().rate_limited >= 1
    one.run(30)
    assert node.store.puts, "the next minute has no records yet"
    one.stop()


def test_candidates_are_joined_one_by_one_with_time_to_settle() -> None:
    one = world()
    content = RecordContent()
    for storer, number in zip(one.storers, range(4), strict=False):
        keys = TOPIC.keys(minute(one) - 1)
        record = sign_record(Identity(bytes([number]) * 32), keys, content)
        item = record_item(seal_record(record, keys, entropy=one.random.randbytes(96)), keys)
        storer.put(item, MAX_SEQ)
    node = one.node()
    times: list[float] = []
    one.run(3, until=lambda: _note(node, times, one) or len(times) == 4)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([0.1, 0.1, 0.1])
    one.stop()


def _note(node: Node, times: list[float], one: World) -> None:
    while len(times) < len(node.around.joins):
        times.append(one.clock.seconds())


def test_it_stops_looking_once_it_was_joined_and_starts_again_when_left() -> None:
    settings = TrackerSettings()
    never = replace(settings.bubble_merge, initial_delay=9_999.0)
    one = world(settings=replace(settings, bubble_merge=never, overlap_merge=never))
    first, second = one.node(), one.node(after=1)
    assert one.run(10, until=lambda: one.components() == [2])
    one.run(1)
    before = first.store.lookups
    one.run(5)
    assert first.store.lookups == before, "joined, and the first publishing is not due"
    first.around.remove(second.around)
    second.around.remove(first.around)
    assert one.run(10, until=lambda: one.components() == [2])
    one.stop()


def test_a_joined_node_publishes_its_neighbours_and_messages_between_10_and_60_seconds() -> None:
    one = world(policies=("overwrite",))
    first, second = one.node(), one.node(after=1)
    one.run(10, until=lambda: one.components() == [2])
    joined = one.clock.seconds()
    first.around.insert(b"a value")
    one.run(600)
    puts = [at for at in second.store.puts if at > joined]
    gaps = [later - earlier for earlier, later in pairwise(puts)]
    assert 10 <= puts[0] - joined <= 11.5, "a lookup may be under way, and one comes first"
    assert all(10 <= gap <= 63 for gap in gaps), "an interval, a lookup and a put"
    assert max(gaps) - min(gaps) > 10
    records = [
        record
        for at_minute in range(minute(one) - 3, minute(one) + 1)
        for record in read_records(
            stored(one).values(), TOPIC.keys(at_minute), own=first.identity.public_key
        ).records
    ]
    assert records
    for record in records:
        (peer,) = record.decoded.active_peers
        assert peer.node_id == first.identity.public_key
        assert peer.addresses == (first.around.address,)
        assert len(record.decoded.last_message_hashes) == 1
    one.stop()


@pytest.mark.parametrize("failing", ["raise", "errback", "silent"])
def test_a_failing_dht_ends_nothing(failing: str) -> None:
    one = world()
    node, other = one.node(), one.node(after=95)
    node.store.failing = failing
    one.run(90)
    assert node.tracker.status().problem
    assert node.tracker.status().last_lookup is None
    node.store.failing = None
    assert one.run(60, until=lambda: one.components() == [2])
    for each in (node, other):
        each.store.failing = failing
    one.run(1_800)
    for each in (node, other):
        each.store.failing = None
    lookups, puts = node.store.lookups, len(node.store.puts)
    one.run(200)
    assert node.store.lookups > lookups + 3, "the merges went on"
    assert len(node.store.puts) > puts, "the publisher went on"
    assert node.tracker.status().problem is None
    one.stop()


def test_a_failed_put_is_tried_again_three_times_with_jitter() -> None:
    one = world()
    for storer in one.storers:
        storer.put = lambda item, cas: False  # type: ignore[method-assign]
    node = one.node()
    one.run(59)
    assert len(node.store.puts) == 4
    gaps = [later - earlier for earlier, later in pairwise(node.store.puts)]
    assert all(5 <= gap <= 15 + 1.3 for gap in gaps)
    assert len({round(gap, 2) for gap in gaps}) == 3
    status = node.tracker.status()
    assert (status.put_stored, status.put_refused, status.reachable) == (0, 20, False)
    one.stop()


def test_a_record_of_a_past_minute_is_not_put_again() -> None:
    settings = TrackerSettings()
    store = replace(settings.store, put_retries=1_000, retry_base=5.0)
    one = world(settings=replace(settings, store=store))
    for storer in one.storers:
        storer.put = lambda item, cas: False  # type: ignore[method-assign]
    node = one.node()
    one.run(600)
    # Two minutes each, in which a put is tried every 5 to 16 s, and a new record every minute.
    assert len(node.store.puts) <= 600 / 5 * 2
    last = node.store.puts[-1]
    node.tracker.stop()
    one.run(60)
    assert node.store.puts[-1] == last
    one.stop()


def test_garbage_is_counted_by_reason_and_changes_nothing() -> None:
    one = world(policies=("keep",))
    keys = TOPIC.keys(minute(one))
    old = sign_record(STRANGER, TOPIC.keys(minute(one) - 1), RecordContent())
    forged = replace(sign_record(STRANGER, keys, RecordContent()), publisher=b"\x07" * 32)
    wrong = Topic.named(b"x", b"y").keys(minute(one))
    sealed = [
        b"garbage",
        seal_record(old, keys, entropy=bytes(96)),
        seal_record(forged, keys, entropy=bytes(96)),
        seal_record(sign_record(STRANGER, keys, RecordContent()), wrong, entropy=bytes(96)),
    ]
    for storer, value in zip(one.storers, sealed, strict=False):
        storer.put(record_item(value, keys), MAX_SEQ)
    node = one.node()
    one.run(1)
    status = node.tracker.status()
    assert set(status.refused) == {"undecodable", "wrong minute", "forged", "undecryptable"}
    assert node.around.joins == []
    assert (status.records_seen, status.joined) == (0, False)
    one.stop()


def test_many_items_are_opened_in_slices() -> None:
    """A turn of the reactor opens few, however many come."""
    one = world(storers=64, policies=("overwrite",))
    keys = TOPIC.keys(minute(one))
    for number, storer in enumerate(one.storers):
        storer.put(record_item(b"garbage %d" % number, keys), MAX_SEQ)
    node = one.node()
    before = one.clock.put_off
    one.run(1.2)
    assert node.tracker.status().refused["undecodable"] == 2 * 64
    # The lookup before the startup record and that of the bootstrap loop.
    assert one.clock.put_off - before == 2 * (64 // ITEMS_PER_TURN - 1)
    one.stop()


@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.0, 2.5, 3.0, 20.0])
def test_stopping_leaves_no_timer(seconds: float) -> None:
    """Whatever is going on: a lookup, a put, waiting for its retry or for the next attempt."""
    one = world()
    for storer in one.storers:
        storer.put = lambda item, cas: False  # type: ignore[method-assign]
    one.node()
    one.run(seconds)
    one.stop()
    left = [call.func.__module__ for call in one.clock.getDelayedCalls()]
    assert set(left) <= {"tracker_sim"}


def test_a_joined_node_waits_no_more() -> None:
    """The timer of a waiting that was ended by joining would end a later one too soon."""
    one = world()
    one.node(), one.node(after=1)
    assert one.run(10, until=lambda: one.components() == [2])
    one.run(1)
    soon = [
        call for call in one.clock.getDelayedCalls() if call.getTime() < one.clock.seconds() + 2
    ]
    assert [call for call in soon if call.func.__name__ == "wake"] == []
    one.stop()


def test_stopping_ends_every_call_and_starting_does_nothing_at_once() -> None:
    one = world()
    nodes = [one.node() for _ in range(3)]
    assert nodes[0].store.lookups == 0
    one.run(45)
    one.stop()
    lookups = [node.store.lookups for node in nodes]
    puts = [len(node.store.puts) for node in nodes]
    one.run(300)
    assert lookups == [node.store.lookups for node in nodes]
    assert puts == [len(node.store.puts) for node in nodes]
    assert one.clock.getDelayedCalls() == []


def test_stopping_while_the_dht_is_silent_ends_at_once() -> None:
    one = world()
    node = one.node()
    node.store.failing = "silent"
    one.run(5)
    one.stop()
    one.run(100)
    assert one.clock.getDelayedCalls() == []
    assert node.store.puts == []


def test_an_error_of_its_own_is_logged_and_being_stopped_is_not() -> None:
    one = world()
    node, _ = one.node(), one.node(after=1)
    failures: list[type[BaseException]] = []

    def note(event: LogEvent) -> None:
        if "log_failure" in event:
            failures.append(event["log_failure"].type)

    def broken() -> list[bytes]:
        raise LookupError("a fault of the program")

    globalLogPublisher.addObserver(note)
    try:
        assert one.run(10, until=lambda: one.components() == [2])
        node.around.recent_message_hashes = broken  # type: ignore[method-assign]
        one.run(300)
        one.stop()
    finally:
        globalLogPublisher.removeObserver(note)
    # The publisher and the merging of partitions ask for them.
    assert failures == [LookupError, LookupError]


def test_the_status_tells_what_happened() -> None:
    one = world()
    first, _ = one.node(), one.node(after=1)
    one.run(45)
    status = first.tracker.status()
    assert status.topic_hash == TOPIC.hash
    assert status.joined
    assert status.reachable
    assert status.records_seen >= 1
    assert status.candidates >= len(first.around.joins) >= 0
    assert (status.lookup_asked, status.lookup_answered) == (20, 20)
    assert status.put_stored + status.put_refused + status.put_silent == status.put_asked == 20
    assert status.last_lookup is not None
    assert EPOCH <= status.last_lookup <= one.now()
    assert json.loads(json.dumps(status.as_json()))["topic_hash"] == TOPIC.hash.hex()
    one.stop()


def test_a_storing_node_of_the_simulation_keeps_to_its_policy() -> None:
    """The fake is held to the table of real storing nodes."""
    keys = TOPIC.keys(5)
    first, second = (record_item(value, keys) for value in (b"A", b"B"))
    for policy, acknowledged, held in (
        ("overwrite", True, second),
        ("keep", True, first),
        ("reject", False, first),
    ):
        storer = Storer(policy)
        assert storer.put(first, MAX_SEQ)
        assert storer.put(first, MAX_SEQ)
        assert storer.put(second, MAX_SEQ) is acknowledged
        assert storer.items[first.target] == held
        assert not storer.put(second, 5)

"""Nodes that find by symbols what they differ by: what moves, what it costs, what goes wrong."""

from __future__ import annotations

import pytest
from players import Instead, fired, numbered
from sketched_pairs import (
    SELDOM,
    SYMBOLS,
    WHOLE,
    WaitingTry,
    are_same,
    different,
    forget,
    keeping_a_range,
    moved,
    silently,
    status,
    waiting_for_symbols,
    way,
)

from hyperbloom.replication.feed.peers import SaltedTries
from hyperbloom.replication.limits import (
    DOUBT_SECONDS,
    IDS_A_STEP,
    MAX_SALTED_KEYS,
    MAX_TRIES,
    SALTED_SECONDS,
    SKETCH_SECONDS,
    Limits,
)
from hyperbloom.replication.schedule.sketch_try import SketchOutcome
from hyperbloom.replication.schedule.sync_schedule import SyncSchedule
from hyperbloom.replication.settings import SyncSettings
from hyperbloom.replication.sync.peer_output import PeerOutput
from hyperbloom.replication.sync.reply import PORTION_BYTES, ValuesById
from hyperbloom.sketches import ids_from, ids_to_bytes, no_symbols
from hyperbloom.store.records import SettledSketch
from hyperbloom.wire import Sketch, SketchRequest, Sync, ValuesWanted
from hyperbloom.wire.extensions.reconcile import RECONCILE


def test_both_sides_get_what_they_lack_by_symbols(network):
    owner, member, feed = different(network, 5_000, 40, 30)
    network.connect(member, owner, feed)
    network.run(0.5)
    assert are_same(owner, member, feed)
    one = status(member).last_round
    assert (one.way, one.differences) == ("sketch", 70)
    assert 128 <= one.symbols <= 300
    assert 25 * one.symbols < one.bytes < 27 * one.symbols + 500
    network.run(10)
    for node in (owner, member):
        assert (status(node).in_sync, status(node).in_sync_by) == (True, "digest")
        assert status(node).last_sync_sent is None
    assert status(owner).last_round is None, "the member's try was enough for both"
    assert moved(member, feed).sketches_asked == 1
    assert moved(member, feed).sketch_symbols == one.symbols
    assert moved(member, feed).sketch_differences == 70
    assert moved(owner, feed).sketches_asked == 0
    assert 0 < moved(member, feed).sketch_bytes < moved(owner, feed).sketch_bytes


def test_a_wait_ends_with_what_the_digests_say(network):
    owner, member, feed = different(network, 3_000, 5, 5, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    waiting = [
        one.node.wait_synced(feed, [other.key.hex()], timeout=20)
        for one, other in ((owner, member), (member, owner))
    ]
    network.run(3)
    assert [fired(one)[0].source for one in waiting] == ["digest", "digest"]
    assert way(member) == "sketch"


@pytest.mark.parametrize("who", ["owner", "member"])
def test_with_a_node_that_has_it_off_there_is_a_plan(network, who):
    off = SyncSettings(interval=5.0, answer_wait=0.5, reconcile=False)
    owner, member, feed = different(network, 3_000, 5, 5, **{who: {"sync": off}})
    network.connect(member, owner, feed)
    network.run(5)
    assert are_same(owner, member, feed)
    assert way(member) == way(owner) == "filters"
    assert (RECONCILE in status(member).extensions) == (who == "member")


def test_what_was_forgotten_is_no_difference_and_does_not_come_back(network):
    owner, member, feed = different(network, 3_000, 4, 3)
    gone = numbered(20)
    forget(member, feed, gone)
    network.connect(member, owner, feed)
    network.run(10)
    assert status(member).last_round.differences == 7
    assert not set(gone) & set(member.values(feed))
    assert len(owner.values(feed)) == len(member.values(feed)) + 20 == 3_007
    assert status(owner).in_sync is status(member).in_sync is True


@pytest.mark.parametrize("latency", [0.001, 0.2])
def test_of_two_tries_at_the_same_moment_that_of_the_lower_key_goes_on(network, latency):
    network.latency = latency
    owner, member, feed = different(
        network, 3_000, 20, 20, owner={"sync": SELDOM}, member={"sync": SELDOM}
    )
    connection = network.connect(member, owner, feed)
    network.run(10)
    silently(owner, feed, [b"owner's"])
    silently(member, feed, [b"member's"])
    (there,) = owner.feed(feed).peers
    for peering in (connection.peering, there):
        peering.hurry()
    network.run(6 * latency + 0.5)
    assert are_same(owner, member, feed)
    asked = {node.key: moved(node, feed).sketches_asked for node in (owner, member)}
    found = {node.key: moved(node, feed).sketch_differences for node in (owner, member)}
    low, high = sorted(asked)
    assert asked == {low: 1 + (low == member.key), high: 1 + (high == member.key)}
    # The member found the first 40, when it connected.
    assert found == {low: 2 + 40 * (low == member.key), high: 40 * (high == member.key)}
    assert status(owner).last_sync_sent is status(member).last_sync_sent is None
    assert status(owner).strikes == status(member).strikes == 0


def asked_by_the_member(owner, feed):
    """The owner's side of the connection, with a try of the member under way."""
    (there,) = owner.feed(feed).peers
    request = SketchRequest(number=99, salt=b"", first=0, count=1, ranges=WHOLE)
    there.sync.sketches.take_request(request)
    return there


def test_while_a_try_of_the_peer_is_answered_none_begins(network):
    owner, member, feed = different(network, 3_000, 20, 20, owner={"sync": SELDOM})
    connection = network.connect(member, owner, feed)
    network.run(0.2)
    there = asked_by_the_member(owner, feed)
    silently(member, feed, [b"more"])
    there.hurry()
    network.run(1)
    assert there.sync.sketches.peer_is_asking
    assert moved(owner, feed).sketches_asked == 0
    assert connection.peering.counters.last_sync_received is None


def test_while_values_of_a_try_are_on_their_way_none_begins(network):
    """Not even when its second is over: the peer's slow disk is no difference."""
    owner, member, feed = different(network, 3_000, 20, 20, owner={"sync": SELDOM})
    connection = network.connect(member, owner, feed)
    network.run(2)
    there = asked_by_the_member(owner, feed)
    there.sync.sketches.take_wanted(ValuesWanted(number=99, ids=b""))
    for _ in range(4):
        network.run(DOUBT_SECONDS / 2)
        connection.peering.output.send_values([b"value 000000"])
        network.run(0.1)
        assert there.sync.sketches.peer_is_asking
    network.run(DOUBT_SECONDS + 0.1)
    assert not there.sync.sketches.peer_is_asking


def test_filters_of_the_peer_end_its_try(network):
    owner, member, feed = different(network, 3_000, 20, 20, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    network.run(3)
    there = asked_by_the_member(owner, feed)
    assert there.sync.sketches.peer_is_asking
    silently(owner, feed, [b"more"])
    there.sync.peer_asked(Sync(filter=bytes(32), size=256, n=1, seed=1))
    assert not there.sync.sketches.peer_is_asking
    there.hurry()
    network.run(1)
    assert "filter" in way(owner), "symbols did not help the peer either"


# Ranges


def test_a_range_that_both_keep_is_reconciled_by_symbols_of_it_alone(network):
    owner, member, feed = keeping_a_range(network)
    owner.feed(feed).insert([*numbered(3_000), *numbered(500, b"elsewhere ")])
    member.feed(feed).insert([*numbered(3_010)[20:]])
    network.connect(member, owner, feed)
    network.run(3)
    assert member.values(feed) == numbered(3_010)
    assert owner.values(feed) == [*numbered(500, b"elsewhere "), *numbered(3_010)]
    assert (way(member), status(member).last_round.differences) == ("sketch", 30)
    assert status(member).last_sync_sent is None


def test_a_pass_over_a_range_that_the_peer_cannot_afford_is_left_to_a_plan(network):
    limits = Limits(sync_rate=1_000, sync_burst=10_000)
    owner, member, feed = keeping_a_range(network, limits=limits)
    owner.feed(feed).insert(numbered(11_000))
    member.feed(feed).insert(numbered(10_990))
    network.connect(member, owner, feed)
    network.run_until(lambda: are_same(owner, member, feed), 60)
    assert way(member) == "filters"
    assert moved(member, feed).sketch_symbols == 0


# What does not decode


def broken(node):
    """Its kept sequence does not fit its values; it never decodes."""
    step = node.store.sketch_step

    def wrong(feed_key):
        found = step(feed_key)
        if found is None:
            return None
        symbols = no_symbols(found.symbols.shape[1])
        symbols[0] = 1
        symbols[-1] = found.symbols[-1]
        return SettledSketch(symbols=symbols, settled=found.settled, top_seq=found.top_seq)

    node.store.sketch_step = wrong


def test_what_does_not_decode_is_found_by_a_salted_try_and_next_time_by_a_plan(network):
    owner, member, feed = different(network, 3_000, 10, 10)
    broken(owner)
    network.connect(member, owner, feed)
    network.run(5)
    assert are_same(owner, member, feed)
    assert way(member) == "salted sketch"
    assert status(member).last_round.differences == 20
    assert status(member).last_sync_sent is None
    assert moved(member, feed).sketches_asked == 2
    silently(owner, feed, [b"new"])
    network.run(15)
    assert are_same(owner, member, feed)
    assert "filters" in (way(member), way(owner)), "one with a salt an hour"
    assert status(owner).strikes == status(member).strikes == 0


def test_salted_tries_are_remembered_of_so_many_keys():
    tries = SaltedTries()
    paths = [(b"%d" % number,) for number in range(MAX_SALTED_KEYS // 2 + 1)]
    for path in paths[:-1]:
        tries.begin(path, 0, now=5.0)
    assert not any(tries.may_begin(path, now=6.0) for path in paths[:-1])
    tries.begin(paths[-1], 0, now=6.0)
    assert [path for path in paths if tries.may_begin(path, now=7.0)] == paths[:1]
    assert not tries.may_begin(paths[1], now=5.0 + SALTED_SECONDS - 0.1)
    assert tries.may_begin(paths[1], now=5.0 + SALTED_SECONDS)


def test_all_keys_of_a_branch_have_a_part_of_the_time_for_salted_tries():
    """A million values take three seconds: there is one such try a minute."""
    tries, begun = SaltedTries(), []
    for second in range(600):
        path = (b"branch", b"key %d" % second)
        if tries.may_begin(path, now=second):
            tries.begin(path, 1_000_000, now=second)
            begun.append(second)
        assert tries.may_begin((b"other", b"key %d" % second), now=second)
    assert begun == list(range(0, 600, 60))
    assert tries.may_begin((b"branch",), now=600), "its first key had none itself"


def test_a_peer_that_says_nothing_is_asked_by_a_plan(network, deaf):
    owner, member, feed = different(network, 3_000, 10, 10)
    deaf(owner)
    connection = network.connect(member, owner, feed)
    network.run(SKETCH_SECONDS - 1)
    assert connection.peering.counters.sketches_asked == 1
    assert status(member).last_sync_sent is None
    network.run(3)
    assert way(member) == "filters"
    assert set(numbered(10, b"here ")) < set(member.values(feed))


def test_what_comes_behind_the_end_of_a_try_is_dropped(network, deaf):
    member, sketches = waiting_for_symbols(network, deaf)
    number = sketches._asking.number
    network.run(SKETCH_SECONDS + 1)
    assert way(member) == "filters"
    sketches.take_sketch(Sketch(number=number, first=5, symbols=2, **SYMBOLS))
    network.run(0.5)
    assert status(member).strikes == 0


def test_a_try_that_gives_way_to_the_peers_is_over(network, deaf):
    owner, member, feed = different(network, 3_000, 0, 0, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    network.run(3)
    low, high = sorted((owner, member), key=lambda node: node.key)
    deaf(low)
    silently(high, feed, [b"more"])
    (there,) = high.feed(feed).peers
    sketches = there.sync.sketches
    there.hurry()
    network.run(0.2)
    number = sketches._asking.number
    sketches.take_request(SketchRequest(number=99, salt=b"", first=0, count=1, ranges=WHOLE))
    assert sketches.peer_is_asking
    sketches.take_sketch(Sketch(number=number, first=5, symbols=2, **SYMBOLS))
    network.run(0.5)
    assert status(high).strikes == 0


def test_whose_try_goes_on_answers_the_other_with_no_symbols(network, deaf):
    owner, member, feed = different(network, 3_000, 0, 0, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    network.run(3)
    low, high = sorted((owner, member), key=lambda node: node.key)
    deaf(high)
    silently(low, feed, [b"more"])
    (there,) = low.feed(feed).peers
    (here,) = high.feed(feed).peers
    seen = []
    here.sync.sketches = Instead(here.sync.sketches, take_sketch=seen.append)
    there.hurry()
    network.run(0.2)
    request = SketchRequest(number=99, salt=b"", first=0, count=1, ranges=WHOLE)
    there.sync.sketches.take_request(request)
    network.run(0.2)
    assert seen == [Sketch.nothing(99, 0)]
    assert not there.sync.sketches.peer_is_asking


def test_a_lost_connection_leaves_its_place_to_another_try(network, deaf):
    owner, member, feed = different(network, 3_000, 9, 9, owner={"sync": SELDOM})
    deaf(owner)
    connection = network.connect(member, owner, feed)
    network.run(0.5)
    slots = member.context.sketch_slots
    others = [WaitingTry(b"%d" % number) for number in range(MAX_TRIES)]
    assert [slots.begin_try(one) for one in others].count(False) == 1
    connection.transport.loseConnection()
    network.run(1)
    assert slots.begin_try(others[-1])


@pytest.fixture
def outcomes(monkeypatch):
    """How tries end, as the schedule is told."""
    found, over = [], SyncSchedule.sketch_over

    def noted(schedule, outcome, *more, **named):
        found.append(outcome)
        return over(schedule, outcome, *more, **named)

    monkeypatch.setattr(SyncSchedule, "sketch_over", noted)
    return found


@pytest.mark.parametrize(("here", "there"), [(10, 0), (0, 10)])
def test_a_try_that_moves_values_one_way_has_taken_effect(network, outcomes, here, there):
    owner, member, feed = different(network, 3_000, here, there, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    network.run(3)
    assert are_same(owner, member, feed)
    assert outcomes == [SketchOutcome.TAKEN]


def test_a_try_that_finds_only_what_was_refused_has_nothing_to_move(network, outcomes):
    owner, member, feed = different(
        network, 3_000, 0, 0, owner={"sync": SELDOM}, member={"limits": Limits(value_bytes=20)}
    )
    owner.feed(feed).insert([b"far too long for the member"])
    network.connect(member, owner, feed)
    network.run(30)
    assert outcomes[:2] == [SketchOutcome.TAKEN, SketchOutcome.NOTHING]


def test_what_was_refused_before_is_not_even_asked_for(network, outcomes):
    owner, member, feed = different(
        network, 3_000, 0, 0, owner={"sync": SELDOM}, member={"limits": Limits(value_bytes=20)}
    )
    connection = network.connect(member, owner, feed)
    network.run(1)
    owner.feed(feed).insert([b"far too long for the member"])
    network.run(1)
    connection.transport.loseConnection()
    network.run(1)
    outcomes.clear()
    network.connect(member, owner, feed)
    network.run(3)
    assert outcomes[:1] == [SketchOutcome.NOTHING]


def test_a_try_goes_on_while_our_own_symbols_are_being_made(network):
    owner, member, feed = different(network, 3_000, 10, 10, owner={"sync": SELDOM})
    network.connect(member, owner, feed)
    network.run(0.06)
    member.thread_seconds = SKETCH_SECONDS * 0.7
    step, calls = member.store.sketch_step, []

    def slowly(feed_key):
        calls.append(feed_key)
        return None if len(calls) < 3 else step(feed_key)

    member.store.sketch_step = slowly
    network.run_until(lambda: are_same(owner, member, feed), 6 * SKETCH_SECONDS)
    assert way(member) == "sketch"
    assert len(calls) >= 3


def test_a_peer_that_has_no_symbols_is_asked_by_a_plan_at_once(network, deaf):
    owner, member, feed = different(network, 3_000, 10, 10, owner={"sync": SELDOM})
    deaf(owner, lambda peer, request: peer.output.send_extension(Sketch.nothing(request.number, 0)))
    connection = network.connect(member, owner, feed)
    network.run(1)
    assert way(member) == "filters"
    assert connection.peering.counters.sketches_asked == 1


# Bounds in all


def test_a_try_waits_until_there_is_room_for_it(network):
    owner, member, feed = different(network, 3_000, 9, 9)
    slots = member.context.sketch_slots
    others = [WaitingTry(b"%d" % number) for number in range(MAX_TRIES)]
    for one in others:
        slots.begin_try(one)
    network.connect(member, owner, feed)
    network.run(0.4)
    assert moved(member, feed).sketches_asked == 0
    slots.end_try(others[0])
    network.run(0.4)
    assert moved(member, feed).sketches_asked == 1
    assert are_same(owner, member, feed)
    assert len(slots._tries) == MAX_TRIES - 1


def test_a_try_that_waited_in_vain_does_not_begin_later(network):
    owner, member, feed = different(network, 3_000, 9, 9, owner={"sync": SELDOM})
    slots = member.context.sketch_slots
    others = [WaitingTry(b"%d" % number) for number in range(MAX_TRIES)]
    for one in others:
        slots.begin_try(one)
    network.connect(member, owner, feed)
    network.run(SKETCH_SECONDS + 1)
    assert way(member) == "filters"
    slots.end_try(others[0])
    network.run(1)
    assert moved(member, feed).sketches_asked == 0
    assert slots.begin_try(WaitingTry(b"other")), "nobody took the place"


def test_values_are_read_so_many_ids_at_a_time_and_sent_portion_by_portion():
    asked = []

    def values_of(ids):
        asked.append(len(ids))
        return [b"v" * (PORTION_BYTES // 100)] * len(ids)

    reply = ValuesById(ids_from(bytes(16 * (IDS_A_STEP + 1))), values_of)
    assert len(reply.next_portion()) == IDS_A_STEP
    assert not reply.done
    assert len(reply.next_portion()) == 1
    assert reply.done
    assert reply.next_portion() == []
    assert asked == [IDS_A_STEP, 1]
    assert ids_to_bytes(ids_from(bytes(16))) == bytes(16)


def test_more_ids_than_one_message_takes_are_asked_for_in_several(network, monkeypatch):
    monkeypatch.setattr("hyperbloom.replication.sync.sketch_exchange.MAX_WANTED_IDS", 16)
    owner, member, feed = different(network, 3_000, 40, 0)
    sent = []
    monkeypatch.setattr(PeerOutput, "send_extension", sent_too(PeerOutput, sent))
    network.connect(member, owner, feed)
    network.run(0.5)
    assert are_same(owner, member, feed)
    assert [len(one.ids) // 16 for one in sent] == [16, 16, 8]


def sent_too(kind, sent):
    send = kind.send_extension

    def noted(output, message):
        sent.extend([message] if isinstance(message, ValuesWanted) else [])
        send(output, message)

    return noted

"""Nodes that find by symbols what they differ by: what moves, what it costs, what goes wrong."""

from __future__ import annotations

import pytest
from players import Intruder, fired, numbered
from sim import pair
from twisted.internet.defer import Deferred

from hyperbloom.digests import value_ids
from hyperbloom.replication.feed.peers import SaltedTries
from hyperbloom.replication.limits import (
    IDS_A_STEP,
    MAX_HELD_SKETCHES,
    MAX_SALTED_KEYS,
    MAX_TRIES,
    MAX_UNSENT_BYTES,
    RANGE_SYMBOLS,
    SALTED_SECONDS,
    SKETCH_SECONDS,
    Limits,
)
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.replication.sketch_slots import SketchSlots
from hyperbloom.replication.sync.peer_output import PeerOutput
from hyperbloom.replication.sync.reply import PORTION_BYTES, ValuesById
from hyperbloom.replication.sync.sketch_exchange import SketchExchange
from hyperbloom.replication.sync.sketch_try import SketchOutcome
from hyperbloom.replication.sync.sync_schedule import SyncSchedule
from hyperbloom.sketches import ids_from, ids_to_bytes, no_symbols
from hyperbloom.store import StoreError
from hyperbloom.store.records import SettledSketch
from hyperbloom.wire import Range, Sketch, SketchRequest, Sync, ValuesWanted
from hyperbloom.wire.reconcile import RECONCILE

WHOLE = (Range(start=b""),)
#: Two symbols of some set.
SYMBOLS = {"values": 3, "digest": b"d" * 32, "packed": bytes(50)}


def status(node):
    (peer,) = node.node.peers()
    return peer


def way(node):
    one = status(node).last_round
    return None if one is None else one.way


def moved(node, feed):
    return node.feed(feed).peers.moved()


def different(network, shared, here, there, **more):
    """An owner and a member with values that one of both lacks, not connected yet."""
    owner, member, feed = pair(network, **more)
    for node, own in ((owner, numbered(here, b"here ")), (member, numbered(there, b"there "))):
        node.feed(feed).insert([*numbered(shared), *own])
    return owner, member, feed


def keeping_a_range(network, ranges=((b"v", b"w"),), **more):
    """An owner and a member that keeps these ranges alone, not connected yet."""
    owner = network.add("owner", **more)
    kept = FeedSettings(key=owner.key, mode="range", ranges=ranges)
    member = network.add("member", feeds=(kept,))
    owner.invite(owner.key, member)
    return owner, member, owner.key


def are_same(owner, member, feed):
    return owner.values(feed) == member.values(feed)


def silently(node, feed, values):
    """Values that come to the store past everybody, so that no broadcast tells of them."""
    subscribers, node.feed(feed).values._subscribers = node.feed(feed).values._subscribers, []
    node.feed(feed).insert(values)
    node.feed(feed).values._subscribers = subscribers


def forget(node, feed, values, **how):
    fired(Deferred.fromCoroutine(node.feed(feed).forgetting.forget(values, **how)))


@pytest.fixture
def deaf(monkeypatch):
    """Has a node do nothing, or something else, when it is asked for symbols."""
    take = SketchExchange.take_request

    def deafen(node, instead=lambda peer, request: None):
        def taken(exchange, request):
            is_deaf = exchange._peer.context is node.context
            (instead if is_deaf else take)(exchange._peer if is_deaf else exchange, request)

        monkeypatch.setattr(SketchExchange, "take_request", taken)

    return deafen


SELDOM = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=500.0)


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


def test_symbols_of_a_range_are_no_more_than_the_limit(network):
    owner, member, feed = keeping_a_range(network)
    owner.feed(feed).insert(numbered(100))
    member.feed(feed).insert(numbered(100))
    asker = Asker(network, member, owner, feed)
    ranges = (Range(start=b"v", end=b"w"),)
    asker.ask(first=0, count=RANGE_SYMBOLS + 1, ranges=ranges, seconds=2)
    assert [one.symbols for one in asker.seen] == [RANGE_SYMBOLS, 0]


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


def test_a_salted_try_is_answered_once_an_hour(network):
    owner, asker = asked_by_hand(network)
    for number, symbols in ((1, 5), (2, 0)):
        asker.ask(number=number, salt=b"s" * 16, first=0, count=5)
        assert [one.symbols for one in asker.seen] == [symbols], number
        asker.seen.clear()
    asker.ask(number=3, first=0, count=5)
    assert [one.symbols for one in asker.seen] == [5], "one without a salt is answered"
    asker.seen.clear()
    tries, now = owner.feed(asker.feed).peers.salted_tries, network.clock.seconds()
    assert not tries.may_begin(asker.member.key, now=now + SALTED_SECONDS - 30)
    assert tries.may_begin(asker.member.key, now=now + SALTED_SECONDS)


def test_salted_tries_are_remembered_of_so_many_keys():
    tries = SaltedTries()
    keys = [b"%d" % number for number in range(MAX_SALTED_KEYS + 1)]
    for key in keys[:-1]:
        tries.begin(key, now=5.0)
    assert not any(tries.may_begin(key, now=6.0) for key in keys[:-1])
    tries.begin(keys[-1], now=6.0)
    assert [key for key in keys if tries.may_begin(key, now=7.0)] == keys[:1]
    assert not tries.may_begin(keys[1], now=5.0 + SALTED_SECONDS - 0.1)
    assert tries.may_begin(keys[1], now=5.0 + SALTED_SECONDS)


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
    here.sync.sketches.take_sketch = seen.append
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
    others = [object() for _ in range(MAX_TRIES)]
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


# What a peer may do


class Asker(Intruder):
    """Asks for symbols by hand; `seen` are the Sketches that come."""

    def __init__(self, network, member, owner, feed):
        super().__init__(network, member, owner, feed)
        self.network, self.member, self.feed = network, member, feed
        self.seen = []
        self.connection.peering.sync.sketches.take_sketch = self.seen.append

    def ask(self, *, number=7, salt=b"", ranges=WHOLE, seconds=0.5, **part):
        self.tell(SketchRequest(number=number, salt=salt, ranges=ranges, **part), seconds)

    def want(self, ids):
        self.tell(ValuesWanted(number=7, ids=ids))

    def tell(self, message, seconds=0.5):
        self.send(self.network, self.session.send_extension(message), seconds=seconds)


def asked_by_hand(network, **owner):
    """An owner of 300 values, and a member with the same that asks by hand."""
    owner, member, feed = different(network, 300, 0, 0, owner={"sync": SELDOM} | owner)
    return owner, Asker(network, member, owner, feed)


def test_the_blocks_of_a_try_are_of_one_sequence_whatever_comes_meanwhile(network):
    owner, asker = asked_by_hand(network)
    asker.ask(first=0, count=10)
    silently(owner, asker.feed, numbered(50, b"new "))
    asker.ask(first=10, count=10)
    one, other = asker.seen
    assert (one.values, one.digest) == (other.values, other.digest)
    assert (other.values, other.first, other.symbols) == (300, 10, 10)
    asker.ask(number=8, first=0, count=10)
    assert asker.seen[-1].values == 350, "another try is of what is there now"
    asker.ask(number=7, first=20, count=10)
    assert asker.seen[-1] == Sketch.nothing(7, 20), "the one before is held no more"


def test_a_sequence_is_dropped_when_the_peer_needs_no_more(network):
    owner, asker = asked_by_hand(network)
    asker.ask(first=0, count=10)
    slots = owner.context.sketch_slots
    assert len(slots._held) == 1
    asker.want(b"")
    assert len(slots._held) == 0
    asker.ask(first=10, count=10)
    assert asker.seen[-1] == Sketch.nothing(7, 10)
    asker.ask(number=8, first=0, count=10)
    asker.connection.transport.loseConnection()
    network.run(1)
    assert len(slots._held) == 0, "nor when it is gone"


def test_a_try_is_answered_from_its_own_sequence_though_another_was_being_made(network):
    owner, asker = asked_by_hand(network)
    step = owner.store.sketch_step
    while (old := step(asker.feed)) is None:
        pass
    steps = [lambda key: old]
    owner.store.sketch_step = lambda key: (steps.pop() if steps else step)(key)
    owner.thread_seconds = 3.0
    asker.ask(number=7, first=0, count=10)
    network.run(1)
    silently(owner, asker.feed, numbered(50, b"new "))
    asker.ask(number=8, first=0, count=10)
    network.run(10)
    assert {(one.number, one.values) for one in asker.seen} == {(8, 350)}


def test_a_peer_that_reads_slowly_is_answered_once_it_has_read(network):
    owner, asker = asked_by_hand(network)
    (there,) = owner.feed(asker.feed).peers
    there.share.unsent += MAX_UNSENT_BYTES
    asker.ask(first=0, count=10, seconds=3)
    assert asker.seen == []
    there.share.unsent -= MAX_UNSENT_BYTES
    network.run(1)
    assert [one.symbols for one in asker.seen] == [10]


def test_a_store_that_cannot_be_read_is_answered_with_nothing(network):
    def fails(_):
        raise StoreError("on purpose")

    owner, asker = asked_by_hand(network)
    owner.store.sketch_step = fails
    asker.ask(first=0, count=10)
    assert asker.seen == [Sketch.nothing(7, 0)]


def test_a_question_of_ranges_that_are_not_kept_is_answered_with_nothing(network):
    owner, member, feed = keeping_a_range(network, ((b"b", b"d"),))
    member.feed(feed).insert([b"c"])
    intruder = Intruder(network, member, owner, feed)
    (there,) = owner.feed(feed).peers
    seen = []
    there.sync.sketches.take_sketch = seen.append
    request = SketchRequest(number=1, salt=b"", first=0, count=4, ranges=WHOLE)
    intruder.connection.peering.sync.sketches.take_request(request)
    network.run(1)
    assert seen == [Sketch.nothing(1, 0)]


def waiting_for_symbols(network, deaf):
    """A member whose question is not answered, and its side of the tries."""
    owner, member, feed = different(network, 3_000, 9, 9, owner={"sync": SELDOM})
    deaf(owner)
    connection = network.connect(member, owner, feed)
    network.run(0.5)
    return member, connection.peering.sync.sketches


def test_symbols_that_nobody_asked_for_are_dropped_and_wrong_ones_are_a_strike(network, deaf):
    member, sketches = waiting_for_symbols(network, deaf)
    number = sketches._asking.number
    sketches.take_sketch(Sketch(number=number + 1, first=0, symbols=2, **SYMBOLS))
    assert status(member).strikes == 0
    sketches.take_sketch(Sketch(number=number, first=5, symbols=2, **SYMBOLS))
    network.run(0.5)
    assert status(member).strikes == 1
    assert way(member) == "filters"
    sketches.take_sketch(Sketch(number=number, first=5, symbols=2, **SYMBOLS))
    assert status(member).strikes == 1, "nothing is awaited any more"


def test_symbols_that_cannot_be_read_are_a_strike(network, deaf):
    member, sketches = waiting_for_symbols(network, deaf)
    told = SYMBOLS | {"packed": b"short"}
    sketches.take_sketch(Sketch(number=sketches._asking.number, first=0, symbols=2, **told))
    network.run(0.5)
    assert status(member).strikes == 1
    assert way(member) == "filters"


def test_values_are_sent_by_their_ids_as_far_as_they_are_here(network):
    owner, asker = asked_by_hand(network)
    taken = []
    asker.connection.peering.intake.take = taken.extend
    owner.feed(asker.feed).insert([b"one", b"two", b"gone"])
    forget(owner, asker.feed, [b"gone"])
    network.run(0.5)
    taken.clear()
    ids = sorted(value_ids([value]) for value in (b"one", b"gone", b"never was"))
    asker.want(b"".join(ids))
    assert taken == [b"one"]


def test_ids_and_symbols_count_as_the_peers_work(network):
    limits = Limits(sync_rate=1_000, sync_burst=20_000)
    owner, asker = asked_by_hand(network, limits=limits)
    (there,) = owner.feed(asker.feed).peers
    before = there.counters.values_tested
    ids = b"".join(number.to_bytes(16, "big") for number in range(1_000))
    asker.want(ids)
    assert there.counters.values_tested - before == 500 + 8 * 1_000
    for number in range(10):
        asker.ask(number=number, first=0, count=4_096, seconds=2)
    assert 0 < len(asker.seen) < 10, "then it waits for its turn"


def test_a_pass_over_all_values_counts_each_of_them_once(network):
    owner, member, feed = different(network, 20_000, 0, 0, owner={"sync": SELDOM})
    asker = Asker(network, member, owner, feed)
    (there,) = owner.feed(feed).peers
    before = there.counters.values_tested
    asker.ask(salt=b"s" * 16, first=0, count=10, seconds=3)
    assert [one.symbols for one in asker.seen] == [10]
    assert 20_000 <= there.counters.values_tested - before < 25_000


def test_a_value_that_is_refused_is_offered_once(network):
    owner, member, feed = different(network, 3_000, 0, 0, member={"limits": Limits(value_bytes=20)})
    long = [b"far too long for the member %d" % number for number in range(5)]
    owner.feed(feed).insert(long)
    network.connect(member, owner, feed)
    network.run(60)
    assert not set(long) & set(member.values(feed))
    assert status(owner).in_sync is False
    assert status(owner).values_out + status(member).values_in <= 4 * len(long)


# Bounds in all


def test_so_many_tries_are_under_way_at_one_time():
    slots = SketchSlots()
    tries = [object() for _ in range(MAX_TRIES + 1)]
    assert all(slots.begin_try(one) for one in tries[:-1])
    assert not slots.begin_try(tries[-1])
    assert slots.begin_try(tries[0]), "one that is under way goes on"
    slots.end_try(tries[-1])
    assert not slots.begin_try(tries[-1])
    slots.end_try(tries[3])
    assert slots.begin_try(tries[-1])


def test_so_many_sequences_are_held_and_the_oldest_gives_way():
    slots = SketchSlots()
    dropped = []
    drops = [lambda number=number: dropped.append(number) for number in range(MAX_HELD_SKETCHES)]
    for drop in drops:
        slots.hold(drop)
    slots.hold(drops[0])
    assert dropped == []
    slots.hold(lambda: dropped.append("new"))
    assert dropped == [1]
    slots.release(drops[2])
    slots.hold(lambda: dropped.append("newer"))
    assert dropped == [1]


def test_a_peer_whose_sequence_gave_way_goes_on_by_a_plan(network):
    owner, asker = asked_by_hand(network)
    asker.ask(first=0, count=10)
    for number in range(MAX_HELD_SKETCHES):
        owner.context.sketch_slots.hold(lambda number=number: number)
    asker.ask(first=10, count=10)
    assert [one.symbols for one in asker.seen] == [10, 0]


def test_a_try_waits_until_there_is_room_for_it(network):
    owner, member, feed = different(network, 3_000, 9, 9)
    slots = member.context.sketch_slots
    others = [object() for _ in range(MAX_TRIES)]
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
    others = [object() for _ in range(MAX_TRIES)]
    for one in others:
        slots.begin_try(one)
    network.connect(member, owner, feed)
    network.run(SKETCH_SECONDS + 1)
    assert way(member) == "filters"
    slots.end_try(others[0])
    network.run(1)
    assert moved(member, feed).sketches_asked == 0
    assert slots.begin_try(object()), "nobody took the place"


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

"""What a peer may ask for by symbols, what it is answered, and what it may tell."""

from __future__ import annotations

from players import Instead, Intruder, numbered
from sketched_pairs import (
    SELDOM,
    SYMBOLS,
    WHOLE,
    Asker,
    asked_by_hand,
    different,
    forget,
    keeping_a_range,
    silently,
    status,
    waiting_for_symbols,
    way,
)

from hyperbloom.digests import value_ids
from hyperbloom.replication.limits import (
    MAX_HELD_SKETCHES,
    MAX_UNSENT_BYTES,
    RANGE_SYMBOLS,
    SALTED_SECONDS,
    Limits,
)
from hyperbloom.store import StoreError
from hyperbloom.trust import mark_of
from hyperbloom.wire import Range, Sketch, SketchRequest


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
    unsent = owner.context.shares.rooms.unsent
    unsent.hold(there.share, MAX_UNSENT_BYTES)
    asker.ask(first=0, count=10, seconds=3)
    assert asker.seen == []
    unsent.hold(there.share, -MAX_UNSENT_BYTES)
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
    there.sync.sketches = Instead(there.sync.sketches, take_sketch=seen.append)
    request = SketchRequest(number=1, salt=b"", first=0, count=4, ranges=WHOLE)
    intruder.connection.peering.sync.sketches.take_request(request)
    network.run(1)
    assert seen == [Sketch.nothing(1, 0)]


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
    number = sketches._asking.number
    sketches.take_sketch(Sketch(number=number, first=0, symbols=2, **told))
    sketches.take_sketch(Sketch.nothing(number, 2))
    network.run(0.5)
    assert status(member).strikes == 1
    assert way(member) == "filters"


def test_values_are_sent_by_their_ids_as_far_as_they_are_here(network):
    owner, asker = asked_by_hand(network)
    taken = []
    peering = asker.connection.peering
    peering.intake = Instead(peering.intake, take=taken.extend)
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


def test_a_peer_whose_sequence_gave_way_goes_on_by_a_plan(network):
    owner, asker = asked_by_hand(network)
    asker.ask(first=0, count=10)
    for number in range(MAX_HELD_SKETCHES):
        path = (asker.feed, b"%d" % number)
        owner.context.sketch_slots.hold(path, lambda number=number: number)
    asker.ask(first=10, count=10)
    assert [one.symbols for one in asker.seen] == [10, 0]


def test_symbols_of_a_range_are_no_more_than_the_limit(network):
    owner, member, feed = keeping_a_range(network)
    owner.feed(feed).insert(numbered(100))
    member.feed(feed).insert(numbered(100))
    asker = Asker(network, member, owner, feed)
    ranges = (Range(start=b"v", end=b"w"),)
    asker.ask(first=0, count=RANGE_SYMBOLS + 1, ranges=ranges, seconds=2)
    assert [one.symbols for one in asker.seen] == [RANGE_SYMBOLS, 0]


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
    path = (mark_of(asker.member.key),)
    assert not tries.may_begin(path, now=now + SALTED_SECONDS - 30)
    assert tries.may_begin(path, now=now + SALTED_SECONDS)

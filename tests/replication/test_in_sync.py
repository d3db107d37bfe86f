"""Who is in sync: by digest, by Sync alone, of ranges; what that spares; waiting for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from players import Instead, Intruder, fired, light_pair, numbered
from set_digests import digest_of
from sim import pair
from twisted.internet.defer import CancelledError, Deferred

from hyperbloom.digests import SUM_MODULUS, element_sum, set_digest
from hyperbloom.replication.limits import (
    DIGEST_SECONDS,
    FULL_PLAN_SECONDS,
    MAX_KEPT_SUMS,
    MAX_WAITS,
    Limits,
)
from hyperbloom.replication.reading.range_digests import NOTHING as NOTHING_HELD
from hyperbloom.replication.reading.range_digests import QUESTION_VALUES, RangeDigests, RangeSum
from hyperbloom.replication.reading.ranges import common
from hyperbloom.replication.schedule.sync_schedule import ANSWER_SECONDS
from hyperbloom.replication.schedule.sync_state import SyncEvidence
from hyperbloom.replication.settings import WHOLE, FeedSettings, SyncSettings
from hyperbloom.replication.sync.peer import SPLITS_REPLIES
from hyperbloom.replication.sync.wait_synced import NotInSync, TooManyWaits, UnknownPeer
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.records import Holding, SetFigures
from hyperbloom.store.values.digest_migration import SumUp, begin_sums
from hyperbloom.store.writer import commit_group
from hyperbloom.wire import Digest, DigestRequest, Range
from hyperbloom.wire.extensions.noise import NOISE
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS

NOTHING = {
    "count": 0, "digest": bytes(32), "settled_count": 0, "settled_digest": bytes(32),
}  # fmt: skip


@pytest.fixture
def without_digest(monkeypatch):
    """Nodes announce what deployed ones do, so that only Sync can show anything."""
    name = "hyperbloom.replication.net.protocol.extensions_of"
    monkeypatch.setattr(name, lambda feed: ())


def status(node):
    (peer,) = node.node.peers()
    return peer


def silently(node, feed, values):
    """Values that come to the store past everybody, so that no broadcast tells of them."""
    subscribers, node.feed(feed).values._subscribers = node.feed(feed).values._subscribers, []
    node.feed(feed).insert(values)
    node.feed(feed).values._subscribers = subscribers


def test_equal_nodes_know_it_by_digest_and_send_no_filter(network):
    owner, member, feed = pair(network)
    for node in (owner, member):
        node.feed(feed).insert(numbered(1_000))
    network.connect(member, owner, feed)
    network.run(60)
    for node in (owner, member):
        peer = status(node)
        assert (peer.in_sync, peer.in_sync_by) == (True, "digest")
        assert network.now() - peer.in_sync_at < 8, "seen again with every interval"
        assert peer.last_sync_sent is None
    assert network.bytes_moved < 12_000


def test_a_plan_follows_where_the_digests_differ(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(50))
    member.feed(feed).insert(numbered(40))
    network.connect(member, owner, feed)
    network.run(1)
    assert status(member).in_sync is False
    network.run(15)
    assert owner.feed(feed).values.record().digest == member.feed(feed).values.record().digest
    assert status(member).in_sync is True


def test_a_value_that_was_missed_is_found_by_the_next_comparison(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(3)
    silently(owner, feed, [b"missed"])
    network.run(15)
    assert member.values(feed) == [b"missed"]


def test_equal_digests_spare_plans_for_a_while_only(network):
    sync = SyncSettings(interval=600.0, jitter=0.0, answer_wait=0.5)
    owner, member, feed = pair(network, owner={"sync": sync}, member={"sync": sync})
    network.connect(member, owner, feed)
    network.run(FULL_PLAN_SECONDS - 100, step=1.0)
    assert status(member).last_sync_sent is None
    network.run(1_000, step=1.0)
    assert status(member).last_sync_sent is not None


def test_nodes_of_ranges_compare_what_both_keep(network):
    owner = network.add("owner")
    feed = owner.key
    ranges = {"one": ((b"a", b"f"), (b"p", None)), "two": ((b"c", b"r"),)}
    nodes = {
        name: network.add(name, feeds=(FeedSettings(key=feed, mode="range", ranges=kept),))
        for name, kept in ranges.items()
    }
    one, two = nodes["one"], nodes["two"]
    for node in nodes.values():
        owner.invite(feed, node)
    shared = [b"c1", b"d", b"e" * 600, b"q"]
    one.feed(feed).insert([b"a", b"z", *shared])
    two.feed(feed).insert([b"g", b"h", *shared])
    connection = network.connect(one, two, feed)
    network.run(3)
    assert [one.here.count for one in connection.peering.told] == [4, 4]
    assert status(one).in_sync is status(two).in_sync is True
    silently(two, feed, [b"c2", b"k"])
    network.run(1)
    fired_later = one.node.wait_synced(feed, [two.key.hex()], timeout=20)
    network.run(10)
    (seen,) = fired(fired_later)
    assert seen.source == "digest"
    assert b"c2" in one.values(feed)
    assert b"k" not in one.values(feed)


def test_a_range_node_and_a_full_one(network):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, mode="range", ranges=((b"b", b"d"),))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    owner.feed(owner.key).insert([b"a", b"b", b"c", b"d"])
    network.connect(member, owner, owner.key)
    network.run(12)
    assert member.values(owner.key) == [b"b", b"c"]
    assert status(owner).in_sync is status(member).in_sync is True


def test_nodes_with_nothing_in_common_are_not_said_to_be_in_sync(network):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, mode="range", ranges=((b"b", b"d"),))
    other = replace(settings, ranges=((b"x", None),))
    one, two = network.add("one", feeds=(settings,)), network.add("two", feeds=(other,))
    for node in (one, two):
        owner.invite(owner.key, node)
    network.connect(one, two, owner.key)
    network.run(12)
    assert status(one).in_sync is status(two).in_sync is None


def test_who_lacks_values_knows_how_many_there_will_be(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(1_000))
    member.feed(feed).insert([b"own", b"other"])
    network.connect(member, owner, feed)
    told = []
    for _ in range(100):
        network.run(0.2)
        told += [peer.expected for peer in member.node.peers()]
    # At the first comparison: all that the owner has, at least. At the last one: all there are.
    found = [one for one in dict.fromkeys(told) if one is not None]
    assert found[0] in (1_000, 1_002)
    assert found[-1] == member.feed(feed).values.count == 1_002
    assert max(found) == 1_002


def test_who_was_told_no_digest_does_not_know_it(network, without_digest):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(20))
    network.connect(member, owner, feed)
    network.run(30)
    assert status(member).expected is None


def test_a_light_node_does_not_announce_it(network):
    owner, member, feed = light_pair(network)
    network.connect(member, owner, feed)
    network.run(12)
    assert status(owner).extensions == (SPLITS_REPLIES, RENEW_LINKS, NOISE)
    assert status(owner).in_sync is None
    with pytest.raises(ValueError, match="light"):
        fired(member.node.wait_synced(feed, [owner.key.hex()], timeout=1))


def test_by_sync_alone_once_both_have_asked_and_nothing_was_new(network, without_digest):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(20))
    member.feed(feed).insert(numbered(30))
    network.connect(member, owner, feed)
    network.run(ANSWER_SECONDS - 1)
    assert owner.feed(feed).values.record().digest == member.feed(feed).values.record().digest
    assert status(owner).in_sync is None, "equal, but nothing has shown it yet"
    network.run(30)
    for node in (owner, member):
        assert (status(node).in_sync, status(node).in_sync_by) == (True, "sync")


def test_a_plan_that_brought_something_shows_that_there_was_a_difference(network, without_digest):
    sync = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=0.5)
    owner, member, feed = pair(network, owner={"sync": sync}, member={"sync": sync})
    owner.feed(feed).insert([b"new"])
    network.connect(member, owner, feed)
    network.run(ANSWER_SECONDS + 5)
    assert (status(member).in_sync, status(member).in_sync_by) == (False, "sync")


def test_waiting_hurries_the_plans(network, without_digest):
    sync = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=0.5)
    owner, member, feed = pair(network, owner={"sync": sync}, member={"sync": sync})
    network.connect(member, owner, feed)
    network.run(2)
    silently(owner, feed, [b"missed"])
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=60)
    network.run(30)
    (seen,) = fired(waiting)
    assert (seen.source, seen.key) == ("sync", owner.key)
    assert member.values(feed) == [b"missed"]


@pytest.mark.parametrize("latency", [0.1, 0.2])
def test_who_waits_is_sent_each_value_once(network, latency):
    """Though the answer to the first question is on its way for longer than a wait is patient."""
    network.latency = latency
    sync = SyncSettings(interval=60.0, jitter=0.0, answer_wait=0.5)
    owner, member, feed = pair(network, owner={"sync": sync}, member={"sync": sync})
    owner.feed(feed).insert(numbered(3_000, b"v" * 1_000))
    network.connect(member, owner, feed)
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=60)
    network.run(30)
    (found,) = fired(waiting)
    assert found.source == "digest"
    assert status(member).values_in == member.feed(feed).values.count == 3_000


def test_what_was_known_before_does_not_end_a_wait(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(3)
    assert status(member).in_sync
    silently(owner, feed, [b"missed"])
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=20)
    assert not waiting.called
    network.run(5)
    fired(waiting)
    assert member.values(feed) == [b"missed"]


def test_a_wait_for_nodes_that_stay_apart_ends_with_the_figures(network):
    owner, member, feed = pair(network, member={"limits": Limits(value_bytes=3)})
    owner.feed(feed).insert([b"long value", b"abc"])
    network.connect(member, owner, feed)
    waiting = owner.node.wait_synced(feed, [member.key.hex()], timeout=8)
    network.run(10)
    with pytest.raises(NotInSync, match=r"it had 1 value, this node 2 values"):
        fired(waiting)


def test_a_peer_may_connect_while_it_is_waited_for(network):
    owner, member, feed = pair(network)
    waiting = owner.node.wait_synced(feed, [member.key.hex()], timeout=30)
    network.run(5)
    assert not waiting.called
    connection = network.connect(member, owner, feed)
    network.run(5)
    (seen,) = fired(waiting)
    assert seen.address == f"member:{connection.transport.getHost().port}"
    by_address = owner.node.wait_synced(feed, [seen.address], timeout=30)
    network.run(5)
    assert fired(by_address)[0].key == member.key
    network.cut(connection.transport)
    waiting = owner.node.wait_synced(feed, [member.key.hex()], timeout=3)
    network.run(5)
    with pytest.raises(NotInSync, match="not connected"):
        fired(waiting)


def test_names_of_nobody_and_what_is_no_whole_key(network):
    owner, member, feed = pair(network)
    for name in ("ab12cd34", "example.org:4365", member.key.hex()[:63], owner.key.hex()):
        with pytest.raises(UnknownPeer, match="no peer"):
            fired(owner.node.wait_synced(feed, [name], timeout=1))


def test_waits_are_limited_and_can_be_cancelled(network):
    owner, member, feed = pair(network)
    waits = [owner.node.wait_synced(feed, [member.key.hex()], timeout=9) for _ in range(MAX_WAITS)]
    with pytest.raises(TooManyWaits):
        fired(owner.node.wait_synced(feed, [member.key.hex()], timeout=9))
    for waiting in waits:
        waiting.addErrback(lambda failure: failure.trap(CancelledError))
        waiting.cancel()
    assert owner.feed(feed).peers.waits == 0
    assert not [c for c in network.clock.getDelayedCalls() if "_Wait" in repr(c.func)]


def test_a_peer_that_does_not_answer_is_asked_by_sync(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert([b"v"])
    intruder = Intruder(network, member, owner, feed)
    (there,) = owner.feed(feed).peers
    there.sync.digests = Instead(there.sync.digests, take_digest=lambda digest: None)
    silently(owner, feed, [b"missed"])
    first = there.counters.last_sync_sent
    network.run(DIGEST_SECONDS + 10)
    assert there.counters.last_sync_sent > (first or 0)
    assert intruder.session.remote is not None


def test_answers_of_the_wrong_kind_are_dropped_or_struck(network):
    owner, _, feed = pair(network)
    settings = FeedSettings(key=feed, mode="range", ranges=((b"b", b"d"),))
    narrow = network.add("narrow", feeds=(settings,))
    owner.invite(feed, narrow)
    network.connect(narrow, owner, feed)
    network.run(3)
    (peering,) = narrow.feed(feed).peers
    peering.sync.digests.take_digest(Digest(number=9, **NOTHING, ranges=()))
    number = asked(peering)
    wide = Digest(number=number, **NOTHING, ranges=(Range(start=b""),))
    before = status(narrow).strikes
    peering.sync.digests.take_digest(wide)
    assert status(narrow).strikes == before + 1
    peering.sync.digests.take_digest(wide)
    assert status(narrow).strikes == before + 1, "nothing is awaited any more"


def asked(peering):
    """Have the peer asked for its digest now; the number of the question."""
    numbers = []
    send = peering.output.send_extension
    peering.output = Instead(
        peering.output,
        send_extension=lambda request: numbers.append(request.number) or send(request),
    )
    peering.hurry()
    peering.context.clock.advance(0)
    return numbers[0]


@pytest.mark.parametrize("ranges", [(), (Range(start=b"x"),)], ids=["none", "another"])
def test_an_answer_that_nothing_is_added_up_for_ends_the_comparison(network, ranges):
    owner = network.add("owner")
    feed = owner.key
    settings = FeedSettings(key=feed, mode="range", ranges=((b"b", b"d"),))
    # It is full after a value, so that it asks for no more, and makes no filters.
    member = network.add("member", feeds=(settings,), limits=Limits(feed_values=1))
    owner.invite(feed, member)
    for node in (owner, member):
        node.feed(feed).insert([b"c"])
    network.connect(member, owner, feed)
    network.run(3)
    (peering,) = member.feed(feed).peers
    number = asked(peering)
    before, told = peering.counters.sync_seconds, peering.sync.digests.told
    peering.sync.digests.take_digest(Digest(number=number, **NOTHING, ranges=ranges))
    assert (peering.counters.sync_seconds, peering.sync.digests.told) == (before, told)
    network.run(3)
    assert asked(peering) > number, "the next comparison may begin"


def test_one_answer_is_added_up_once_however_often_it_is_sent(network):
    owner, _, feed = pair(network)
    settings = FeedSettings(key=feed, mode="range", ranges=((b"b", b"d"),))
    narrow = network.add("narrow", feeds=(settings,))
    owner.invite(feed, narrow)
    network.connect(narrow, owner, feed)
    network.run(3)
    (peering,) = narrow.feed(feed).peers
    number = asked(peering)
    peering.scheduler.pauseProducing()
    before = len(peering.scheduler)
    ranges = (Range(start=b"b", end=b"d"),)
    for _ in range(50):
        peering.sync.digests.take_digest(Digest(number=number, **NOTHING, ranges=ranges))
    assert len(peering.scheduler) == before + 1


def forget(node, feed, values, **how):
    fired(Deferred.fromCoroutine(node.feed(feed).forgetting.forget(values, **how)))


@pytest.mark.parametrize("kept", [None, (b"v00", b"v01")])
@pytest.mark.parametrize("by", ["one", "both", "both the same"])
def test_what_was_forgotten_is_settled(network, by, kept):
    """Nobody would send it, so it keeps nobody from being in sync, nor asks for a plan."""
    mode = {"mode": "range", "ranges": (kept,)} if kept else {}
    owner = network.add("owner")
    feed = owner.key
    member = network.add("member", feeds=(FeedSettings(key=feed, **mode),))
    owner.invite(feed, member)
    values = numbered(99)
    for node in (owner, member):
        node.feed(feed).insert(values)
    forget(member, feed, values[:10])
    if by != "one":
        forget(owner, feed, values[5:20] if by == "both" else values[:10])
    network.connect(member, owner, feed)
    for node, other in ((owner, member), (member, owner)):
        waiting = node.node.wait_synced(feed, [other.key.hex()], timeout=20)
        network.run(10)
        assert fired(waiting)[0].source == "digest"
        assert status(node).last_sync_sent is None
    forgotten = [node.feed(feed).forgetting.kept for node in (owner, member)]
    assert forgotten == [{"one": 0, "both": 15, "both the same": 10}[by], 10]


def test_a_value_is_still_missed_beside_what_was_forgotten(network):
    owner, member, feed = pair(network)
    values = numbered(50)
    owner.feed(feed).insert(values)
    member.feed(feed).insert(values[:-1])
    forget(member, feed, values[:10])
    network.connect(member, owner, feed)
    network.run(2)
    assert member.values(feed) == values[10:]
    assert owner.values(feed) == values


def test_what_only_a_hash_keeps_out_is_named_as_the_reason(network):
    owner, member, feed = pair(network)
    for node in (owner, member):
        node.feed(feed).insert(numbered(50))
    forget(member, feed, numbered(4))
    forget(member, feed, numbered(10)[4:], erase=True)
    network.connect(member, owner, feed)
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=8)
    network.run(10)
    why = r"it had 50 values, this node 40 values, 4 forgotten and keeps 6 out by their hashes"
    with pytest.raises(NotInSync, match=why):
        fired(waiting)


def test_many_questions_are_answered_once_for_the_last(network):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    seen = []
    sync = intruder.connection.peering.sync
    sync.digests = Instead(sync.digests, take_digest=seen.append)
    (there,) = owner.feed(feed).peers
    there.scheduler.pauseProducing()
    for number in range(100, 150):
        request = DigestRequest(number=number, ranges=(Range(start=b""),))
        intruder.write(intruder.session.send_extension(request))
    network.run(1)
    there.scheduler.resumeProducing()
    network.run(1)
    assert [digest.number for digest in seen] == [149]


def test_additions_count_as_the_peers_work(network):
    limits = Limits(sync_rate=1_000, sync_burst=10_000)
    owner, member, feed = pair(network, owner={"limits": limits})
    owner.feed(feed).insert(numbered(9_000))
    intruder = Intruder(network, member, owner, feed)
    seen = []
    sync = intruder.connection.peering.sync
    sync.digests = Instead(sync.digests, take_digest=seen.append)
    ranges = tuple(Range(start=b"v%06d" % i, end=b"v%06d" % (i + 3_000)) for i in (0, 4_000))
    for number in range(100, 106):
        request = DigestRequest(number=number, ranges=ranges)
        intruder.send(network, intruder.session.send_extension(request), seconds=2)
        silently(owner, feed, [b"more %d" % number])
    assert 0 < len(seen) < 6, "the sixth question waits for its turn"


def test_sums_are_kept_until_the_feed_changes(network):
    owner = network.add("owner")
    feed = owner.feed(owner.key)
    feed.insert(numbered(20_000))
    sums = RangeDigests(feed.values.holding)
    ranges = [(b"v000100", b"v019000")]
    assert sums.find(ranges) is None
    fired(Deferred.fromCoroutine(feed.forgetting.forget([b"v000200", b"v019500"])))
    slices = feed.values.slices
    state, adding = sums.state(), RangeSum(ranges, slices)
    steps = 0
    while not adding.done:
        adding.step()
        steps += 1
    assert steps > 2
    held, settled = adding.holding.here, adding.holding.settled
    assert (held.count, settled.count) == (18_899, 18_900)
    expected = element_sum(numbered(19_000)[100:])
    assert settled.digest == set_digest(18_900, expected)
    expected = (expected - element_sum([b"v000200"])) % SUM_MODULUS
    assert held.digest == set_digest(18_899, expected)
    whole = RangeSum([WHOLE], slices)
    while not whole.done:
        whole.step()
    assert whole.holding == state
    sums.keep(ranges, adding.holding, of=state)
    assert sums.find(ranges) == adding.holding
    for number in range(MAX_KEPT_SUMS + 1):
        sums.keep([(b"%d" % number, None)], adding.holding, of=state)
    assert len(sums._kept) <= MAX_KEPT_SUMS
    sums.keep(ranges, adding.holding, of=state)
    feed.insert([b"new"])
    assert sums.find(ranges) is None
    sums.keep(ranges, adding.holding, of=state)
    assert sums.find(ranges) is None, "begun before the value came"
    assert sums.find([WHOLE]).here.count == 19_999
    assert sums.find([]).settled.count == 0


def test_what_ranges_have_in_common():
    assert common([WHOLE], [(b"a", b"c"), (b"x", None)]) == [(b"a", b"c"), (b"x", None)]
    assert common([(b"a", b"m")], [(b"c", b"d"), (b"k", b"z")]) == [(b"c", b"d"), (b"k", b"m")]
    assert common([(b"a", b"b")], [(b"b", None)]) == []


def test_evidence_needs_the_peers_whole_plan():
    evidence = SyncEvidence([WHOLE])
    evidence.plan_begins(at=5.0, new_values=3)
    evidence.sync_answered((b"", b"m"))
    assert evidence.plan_ends(new_values=3, all_sent=True) is None
    evidence.sync_answered((b"m", None))
    assert evidence.plan_ends(new_values=3, all_sent=True) is None, "no plan was begun"
    evidence.plan_begins(at=6.0, new_values=3)
    assert evidence.plan_ends(new_values=3, all_sent=False) is None
    evidence.plan_begins(at=7.0, new_values=3)
    shown = evidence.plan_ends(new_values=3, all_sent=True)
    assert (shown.in_sync, shown.at, shown.source) == (True, 7.0, "sync")
    evidence.plan_begins(at=8.0, new_values=3)
    assert evidence.plan_ends(new_values=4, all_sent=True).in_sync is False


def test_a_plan_shows_nothing_twice_and_only_what_came_since_it_began():
    evidence = SyncEvidence([(b"a", b"m"), (b"m", b"z")])
    assert not evidence.peer_has_asked
    evidence.sync_answered((b"", b"z"))
    assert evidence.peer_has_asked
    evidence.plan_begins(at=5.0, new_values=3)
    evidence.plan_begins(at=6.0, new_values=7)
    shown = evidence.plan_ends(new_values=7, all_sent=True)
    assert (shown.in_sync, shown.at) == (True, 6.0)
    assert evidence.plan_ends(new_values=7, all_sent=True) is None
    # What differs is told whatever the peer has asked, and whatever waits to be sent.
    other = SyncEvidence([WHOLE])
    other.plan_begins(at=7.0, new_values=0)
    shown = other.plan_ends(new_values=1, all_sent=False)
    assert (shown.in_sync, shown.at, shown.source) == (False, 7.0, "sync")
    assert not SyncEvidence([]).peer_has_asked, "who keeps nothing has nothing in common"


class Slices:
    """Values in slices of two, as the store reads them."""

    def __init__(self, *values):
        self.values = sorted(values)

    def __call__(self, start, end):
        inside = [v for v in self.values if v >= start and (end is None or v < end)]
        more = inside[2] if len(inside) > 2 else None
        return SimpleNamespace(values=inside[:2], next_start=more)


def slices(here, forgotten):
    return SimpleNamespace(here=Slices(*here), forgotten=Slices(*forgotten))


def test_an_addition_counts_its_work_and_takes_a_slice_that_is_not_empty_a_step():
    here = [b"a" * 64, b"b" * 64, b"c" * 640]
    adding = RangeSum([WHOLE], slices(here, [b"gone"]))
    assert adding.take_tested() == QUESTION_VALUES
    worked = []
    while not adding.done:
        adding.step()
        worked.append(adding.take_tested())
    assert worked == [1, 2, 10]
    assert adding.holding.here.count == 3
    assert adding.holding.settled.count == 4
    total = element_sum(here)
    assert adding.holding.here.digest == set_digest(3, total)
    total = (total + element_sum([b"gone"])) % SUM_MODULUS
    assert adding.holding.settled.digest == set_digest(4, total)
    empty = RangeSum([(b"x", b"y"), (b"y", b"z")], slices(here, []))
    empty.step()
    assert empty.done, "empty slices are passed over in one step"
    assert empty.holding == NOTHING_HELD


def test_as_many_sums_are_kept_as_the_limit_says():
    state = Holding(here=SetFigures(1, b"1" * 32), settled=SetFigures(1, b"1" * 32))
    part = Holding(here=SetFigures(0, bytes(32)), settled=SetFigures(0, bytes(32)))
    now = [state]
    sums = RangeDigests(lambda: now[0])
    ranges = [[(b"%d" % number, None)] for number in range(MAX_KEPT_SUMS + 1)]
    for some in ranges[:-1]:
        sums.keep(some, part, of=state)
    assert [sums.find(some) for some in ranges] == [part] * MAX_KEPT_SUMS + [None]
    sums.keep(ranges[-1], part, of=state)
    assert [sums.find(some) for some in ranges] == [None] * MAX_KEPT_SUMS + [part]
    now[0] = None
    assert sums.find(ranges[-1]) is None
    assert sums.find([]) is None
    sums.keep(ranges[0], part, of=state)
    now[0] = state
    assert sums.find(ranges[0]) is None, "nothing is kept while the digest is computed"
    assert sums.find([WHOLE]) == state
    assert sums.find([]) == NOTHING_HELD


# A store of an older version, whose digests are still being computed


def compute_later(node):
    """As after the step from schema 3: no value is in a sum yet, and none is added by itself."""
    write(node.node.context.store.environment, begin_sums)


def compute(node):
    environment = node.node.context.store.environment
    while commit_group(environment, [SumUp()]) != [None]:
        pass


@pytest.mark.parametrize("ranges", [(), ((b"v", b"w"),)], ids=["full", "range"])
def test_while_a_digest_is_computed_nodes_go_on_by_sync(network, ranges):
    owner = network.add("owner")
    feed = owner.key
    mode = "range" if ranges else "full"
    member = network.add("member", feeds=(FeedSettings(key=feed, mode=mode, ranges=ranges),))
    owner.invite(feed, member)
    owner.feed(feed).insert(numbered(50))
    member.feed(feed).insert(numbered(40))
    compute_later(member)
    assert member.node.status().feeds[0].digest is None
    assert member.node.status().feeds[0].digest_left == 40
    network.connect(member, owner, feed)
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=60)
    network.run(30)
    assert member.values(feed) == numbered(50)
    (seen,) = fired(waiting)
    assert seen.source == "sync"
    assert status(owner).in_sync is None, "nothing was compared"
    assert status(owner).strikes == status(member).strikes == 0
    compute(member)
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=60)
    network.run(60)
    (seen,) = fired(waiting)
    assert seen.source == "digest"
    assert status(owner).in_sync is status(member).in_sync is True
    if not ranges:
        assert member.feed(feed).values.record().digest == digest_of(numbered(50))


def test_who_is_asked_while_it_computes_its_digest_answers_at_once(network):
    owner, member, feed = pair(network)
    for node in (owner, member):
        node.feed(feed).insert(numbered(50))
    compute_later(member)
    network.connect(owner, member, feed)
    network.run(DIGEST_SECONDS / 10)
    assert status(owner).last_sync_sent is not None, "it did not wait for an answer in vain"


def test_who_computes_its_digest_says_so_when_the_time_is_up(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(50))
    member.feed(feed).insert(numbered(50))
    compute_later(member)
    network.connect(member, owner, feed)
    network.run(1)
    waiting = member.node.wait_synced(feed, [owner.key.hex()], timeout=0.5)
    network.run(1)
    with pytest.raises(NotInSync, match=r"still computing its digest \(50 values to go\)"):
        fired(waiting)
    waiting = owner.node.wait_synced(feed, [member.key.hex()], timeout=0.5)
    network.run(1)
    with pytest.raises(NotInSync, match="has no digest yet"):
        fired(waiting)

"""Forgetting on nodes that sync: what is forgotten stays away, and costs nothing to keep away."""

from __future__ import annotations

import pytest
from players import fired, numbered
from sim import pair
from twisted.internet.defer import Deferred

from hyperbloom.bloom import BloomFilter
from hyperbloom.replication.feed.forgetting import Selection
from hyperbloom.replication.limits import BROADCASTS_PER_TURN
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.sync.send_jobs import plan_of


def done(coroutine):
    return fired(Deferred.fromCoroutine(coroutine))


def forget(feed, **selection):
    """All steps of a selection; how many values were forgotten."""
    count, position = 0, None
    while True:
        step = done(feed.forgetting.step(Selection(**selection), position))
        count, position = count + step.count, step.next
        if position is None:
            return count


def met(network, count=300):
    owner, member, feed = pair(network)
    values = numbered(count)
    fired(owner.feed(feed).insert(values))
    network.connect(member, owner, feed)
    network.run_until(lambda: member.feed(feed).values.count == count, 20)
    return owner, member, feed, values


@pytest.fixture(params=["digests", "no digests"])
def extension(request, monkeypatch):
    """Equal digests spare Syncs; without the extension there is one with every interval."""
    if request.param == "no digests":
        name = "hyperbloom.replication.net.protocol.extensions_of"
        monkeypatch.setattr(name, lambda feed: ())
    return request.param


def test_it_stays_away_through_many_syncs_and_is_not_even_sent(network, extension):
    owner, member, feed, values = met(network)
    assert forget(member.feed(feed), start=b"v0001", end=b"v0002") == 100
    (status,) = member.node.peers()
    (peering,) = member.feed(feed).peers
    got, asked = status.values_in, peering.counters.syncs_sent
    network.run(5 * 25)
    (status,) = member.node.peers()
    if extension == "no digests":
        # A filter with a fresh seed each time says that all are here.
        assert peering.counters.syncs_sent >= asked + 20
    else:
        assert status.in_sync_at > network.now() - 10
    assert status.in_sync
    assert status.values_in == got
    assert member.values(feed) == values[:100] + values[200:]
    assert member.feed(feed).values.count == 200
    assert owner.feed(feed).values.count == 300
    assert member.status(feed).forgotten == 100


def test_who_has_it_anew_and_tells_of_it_does_not_bring_it_back(network):
    """What comes as a broadcast was compared with no filter."""
    owner, member, feed, values = met(network, 50)
    kept = member.feed(feed).values
    forget(member.feed(feed), values=(values[7],))
    third = network.add("third", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, third)
    network.connect(third, member, feed)
    network.run(5)
    before = kept.forgotten_refused
    fired(third.feed(feed).insert([values[7], b"new"]))
    network.run(2)
    assert kept.forgotten_refused == before + 1
    assert member.values(feed) == sorted({*values, b"new"} - {values[7]})


def test_what_was_erased_comes_and_is_kept_out(network):
    owner, member, feed, values = met(network, 50)
    done(member.feed(feed).forgetting.step(Selection(values=tuple(values[:5])), None, erase=True))
    network.run(5 * 22)
    assert member.values(feed) == values[5:]
    assert member.feed(feed).values.forgotten_refused >= 5 * 20
    assert owner.feed(feed).values.count == 50


def test_what_one_peer_brought_is_forgotten_and_comes_back_by_undo(network):
    owner, member, feed, _ = met(network, 100)
    fired(member.feed(feed).insert([b"my own"]))
    network.run(1)
    assert forget(member.feed(feed), origin=owner.key) == 100
    network.run(30)
    assert member.values(feed) == [b"my own"]
    brought = Selection(origin=owner.key)
    forgetting = member.feed(feed).forgetting
    counted = done(forgetting.undo_step(brought, None, dry_run=True))
    assert member.values(feed) == [b"my own"]
    back = done(forgetting.undo_step(brought, None))
    assert back == counted
    assert (back.count, back.absent) == (100, 0)
    assert member.feed(feed).values.count == 101
    assert member.feed(feed).values.record().digest == owner.feed(feed).values.record().digest


def test_a_dry_run_changes_nothing(network):
    _, member, feed, values = met(network, 20)
    forgetting = member.feed(feed).forgetting
    selection = Selection(values=(values[0], b"not here"))
    step = done(forgetting.step(selection, None, dry_run=True))
    assert (step.count, step.absent) == (1, 1)
    assert member.feed(feed).values.count == 20
    assert forgetting.figures().count == 0


def test_an_own_put_brings_it_back(network):
    _, member, feed, values = met(network, 10)
    forget(member.feed(feed), values=(values[3],))
    fired(member.feed(feed).insert([values[3]]))
    assert member.values(feed) == values


def test_a_third_node_does_not_get_it_from_who_forgot(network):
    _, member, feed, values = met(network, 60)
    forget(member.feed(feed), values=tuple(values[:30]))
    third = network.add("third", feeds=(FeedSettings(key=feed),))
    network.nodes["owner"].invite(feed, third)
    network.connect(third, member, feed)
    network.run(20)
    assert third.values(feed) == values[30:]
    assert member.values(feed) == values[30:]


def test_what_waits_to_be_told_and_is_forgotten_holds_nothing_up(network):
    """The end of the log vanishes while a peer is told of it."""
    owner, member, feed = pair(network, owner={"thread_seconds": 0.2})
    network.connect(member, owner, feed)
    network.run(5)
    (peering,) = owner.feed(feed).peers
    # More broadcasts than go out in one turn: what is left waits in the log.
    late = numbered(BROADCASTS_PER_TURN + 50, b"w")
    for value in late:
        fired(owner.feed(feed).insert([value]))
    assert peering._broadcast.cursor < owner.feed(feed).values.top_seq
    forget(owner.feed(feed), values=tuple(late[BROADCASTS_PER_TURN - 10 :]))
    network.run(5)
    assert peering._broadcast.cursor == owner.feed(feed).values.top_seq
    network.run(5)
    fired(owner.feed(feed).insert([b"x"]))
    network.run(5)
    assert b"x" in member.values(feed)
    assert peering._broadcast.cursor == owner.feed(feed).values.top_seq


@pytest.mark.parametrize("seed", range(3))
def test_the_plan_lists_what_is_here_and_what_is_forgotten(network, seed):
    owner, member, feed = pair(network)
    values = numbered(20_000)
    fired(member.feed(feed).insert(values))
    network.random.seed(seed)
    gone = network.random.sample(values, 2_000)
    forget(member.feed(feed), values=tuple(gone))
    plan = plan_of(member.feed(feed))
    listed = 0
    while not plan.done:
        sync = plan.next_sync()
        bloom = BloomFilter.from_bytes(sync.filter, size=sync.size, n=sync.n, seed=sync.seed)
        start, end = (b"", None) if sync.range is None else (sync.range.start, sync.range.end)
        part = [v for v in values if v >= start and (end is None or v < end)]
        assert bloom.missing(part) == []
        listed += len(part)
    assert listed == len(values)
    assert owner.feed(feed).values.count == 0

"""What a node counts for its metrics: right, cheap to read, and bounded whatever peers do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from players import fired, numbered
from sim import pair
from twisted.internet.defer import Deferred

import hyperbloom
from hyperbloom.api.monitoring.metrics import DHT_EVENTS, REFUSED_REASONS, ROUND_WAYS
from hyperbloom.connections.close_reason import FEED_KINDS
from hyperbloom.replication.feed.forgetting import Selection
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.schedule.sync_commands import Way
from hyperbloom.replication.settings import FeedSettings, NoisePolicy
from hyperbloom.store import StoreCorrupt
from hyperbloom.trust import LinkGraph

SOURCE = Path(hyperbloom.__file__).parent
#: Kinds of connections of object pools, which are counted apart.
POOL_KINDS = {"rejected", "kicked", "left", "silent", "rule"}


def done(coroutine):
    return fired(Deferred.fromCoroutine(coroutine))


def traffic(node, feed):
    (found,) = [one for one in node.node.traffic().feeds if one.key == feed]
    return found


def kinds_in(path: Path):
    """The kinds that a module gives to CloseReason, as far as they are written out."""
    for call in ast.walk(ast.parse(path.read_text())):
        is_reason = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "CloseReason"
        if is_reason and isinstance(call.args[0], ast.Constant):
            yield call.args[0].value


def test_every_kind_of_closing_is_counted_from_the_start():
    found = {kind for path in SOURCE.rglob("*.py") for kind in kinds_in(path)}
    assert len(found) > 15
    # `untrusted` and `expired` of a chain are one call with a name.
    assert found | {"untrusted"} == set(FEED_KINDS) | POOL_KINDS
    assert list(FEED_KINDS) == sorted(FEED_KINDS)


def test_every_event_of_the_dht_is_counted_from_the_start():
    text = (SOURCE / "discovery/dht/machine.py").read_text()
    assert sorted(set(re.findall(r'self\.counts\["(\w+)"\]', text))) == list(DHT_EVENTS)


def test_every_way_of_asking_is_counted_from_the_start():
    assert set(ROUND_WAYS) == {way.value for way in Way} | {"salted sketch"}


def test_nobody_takes_part_and_nothing_ends(network):
    owner = network.add("owner")
    found = traffic(owner, owner.key)
    assert (found.is_shared, found.trusted, found.chain_expires) == (False, True, None)
    assert (found.issued_links, found.issued_expire, found.last_sync) == (0, None, 0)
    disk = owner.node.traffic().disk
    assert 0 < disk.free_bytes <= disk.size_bytes


def test_when_links_end_is_told_at_both_sides(network):
    owner, member, feed = pair(network)
    last = network.add("last", feeds=(FeedSettings(key=feed),))
    begun = network.now()
    owner.invite(feed, last, seconds=50)
    assert traffic(owner, feed).issued_links == 2
    assert traffic(owner, feed).issued_expire == pytest.approx(begun + 50, abs=2)
    assert traffic(last, feed).chain_expires == pytest.approx(begun + 50, abs=2)
    assert traffic(member, feed).chain_expires == pytest.approx(begun + 86_400, abs=2)
    assert traffic(member, feed).is_shared
    # A renewed link of the same key is what counts.
    owner.invite(feed, last, seconds=500)
    assert traffic(owner, feed).issued_links == 2
    assert traffic(owner, feed).issued_expire == pytest.approx(begun + 500, abs=2)
    network.run(550, step=50)
    assert traffic(owner, feed).issued_links == 1
    assert traffic(owner, feed).issued_expire == pytest.approx(begun + 86_400, abs=2)
    assert (traffic(last, feed).trusted, traffic(last, feed).chain_expires) == (False, None)


def test_a_denied_key_is_no_longer_waited_for(network):
    owner, member, feed = pair(network)
    assert traffic(owner, feed).issued_links == 1
    done(owner.node.deny(member.key))
    assert (traffic(owner, feed).issued_links, owner.node.traffic().denied) == (0, 1)
    done(owner.node.allow(member.key))
    assert traffic(owner, feed).issued_links == 1


def test_links_are_counted_again_only_when_there_are_others(network, monkeypatch):
    owner, member, feed = pair(network)
    traffic(owner, feed)
    read = []
    expiries_of = LinkGraph.expiries_of
    monkeypatch.setattr(
        LinkGraph, "expiries_of", lambda graph, key: read.append(key) or expiries_of(graph, key)
    )
    third = network.add("third", feeds=(FeedSettings(key=feed),))
    member.invite(feed, third)
    network.connect(third, owner, feed)  # shows the owner a chain that it did not know
    network.run(2)
    before = len(read)
    for _ in range(5):
        traffic(owner, feed)
    assert len(read) - before <= 1
    read.clear()
    traffic(owner, feed)
    assert read == []
    fourth = network.add("fourth", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, fourth, seconds=70)
    assert traffic(owner, feed).issued_expire == pytest.approx(network.now() + 70, abs=1)


def test_in_sync_and_since_when(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    owner.feed(feed).insert(numbered(20))
    network.run(5)
    for node in (owner, member):
        found = traffic(node, feed)
        assert (found.peers, found.peers_in_sync, found.peers_differing) == (1, 1, 0)
        assert network.now() - 6 < found.last_sync <= network.now()
    last = traffic(owner, feed).last_sync
    for connection in list(owner.node.connections._open):
        network.cut(connection.transport)
    network.run(5)
    # Who has gone is remembered, and the moment does not go on.
    found = traffic(owner, feed)
    assert (found.peers, found.peers_in_sync) == (0, 0)
    assert last <= found.last_sync < network.now() - 4


def test_a_peer_that_refuses_values_differs(network):
    owner, member, feed = pair(network, member={"limits": Limits(feed_values=3)})
    network.connect(member, owner, feed)
    for value in numbered(20):
        owner.feed(feed).insert([value])
        network.run(1, step=0.5)
    network.run(180, step=0.5)
    found = traffic(owner, feed)
    assert (found.peers_in_sync, found.peers_differing) == (0, 1)
    assert traffic(member, feed).kept_out["full"] > 0
    assert set(traffic(member, feed).kept_out) <= set(REFUSED_REASONS)


def test_rounds_and_their_bytes_by_way(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(50))
    network.run(1)
    network.connect(member, owner, feed)
    network.run(5)
    rounds = {**traffic(owner, feed).rounds}
    for way, count in traffic(member, feed).rounds.items():
        rounds[way] = rounds.get(way, 0) + count
    assert sum(rounds.values()) >= 1
    assert set(rounds) <= set(ROUND_WAYS)
    for node in (owner, member):
        found = traffic(node, feed)
        assert set(found.round_bytes) == set(found.rounds)
    assert sum(traffic(member, feed).round_bytes.values()) > 0


@pytest.mark.parametrize("policy", [NoisePolicy.PREFER, NoisePolicy.OFF])
def test_connections_that_became_secure(network, policy):
    owner, member, feed = pair(network)
    owner.context.noise = policy
    for _ in range(2):
        connection = network.connect(member, owner, feed)
        network.run(1)
        network.cut(connection.transport)
        network.run(1)
    found = owner.node.traffic()
    counts = (found.secured_protected, found.secured_plain)
    assert counts == ((2, 0) if policy is NoisePolicy.PREFER else (0, 2))


def test_what_is_forgotten(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    owner.feed(feed).insert(numbered(10))
    network.run(3)
    keep, erase = numbered(10)[:2], numbered(10)[2:5]
    done(member.feed(feed).forgetting.step(Selection(values=tuple(keep)), None))
    done(member.feed(feed).forgetting.step(Selection(values=tuple(erase)), None, erase=True))
    found = traffic(member, feed)
    assert (found.count, found.forgotten, found.forgotten_hashes) == (5, 2, 3)
    network.run(200, step=0.5)
    # What was erased comes with the next Sync, and is kept out.
    assert traffic(member, feed).kept_out["forgotten"] >= 3
    assert traffic(owner, feed).kept_out["forgotten"] == 0


def test_a_damaged_page_leaves_the_other_figures(network, monkeypatch):
    owner = network.add("owner")

    def damaged(feed_key):
        raise StoreCorrupt("a page is damaged")

    monkeypatch.setattr(owner.store, "forgotten_figures", damaged)
    found = traffic(owner, owner.key)
    assert (found.forgotten, found.forgotten_hashes, found.trusted) == (None, None, True)

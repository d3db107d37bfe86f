"""Nodes in a simulated network that push along a tree, tell ids, pull, and catch up from one."""

from __future__ import annotations

import pytest
from players import Instead, Intruder, numbered
from sim import Network
from twisted.internet.defer import fail

from hyperbloom.digests import value_ids
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import GRAFT_SECONDS, PULL_SECONDS, TELL_SECONDS
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.store import StoreError
from hyperbloom.wire.events import DataReceived
from hyperbloom.wire.extensions.broadcast_tree import (
    BROADCAST_TREE,
    LinkKind,
    ValuesPull,
    ValuesTold,
)

REST = SyncSettings(interval=1_000.0, answer_wait=0.5)


@pytest.fixture
def network(tmp_path):
    made = Network(tmp_path, seed=1)
    yield made
    made.close()


@pytest.fixture
def duplicates(monkeypatch):
    """(node, value) for each value that came though it was there, or had come before."""
    found, seen = [], set()
    take = Peering.take

    def counted(peering, event):
        if isinstance(event, DataReceived):
            node = peering.context.identity.public_key
            for value in event.values:
                if (node, value) in seen or peering.feed.values.has([value])[0]:
                    found.append((node, value))
                seen.add((node, value))
        take(peering, event)

    monkeypatch.setattr(Peering, "take", counted)
    return found


def nodes_of(network, count, **more):
    """An owner and members that it invited, not connected."""
    owner = network.add("n0", sync=REST)
    settings = FeedSettings(key=owner.key, **more)
    members = [network.add(f"n{n}", feeds=(settings,), sync=REST) for n in range(1, count)]
    for member in members:
        owner.invite(owner.key, member)
    return [owner, *members], owner.key


def ring(network, count):
    nodes, feed = nodes_of(network, count)
    for number, node in enumerate(nodes):
        network.connect(node, nodes[(number + 1) % count], feed)
    network.run(4)
    return nodes, feed


def put(network, node, feed, *values, seconds=3.0):
    node.feed(feed).insert(list(values))
    network.run(seconds, step=0.01)


def counters(node, feed):
    return node.feed(feed).peers.moved()


def test_in_a_ring_a_value_comes_twice_once_and_then_its_id_does(network, duplicates):
    nodes, feed = ring(network, 5)
    put(network, nodes[0], feed, b"first")
    assert 1 <= len(duplicates) <= 2
    duplicates.clear()
    for number in range(10):
        put(network, nodes[number % 3], feed, b"value %d" % number)
    assert duplicates == []
    assert all(len(node.values(feed)) == 11 for node in nodes)
    told = sum(counters(node, feed).ids_told for node in nodes)
    assert 0 < told <= 2 * 11
    assert sum(counters(node, feed).values_pulled for node in nodes) == 0


def test_along_the_tree_a_value_takes_as_long_as_ever(network):
    nodes, feed = ring(network, 5)
    for number in range(5):
        put(network, nodes[number], feed, b"value %d" % number)
    begun = network.clock.seconds()
    put(network, nodes[0], feed, b"timed", seconds=4 * 1.5 * network.latency + 0.05)
    assert network.clock.seconds() - begun < TELL_SECONDS
    assert all(b"timed" in node.values(feed) for node in nodes)


def test_where_the_tree_is_cut_the_value_is_pulled_and_the_tree_mends(network, duplicates):
    nodes, feed = ring(network, 5)
    for number in range(5):
        put(network, nodes[number], feed, b"value %d" % number)
    pushing = [
        peering for node in nodes for peering in node.feed(feed).peers if peering.tree._link.pushes
    ]
    assert len(pushing) == 2 * 4, "a ring of five without one link"
    network.cut(pushing[0].connection.write.__self__.transport)
    network.run(0.5)
    duplicates.clear()
    put(network, nodes[0], feed, b"behind the cut", seconds=TELL_SECONDS + GRAFT_SECONDS + 1)
    assert all(b"behind the cut" in node.values(feed) for node in nodes)
    pulled = sum(counters(node, feed).values_pulled for node in nodes)
    assert pulled == 1
    put(network, nodes[0], feed, b"next", seconds=4 * 1.5 * network.latency + 0.05)
    assert all(b"next" in node.values(feed) for node in nodes)
    assert duplicates == []


def test_a_peer_without_the_extension_is_sent_everything(network, monkeypatch):
    plain = Feed.speaks_broadcast_tree
    monkeypatch.setattr(
        Feed,
        "speaks_broadcast_tree",
        property(lambda feed: plain.fget(feed) and feed.context.identity != older.identity),
    )
    older = None
    nodes, feed = nodes_of(network, 3)
    older = nodes[2]
    for one, two in ((0, 1), (1, 2), (0, 2)):
        network.connect(nodes[one], nodes[two], feed)
    network.run(4)
    assert all(
        BROADCAST_TREE not in peer.remote.extensions
        for peer in nodes[0].feed(feed).peers
        if peer.remote_key == older.key
    )
    for number in range(5):
        put(network, nodes[number % 3], feed, b"value %d" % number)
    assert all(len(node.values(feed)) == 5 for node in nodes)
    assert counters(older, feed).values_in == 2 * 5 - 2
    assert sum(counters(node, feed).ids_told for node in nodes) == 0


@pytest.mark.parametrize("mode", ["light", "range"])
def test_who_does_not_keep_all_does_not_speak_it(network, mode):
    ranges = ((b"a", b"c"),) if mode == "range" else ()
    nodes, feed = nodes_of(network, 2, mode=mode, ranges=ranges)
    network.connect(nodes[1], nodes[0], feed)
    network.run(2)
    (peer,) = nodes[0].feed(feed).peers
    assert BROADCAST_TREE not in peer.remote.extensions
    assert len(nodes[0].feed(feed).tree.tree) == 0


def test_a_node_that_was_away_gets_what_it_lacks_from_one_peer(network, duplicates):
    nodes, feed = nodes_of(network, 5)
    *others, late = nodes
    for number, node in enumerate(others):
        network.connect(node, others[(number + 1) % 4], feed)
    network.run(2)
    values = numbered(600)
    put(network, nodes[0], feed, *values, seconds=6)
    duplicates.clear()
    for node in others:
        network.connect(late, node, feed)
    network.run(10)
    assert late.values(feed) == values
    assert [value for node, value in duplicates if node == late.key] == []
    assert duplicates == [], "and nobody is sent them back"


def member(network):
    """An owner with an honest peer and one that speaks by hand, and the events of the latter."""
    nodes, feed = nodes_of(network, 3)
    network.connect(nodes[1], nodes[0], feed)
    intruder = Intruder(network, nodes[2], nodes[0], feed)
    network.run(2)
    seen = []
    intruder.connection.peering = Instead(intruder.connection.peering, take=seen.append)
    return nodes, feed, intruder, seen


def pulls(seen):
    return [event.pull for event in seen if hasattr(event, "pull")]


def test_who_tells_and_does_not_send_delays_nothing_that_others_push(network):
    nodes, feed, intruder, seen = member(network)
    value = b"of the honest one"
    (value_id,) = [value_ids([value])]
    told = intruder.session.send_extension(ValuesTold(ids=value_id))
    intruder.send(network, told, seconds=0.3)
    assert [pull.ids for pull in pulls(seen)] == [value_id], "its link pushes: it is asked at once"
    put(network, nodes[1], feed, value, seconds=0.3)
    assert nodes[0].values(feed) == [value]


def test_an_id_of_nothing_is_asked_for_once_and_dropped(network):
    nodes, feed, intruder, seen = member(network)
    told = intruder.session.send_extension(ValuesTold(ids=bytes(16)))
    intruder.send(network, told, seconds=3 * PULL_SECONDS)
    assert len(pulls(seen)) == 1
    tree = nodes[0].feed(feed).tree.tree
    assert not tree._wanted
    assert tree.next_deadline is None
    assert intruder.connection.transport.connected


def test_who_is_to_be_told_is_told_and_gets_what_it_asks_for_from_the_log(network):
    nodes, feed, intruder, seen = member(network)
    write = intruder.session.send_extension
    intruder.send(network, write(ValuesPull(link=LinkKind.TELL, ids=b"")))
    values = [b"short", b"long" * 900]
    put(network, nodes[0], feed, *values, seconds=1)
    ids = b"".join(sorted(value_ids([value]) for value in values))
    assert [event.told.ids for event in seen if hasattr(event, "told")] == [ids]
    assert not any(isinstance(event, DataReceived) for event in seen)
    assert len(nodes[1].values(feed)) == 2, "the other peer is pushed them"
    intruder.send(network, write(ValuesPull(link=LinkKind.AS_BEFORE, ids=ids + b"\xff" * 16)))
    sent = [value for event in seen if isinstance(event, DataReceived) for value in event.values]
    assert sorted(sent) == sorted(values)


def test_a_value_that_could_not_be_written_is_not_known(network, monkeypatch):
    nodes, feed, intruder, _ = member(network)
    values, (value_id,) = nodes[0].feed(feed).values, [value_ids([b"lost"])]
    tree = nodes[0].feed(feed).tree.tree
    tree.join((b"one more",))  # with one link alone nothing would be known
    monkeypatch.setattr(values, "accept", lambda *_, path: fail(StoreError("the disk is full")))
    intruder.send(network, intruder.session.send_data([b"lost"]))
    assert value_id not in tree._known
    monkeypatch.undo()
    put(network, nodes[1], feed, b"lost", seconds=1)
    assert nodes[0].values(feed) == [b"lost"]
    assert tree._known[value_id].is_settled


def test_a_value_that_was_there_is_known_when_it_comes_again(network):
    nodes, feed, intruder, seen = member(network)
    put(network, nodes[0], feed, b"there")
    tree, (value_id,) = nodes[0].feed(feed).tree.tree, [value_ids([b"there"])]
    tree._known.clear()
    intruder.send(network, intruder.session.send_data([b"there"]))
    assert tree._known[value_id].is_settled
    intruder.send(network, intruder.session.send_extension(ValuesTold(ids=value_id)), seconds=1)
    assert not any(pull.ids for pull in pulls(seen)), "it is asked of nobody"


def test_values_that_nobody_remembers_are_found_by_their_ids(network):
    nodes, feed = nodes_of(network, 3)
    nodes[0].feed(feed).insert(numbered(50))
    network.connect(nodes[1], nodes[0], feed)
    network.run(3)
    intruder = Intruder(network, nodes[2], nodes[0], feed)
    seen = []
    intruder.connection.peering = Instead(intruder.connection.peering, take=seen.append)
    ids = b"".join(sorted(value_ids([value]) for value in numbered(3)))
    pull = ValuesPull(link=LinkKind.AS_BEFORE, ids=ids)
    intruder.send(network, intruder.session.send_extension(pull))
    sent = [value for event in seen if isinstance(event, DataReceived) for value in event.values]
    assert sorted(sent) == numbered(3)

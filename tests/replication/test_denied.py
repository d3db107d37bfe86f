"""The deny list: it wins over every chain, at once, and after a restart."""

from __future__ import annotations

import pytest
from players import chain_of, fired, refusals
from sim import SimEndpoints, SimNode, pair
from twisted.internet.defer import Deferred

from hyperbloom.addresses import Address
from hyperbloom.replication.feed.membership import KeyDenied, NotTrusted
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import StoreFull
from hyperbloom.store.records import PeerRecord
from hyperbloom.store.tables import denied
from hyperbloom.store.tables.peers import PutPeer


def done(coroutine):
    return fired(Deferred.fromCoroutine(coroutine))


def test_a_denied_peer_is_cut_off_and_writes_no_more(network):
    owner, member, feed = pair(network)
    peer = network.connect(member, owner, feed)
    network.run(2)
    member.feed(feed).insert([b"before"])
    network.run(1)
    assert done(owner.node.deny(member.key, "spam")) is True
    # What is on its way already is not taken either: nothing waits for the connection to end.
    peer.peering.output.send_values([b"on its way"])
    network.run(3)
    assert not owner.feed(feed).peers
    assert owner.values(feed) == [b"before"]
    assert "denied" in refusals(owner)
    network.connect(member, owner, feed)
    network.run(3)
    assert not owner.feed(feed).peers
    assert owner.node.status().denied == 1


def test_a_value_of_a_denied_key_is_not_accepted(network):
    owner, member, feed = pair(network)
    done(owner.node.deny(member.key))
    assert fired(owner.feed(feed).values.accept([b"late"], member.key)).values == []
    assert owner.values(feed) == []


def test_no_chain_through_a_denied_key_holds(network):
    # owner -> n1 -> n2 -> n3
    nodes, feed = chain_of(network, 3)
    owner, one, two, three = nodes
    network.connect(three, owner, feed)
    network.connect(two, owner, feed)
    network.connect(one, owner, feed)
    network.run(2)
    assert len(owner.feed(feed).peers) == 3
    done(owner.node.deny(one.key))
    # The Links that the owner has given n2 and n3 only shorten their way through n1.
    network.run(2)
    assert one.key not in {peer.remote_key for peer in owner.feed(feed).peers}
    for member in (one, two, three):
        network.connect(member, owner, feed)
    network.run(3)
    assert not owner.feed(feed).peers
    assert owner.feed(feed).trust.members() == []
    # Whom the owner invites itself may come back, and does not depend on n1 any more.
    owner.invite(feed, three)
    network.connect(three, owner, feed)
    network.run(3)
    assert {peer.remote_key for peer in owner.feed(feed).peers} == {three.key}
    assert {found.key for found in owner.feed(feed).trust.members()} == {three.key}


def test_who_has_no_other_chain_is_out_as_well(network):
    nodes, feed = chain_of(network, 2, issue_links=False)
    owner, one, two = nodes
    owner.feed(feed).settings = FeedSettings(key=feed, issue_links=False)
    network.connect(two, owner, feed)
    network.run(2)
    assert len(owner.feed(feed).peers) == 1
    done(owner.node.deny(one.key))
    network.connect(two, owner, feed)
    network.run(2)
    assert not owner.feed(feed).peers
    assert owner.feed(feed).trust.members() == []
    (last, *_) = owner.node.status().refusals
    assert "leads through a key that is denied" in last.reason


def test_nothing_is_learnt_from_a_chain_through_it(network):
    nodes, feed = chain_of(network, 2)
    owner, one, two = nodes
    chain = two.feed(feed).trust.chain
    trust = owner.feed(feed).trust
    done(owner.node.deny(one.key))
    trust.learn(chain, two.key)
    assert [link.trustee for link in trust.links()] == [one.key], "the one that it issued itself"
    done(owner.node.allow(one.key))
    assert {member.key for member in trust.members()} == {one.key}
    trust.learn(chain, two.key)
    assert {member.key for member in trust.members()} == {one.key, two.key}


def test_this_nodes_own_chain_through_it_is_none(network):
    nodes, feed = chain_of(network, 2, issue_links=False)
    owner, one, two = nodes
    network.connect(two, owner, feed)
    network.run(1)
    two.node.feeds[feed].trust.membership.chain(now=network.now())
    done(two.node.deny(one.key))
    network.run(2)
    chain = two.feed(feed).trust.chain
    if chain is None:
        with pytest.raises(KeyDenied, match="trust allow"):
            two.feed(feed).insert([b"no"])
        assert "denies" in two.status(feed).problem
        assert not two.feed(feed).peers
    else:
        assert one.key not in chain.keys
    assert done(two.node.allow(one.key)) is True
    assert two.feed(feed).trust.chain is not None


def test_only_a_chain_through_the_denied_key(network):
    nodes, feed = chain_of(network, 2)
    two, one = nodes[2], nodes[1]
    done(two.node.deny(one.key))
    with pytest.raises(KeyDenied, match="ask another member"):
        two.feed(feed).insert([b"no"])
    chain = nodes[1].feed(feed).trust.membership.shortest_chain(two.key, now=network.now())
    with pytest.raises(NotTrusted):
        nodes[2].feed(feed).trust.add_links(chain.to_wire())


def test_the_owner_denied_is_the_end_of_the_feed_here(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(1)
    done(member.node.deny(feed))
    network.run(2)
    assert member.feed(feed).trust.chain is None
    assert not member.feed(feed).peers


def test_no_link_is_issued_to_it(network):
    owner, member, feed = pair(network)
    done(owner.node.deny(member.key))
    with pytest.raises(KeyDenied):
        owner.feed(feed).trust.issue_link(member.key, expires=network.now() + 100)


def test_it_cannot_be_this_node_itself(network):
    owner, _, _ = pair(network)
    with pytest.raises(ValueError, match="own key"):
        done(owner.node.deny(owner.key))
    assert owner.node.denied() == []


def test_a_full_list_denies_nothing_more(network, monkeypatch):
    owner, member, _ = pair(network)
    monkeypatch.setattr(denied, "MAX_DENIED_KEYS", 0)
    with pytest.raises(denied.TooManyDenied, match="as many as there may be"):
        done(owner.node.deny(member.key))
    assert member.key not in owner.context.denied


def test_without_room_on_the_disk_denied_stays_denied(network):
    owner, member, feed = pair(network)
    other = network.add("other", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, other)
    for node in (member, other):
        network.connect(node, owner, feed)
    network.run(2)
    done(owner.node.deny(other.key))
    submit = owner.context.writer.submit
    owner.context.writer.submit = lambda op, answer: answer(StoreFull("no room"))
    with pytest.raises(StoreFull):
        done(owner.node.deny(member.key))
    with pytest.raises(StoreFull):
        done(owner.node.allow(other.key))
    network.run(2)
    owner.context.writer.submit = submit
    for node in (member, other):
        network.connect(node, owner, feed)
    network.run(3)
    # Both are out: one until the node stops, for it could not be written, the other for good.
    assert not owner.feed(feed).peers
    assert [one.key for one in owner.node.denied()] == [other.key]
    assert done(owner.node.deny(member.key)) is True
    assert {one.key for one in owner.node.denied()} == {member.key, other.key}


def test_it_holds_after_a_restart(network):
    owner, member, feed = pair(network)
    done(owner.node.deny(member.key))
    owner.node.stopService()
    network.run(12)
    owner.store.close()
    again = SimNode(network, "owner", identity=owner.identity)
    network.nodes["owner"] = again
    network.connect(member, again, feed)
    network.run(3)
    assert not again.feed(feed).peers
    assert done(again.node.allow(member.key)) is True
    network.connect(member, again, feed)
    network.run(3)
    assert len(again.feed(feed).peers) == 1


def test_what_was_found_of_it_is_not_dialled(network, monkeypatch):
    endpoints = SimEndpoints(network, monkeypatch)
    owner, member, feed = pair(network)
    found = member.node.discovered[feed]
    found.add(Address("owner", 4365))
    network.run(2)
    assert endpoints.dialled == ["owner"]
    other = network.add("other", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, other)
    assert not done(member.node.allow(other.key))
    done(member.node.deny(other.key))
    assert found.add(Address("other", 4365), key=other.key) is False
    network.run(5)
    # An address of which nobody said whose it is, is dialled once; who answers is turned away.
    assert found.add(Address("other", 4365), source="dht")
    network.run(20)
    assert endpoints.dialled.count("other") == 1
    assert {peer.remote_key for peer in member.feed(feed).peers} == {owner.key}


def test_a_denied_peer_that_the_store_knows_is_not_dialled_at_the_start(network, monkeypatch):
    endpoints = SimEndpoints(network, monkeypatch)
    _, member, feed = pair(network)
    record = PeerRecord(address="elsewhere:1", feed_key=feed, key=b"x" * 32, last_seen=1)
    member.context.writer.submit(PutPeer(record), lambda _: None)
    done(member.node.deny(b"x" * 32))
    member.node.stopService()
    network.run(12)
    member.node.startService()
    network.run(5)
    assert "elsewhere" not in endpoints.dialled

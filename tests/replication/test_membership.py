"""Links: who gets them, what fills the room for them, what a chain's end means."""

from __future__ import annotations

import pytest
from players import chain_of, fired, refusals
from sim import pair
from twisted.logger import globalLogPublisher

from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.node import PURGE_SECONDS
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.trust import Chain, issue_link, verify_chain


def test_a_peer_whose_chain_outlives_ours_stays_connected(network):
    # owner -> near (short lived); owner -> a -> b -> far (long lived)
    nodes, feed = chain_of(network, 3)
    near = network.add("near", feeds=(FeedSettings(key=feed),))
    nodes[0].invite(feed, near, seconds=3_600)
    network.connect(nodes[3], near, feed)
    network.run(3)
    assert len(near.feed(feed).peers) == 1, refusals(near)


def test_a_link_is_issued_once_to_a_peer_that_comes_again_and_again(network):
    nodes, feed = chain_of(network, 3)
    owner, last = nodes[0], nodes[3]
    chain = last.feed(feed).trust.chain
    for _ in range(4):
        last.feed(feed).trust.membership._chain = chain
        last.feed(feed).trust.membership._searched_until = float("inf")
        connection = network.connect(last, owner, feed)
        network.run(1)
        network.cut(connection.transport)
        network.run(1)
    links = owner.feed(feed).trust.links()
    issued = [one for one in links if (one.issuer, one.trustee) == (feed, last.key)]
    assert len(issued) == 1


def test_no_link_is_issued_to_who_can_write_already(network):
    owner, member, feed = pair(network)
    for node, trustee in ((owner, feed), (member, feed), (member, member.key)):
        before = node.feed(feed).trust.links()
        with pytest.raises(ValueError, match="can write already"):
            node.feed(feed).trust.issue_link(trustee, expires=network.now() + 100)
        assert node.feed(feed).trust.links() == before


def test_an_honest_member_is_not_banned_for_what_it_sent_as_its_chain_ran_out(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member, seconds=10.2)
    connection = network.connect(member, owner, owner.key)
    network.run(10.25)
    for number in range(20):
        connection.peering.output.send_values([b"%d" % number])
    network.run(2)
    owner.invite(owner.key, member, seconds=100)
    network.connect(member, owner, owner.key)
    network.run(2)
    assert owner.feed(owner.key).peers, refusals(owner)


def test_a_clock_set_right_gives_the_chain_back(network):
    _, member, feed = pair(network)
    wrong = network.now() + 10 * 86_400
    assert member.feed(feed).trust.membership.chain(now=wrong) is None
    assert member.feed(feed).trust.membership.chain(now=network.now()) is not None


def test_an_expired_invitation_is_called_expired_after_a_purge(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member, seconds=10)
    network.run(PURGE_SECONDS + 60, step=60)
    with pytest.raises(NotTrusted, match="expired"):
        member.feed(owner.key).insert([b"late"])


def fill(owner, feed, issuer, count, *, network):
    """Have `owner` learn `count` links that `issuer`, a member, has made up."""
    head = owner.feed(feed).trust.membership.shortest_chain(issuer.key, now=network.now())
    for number in range(count):
        link = issue_link(
            issuer.identity,
            number.to_bytes(32, "big"),
            expires=network.now() + 500,
            nonce=number.to_bytes(32, "big"),
        )
        raw = (*head.to_wire(), link.to_bytes())
        chain = verify_chain(feed, raw, now=network.now())
        owner.feed(feed).trust.learn(chain, issuer.key)


def test_members_cannot_use_up_the_room_for_invitations(network, monkeypatch):
    monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_FEED", 50)
    monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_ISSUER", 20)
    owner = network.add("owner")
    members = [network.add(f"m{i}", feeds=(FeedSettings(key=owner.key),)) for i in range(4)]
    for member in members:
        owner.invite(owner.key, member)
        fill(owner, owner.key, member, 20, network=network)
    fired(owner.feed(owner.key).trust.issue_link(b"n" * 32, expires=network.now() + 100))


def test_a_chain_that_there_is_no_room_for_is_not_reported_as_taken(network, monkeypatch):
    monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_ISSUER", 5)
    owner, member, feed = pair(network)
    for number in range(10):
        link = issue_link(
            owner.identity, bytes([number]) * 32, expires=network.now() + 500, nonce=b"n" * 32
        )
        chain = verify_chain(feed, [link.to_bytes()], now=network.now())
        member.feed(feed).trust.learn(chain, owner.key)
    later = issue_link(owner.identity, member.key, expires=network.now() + 10**7, nonce=b"m" * 32)
    fired(member.feed(feed).trust.add_links([later.to_bytes()]))
    assert member.feed(feed).trust.chain.expires == later.expires


def test_a_chain_of_ours_that_runs_out_during_the_handshake_is_no_crash(network):
    nodes, feed = chain_of(network, 3)
    near = network.add("near", feeds=(FeedSettings(key=feed),))
    nodes[0].invite(feed, near, seconds=3_600)
    connection = network.connect(nodes[3], near, feed)
    network.clock.advance(0.001)
    far = connection.transport.other.protocol
    while far.feed is None:
        network.clock.advance(0.001)
    near.feed(feed).trust.membership.chain = lambda *, now: None
    network.run(2)


def test_values_that_came_while_our_chain_had_run_out_reach_everyone_in_the_end(network):
    quiet = SyncSettings(interval=1e6, answer_wait=0.5)
    owner = network.add("owner", sync=quiet, leeway=1_000.0)
    feed = owner.key
    settings = (FeedSettings(key=feed),)
    hub = network.add("hub", feeds=settings, sync=quiet)
    source = network.add("source", feeds=settings, sync=quiet, leeway=1_000.0)
    owner.invite(feed, hub, seconds=10)
    owner.invite(feed, source)
    network.connect(hub, owner, feed)
    network.connect(source, hub, feed)
    network.run(12)
    source.feed(feed).insert([b"late"])
    network.run(2)
    owner.invite(feed, hub)
    for peer in (owner, source):
        if not any(p.remote_key == peer.key for p in hub.feed(feed).peers):
            network.connect(hub, peer, feed)  # as the dialler would
    network.run(5)
    assert owner.values(feed) == [b"late"]


def test_looking_at_who_is_there_works_out_no_chain_anew(network, monkeypatch):
    """It is done every second, for each of a thousand peers."""
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(1)
    worked_out = []
    expires = Chain.expires.fget
    monkeypatch.setattr(
        Chain, "expires", property(lambda self: worked_out.append(self) or expires(self))
    )
    for _ in range(10):
        owner.node.connections.look()
    assert len(owner.feed(feed).peers) == 1
    assert worked_out == []


@pytest.fixture
def notices():
    found = []

    def take(event):
        if event.get("log_namespace") == "hyperbloom.replication.expiry_notices":
            found.append((event["log_level"].name, event["feed"], event["left"]))

    globalLogPublisher.addObserver(take)
    yield found
    globalLogPublisher.removeObserver(take)


def test_a_link_that_ends_is_said_once_a_day_from_a_week_before(network, notices):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key, alias="words"),))
    owner.invite(owner.key, member, seconds=9.5 * 86_400)
    network.run(2.4 * 86_400, step=600)
    assert notices == []
    network.run(1.2 * 86_400, step=600)
    assert notices == [("warn", "words", "7.0 days"), ("warn", "words", "6.0 days")]
    network.run(5 * 86_400, step=600)
    assert [left for _, _, left in notices[-2:]] == ["47.0 hours", "23.0 hours"]
    assert len(notices) == 7
    # What has ended is said otherwise (`NOT TRUSTED`), and a renewed link is no matter.
    network.run(2 * 86_400, step=600)
    owner.invite(owner.key, member, seconds=30 * 86_400)
    network.run(2 * 86_400, step=600)
    assert len(notices) == 7


def test_a_renewed_link_ends_the_notices_and_the_next_end_begins_them(network, notices):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member, seconds=5 * 86_400)
    network.run(1.5 * 3_600, step=60)
    assert len(notices) == 1
    owner.invite(owner.key, member, seconds=9 * 86_400)
    network.run(1.9 * 86_400, step=600)
    assert len(notices) == 1
    network.run(0.5 * 86_400, step=600)
    assert len(notices) == 2

"""Trust links renewed over a connection: who is sent one, and what is taken of whom."""

from __future__ import annotations

import math

import pytest
from sim import Network, pair
from twisted.internet.defer import Deferred

from hyperbloom.keys import Identity
from hyperbloom.replication.expiry_notices import ExpiryNotices
from hyperbloom.replication.limits import MAX_RENEWERS, RENEWAL_SECONDS
from hyperbloom.replication.settings import FeedSettings, TrustSettings
from hyperbloom.trust import Chain, issue_link
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS, RenewedChain

DAY = 86_400.0
ON = TrustSettings(renew_links=True)


def member_of(network: Network, owner, name: str, *, seconds: float, by=None):
    """A node that `by` (the owner) has invited for so long."""
    member = network.add(name, feeds=(FeedSettings(key=owner.key),))
    (by or owner).invite(owner.key, member, seconds=seconds)
    return member


def connected(network: Network, owner, member, settle: float = 2.0):
    connection = network.connect(member, owner, owner.key)
    network.run(settle)
    return connection


def left(network: Network, node, feed: bytes) -> float | None:
    """Seconds for which a node may write."""
    until = node.feed(feed).trust.writes_until
    return None if until is None else until - network.now()


def links(node, feed: bytes) -> int:
    return len(node.feed(feed).trust.links())


def deny(node, key: bytes) -> None:
    Deferred.fromCoroutine(node.node.deny(key))


def renewing(network: Network, **settings):
    owner = network.add("owner")
    owner.context.trust = TrustSettings(renew_links=True, **settings)
    return owner


def test_without_the_setting_nothing_is_sent(network):
    owner = network.add("owner")
    member = member_of(network, owner, "member", seconds=DAY)
    connected(network, owner, member)
    network.run(60)
    assert left(network, member, owner.key) == pytest.approx(DAY - 62, abs=1)
    assert (links(owner, owner.key), links(member, owner.key)) == (1, 1)


def test_a_link_that_ends_soon_is_renewed_and_the_holder_goes_on_writing(network):
    owner = renewing(network, renew_within=100, renew_for=1_000)
    member = member_of(network, owner, "member", seconds=120)
    connection = connected(network, owner, member)
    network.run(10)
    assert links(owner, owner.key) == 1, "there is time"
    network.run(10)
    assert left(network, member, owner.key) == pytest.approx(1_000, abs=5)
    assert links(owner, owner.key) == 1, "the new link is in the place of the old one"
    assert links(member, owner.key) == 2
    network.run(97)
    assert connection.close_reason.kind == "renewed", "before the old link ends"
    assert not owner.node.status().refusals
    connected(network, owner, member)
    network.run(10)  # the old one is over
    member.feed(owner.key).insert([b"after"])
    network.run(2)
    assert owner.values(owner.key) == [b"after"]
    (peer,) = owner.node.peers()
    assert peer.expires - network.now() == pytest.approx(1_000, abs=150)
    assert links(owner, owner.key) == 1, "renewed once"


def test_one_is_renewed_that_ends_soon_when_it_connects(network):
    owner = renewing(network)
    member = member_of(network, owner, "member", seconds=6 * DAY)
    other = member_of(network, owner, "other", seconds=8 * DAY)
    connected(network, owner, member)
    connected(network, owner, other)
    assert left(network, member, owner.key) == pytest.approx(30 * DAY, abs=10)
    assert left(network, other, owner.key) == pytest.approx(8 * DAY, abs=10)


def test_notices_and_figures_follow(network):
    owner = renewing(network)
    member = member_of(network, owner, "member", seconds=DAY)
    notices = ExpiryNotices(network.now)

    def look():
        notices._said.clear()
        notices.look([member.feed(owner.key)])
        return len(notices._said)

    assert look() == 1
    connected(network, owner, member)
    assert look() == 0
    status = member.status(owner.key)
    assert status.chain_expires - network.now() == pytest.approx(30 * DAY, abs=10)
    (traffic,) = (one for one in member.node.traffic().feeds if one.key == owner.key)
    assert traffic.chain_expires == status.chain_expires


def test_a_chain_of_three_is_renewed_from_the_owner_outwards(network):
    owner = renewing(network)
    middle = member_of(network, owner, "middle", seconds=DAY)
    middle.context.trust = ON
    last = member_of(network, owner, "last", seconds=DAY, by=middle)
    network.connect(last, middle, owner.key)
    network.run(5)
    assert left(network, last, owner.key) < DAY, "no link outlives its issuer's"
    connected(network, owner, middle, settle=5)
    assert left(network, middle, owner.key) == pytest.approx(30 * DAY, abs=10)
    assert left(network, last, owner.key) == pytest.approx(30 * DAY, abs=10)
    chain = last.feed(owner.key).trust.chain
    assert chain.keys == (owner.key, middle.key, last.key)


def test_a_link_that_only_shortened_a_way_is_not_renewed(network):
    """It was issued by the node itself: whoever invited the member decides how long it stays."""
    owner = renewing(network)
    middle = member_of(network, owner, "middle", seconds=90 * DAY)
    last = member_of(network, owner, "last", seconds=DAY, by=middle)
    connected(network, owner, last, settle=5)
    assert last.feed(owner.key).trust.chain.keys == (owner.key, last.key), "shortened"
    network.run(30)
    assert left(network, last, owner.key) < DAY
    assert owner.feed(owner.key).trust.membership.renewable(last.key) is None


def test_a_shortened_way_does_not_hide_that_the_longer_one_was_renewed(network):
    owner = network.add("owner")
    middle = member_of(network, owner, "middle", seconds=90 * DAY)
    middle.context.trust = ON
    last = member_of(network, owner, "last", seconds=DAY, by=middle)
    connected(network, owner, last, settle=5)
    network.connect(last, middle, owner.key)
    network.run(5)
    feed = last.feed(owner.key)
    assert feed.trust.chain.expires - network.now() < DAY, "the shortest is used"
    assert left(network, last, owner.key) == pytest.approx(30 * DAY, abs=20)
    network.clock.advance(DAY)
    network.run(5)
    assert feed.trust.chain.keys == (owner.key, middle.key, last.key)


def test_what_was_issued_by_hand_is_handed_over_whatever_is_set(network):
    owner = network.add("owner")
    member = member_of(network, owner, "member", seconds=DAY)
    connected(network, owner, member)
    owner.feed(owner.key).trust.issue_link(member.key, expires=network.now() + 90 * DAY)
    network.run(1)
    assert left(network, member, owner.key) == pytest.approx(90 * DAY, abs=10)


def test_a_holder_that_was_away_has_it_when_it_comes(network):
    owner = network.add("owner")
    member = member_of(network, owner, "member", seconds=DAY)
    owner.feed(owner.key).trust.issue_link(member.key, expires=network.now() + 90 * DAY)
    network.run(60)
    assert left(network, member, owner.key) < DAY
    connected(network, owner, member)
    assert left(network, member, owner.key) == pytest.approx(90 * DAY, abs=100)
    assert links(owner, owner.key) == 2, "nothing was signed anew"


def test_who_is_denied_or_has_run_out_is_not_renewed(network):
    owner = renewing(network)
    member = member_of(network, owner, "member", seconds=DAY)
    trust = owner.feed(owner.key).trust
    assert trust.membership.renewable(member.key) is not None
    deny(owner, member.key)
    assert trust.membership.renewable(member.key) is None
    Deferred.fromCoroutine(owner.node.allow(member.key))
    connection = network.connect(member, owner, owner.key)
    network.clock.advance(2 * DAY)
    network.run(5)
    assert connection.is_lost
    assert left(network, member, owner.key) is None
    assert links(owner, owner.key) == 1


def test_the_machine_does_not_revive_a_right_that_ended_while_another_chain_holds(network):
    """The owner's link ran out; another member invited the key again. The owner keeps out of it."""
    owner = renewing(network, renew_within=10 * DAY)
    middle = member_of(network, owner, "middle", seconds=90 * DAY)
    member = member_of(network, owner, "member", seconds=DAY)
    network.clock.advance(2 * DAY)
    middle.invite(owner.key, member, seconds=5 * DAY)
    owner.node.feeds[owner.key].settings = FeedSettings(key=owner.key, issue_links=False)
    connected(network, owner, member)
    network.run(30)
    assert left(network, member, owner.key) == pytest.approx(5 * DAY, abs=60)


def test_a_member_renews_no_longer_than_its_own_chain_and_once(network):
    owner = network.add("owner")
    middle = member_of(network, owner, "middle", seconds=6 * DAY)
    middle.context.trust = ON
    last = member_of(network, owner, "last", seconds=DAY, by=middle)
    network.connect(last, middle, owner.key)
    network.run(60)
    own = middle.feed(owner.key).trust.chain.expires
    assert last.feed(owner.key).trust.chain.expires == own
    assert links(middle, owner.key) == 2, "its own, and the last one's in place of the first"


def test_a_peer_without_the_extension_is_sent_nothing(network, monkeypatch):
    """As npm peers and older nodes: they never see it."""
    owner = renewing(network)
    member = member_of(network, owner, "member", seconds=DAY)
    monkeypatch.setattr(type(member.feed(owner.key)), "speaks_renew_links", False)
    connected(network, owner, member)
    network.run(60)
    owner.feed(owner.key).trust.issue_link(member.key, expires=network.now() + 90 * DAY)
    network.run(5)
    assert left(network, member, owner.key) < DAY
    assert owner.node.peers()[0].strikes == 0
    assert RENEW_LINKS not in owner.node.peers()[0].extensions


def test_links_of_the_draft_never_end_and_are_not_renewed(network):
    owner = network.add("owner")
    draft = Identity(bytes(31) + b"d")
    node = network.add(
        "draft", identity=draft, feeds=(FeedSettings(key=draft.public_key, dialect="draft"),)
    )
    assert not node.feed(draft.public_key).speaks_renew_links
    node.feed(draft.public_key).trust.issue_link(owner.key, expires=math.inf)
    assert node.feed(draft.public_key).trust.membership.renewable(owner.key) is None


def test_other_settings_count_at_once(network):
    owner = network.add("owner")
    member = member_of(network, owner, "member", seconds=DAY)
    connected(network, owner, member)
    owner.node.use_settings(
        limits=owner.context.limits, sync=owner.context.sync, advertise=(), pinned=(), trust=ON
    )
    network.run(3)
    assert left(network, member, owner.key) == pytest.approx(30 * DAY, abs=10)


class Hostile:
    """A member that sends what it likes, on a connection of its node's."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.owner, self.member, self.feed = pair(network)
        self.inviter = network.add("inviter", feeds=(FeedSettings(key=self.feed),))
        self.owner.invite(self.feed, self.inviter, seconds=50 * DAY)
        self.inviter.invite(self.feed, self.member, seconds=DAY)
        self.victim = self.member
        self.connection = network.connect(self.inviter, self.member, self.feed)
        network.run(3)
        self.before = self.state()

    def state(self):
        return links(self.victim, self.feed), self.victim.feed(self.feed).trust.writes_until

    def link(self, issuer: Identity, trustee: bytes, seconds: float = 40 * DAY):
        expires = self.network.now() + seconds
        return issue_link(issuer, trustee, expires=expires, nonce=self.network.random.randbytes(32))

    @property
    def own(self) -> Chain:
        return self.inviter.feed(self.feed).trust.chain

    def send(self, *links) -> None:
        raw = tuple(link.to_bytes() for link in links)
        self.connection.peering.output.send_extension(RenewedChain(links=raw))
        self.network.run(RENEWAL_SECONDS + 0.5)

    @property
    def strikes(self) -> int:
        return self.victim.node.connections.strikes


@pytest.fixture
def hostile(network):
    return Hostile(network)


def test_the_honest_form_is_taken(hostile):
    hostile.send(*hostile.own.links, hostile.link(hostile.inviter.identity, hostile.victim.key))
    assert hostile.state()[1] - hostile.network.now() == pytest.approx(40 * DAY, abs=10)
    assert hostile.strikes == 0


def test_a_link_for_another_key_is_refused(hostile):
    other = Identity(bytes(32))
    hostile.send(*hostile.own.links, hostile.link(hostile.inviter.identity, other.public_key))
    assert hostile.state() == hostile.before
    assert hostile.strikes == 1


def test_a_chain_of_another_feed_is_refused(hostile):
    other = Identity(bytes(32))
    hostile.send(
        hostile.link(other, hostile.inviter.key),
        hostile.link(hostile.inviter.identity, hostile.victim.key),
    )
    assert hostile.state() == hostile.before
    assert hostile.strikes == 1


def test_a_link_signed_by_another_is_refused(hostile):
    hostile.send(*hostile.own.links, hostile.link(Identity(bytes(32)), hostile.victim.key))
    assert hostile.state() == hostile.before
    assert hostile.strikes == 1


def test_a_chain_that_is_not_the_peers_own_is_refused(hostile):
    """It holds, but who sends it has not issued its last link."""
    hostile.send(hostile.link(hostile.owner.identity, hostile.victim.key))
    assert hostile.state() == hostile.before
    assert hostile.strikes == 1


def test_expired_older_and_known_chains_change_nothing_and_are_no_fault(hostile):
    inviter, victim = hostile.inviter.identity, hostile.victim.key
    hostile.send(*hostile.own.links, hostile.link(inviter, victim, seconds=-1))
    hostile.send(*hostile.own.links, hostile.link(inviter, victim, seconds=3_600))
    assert hostile.state() == hostile.before
    good = hostile.link(inviter, victim)
    hostile.send(*hostile.own.links, good)
    after = hostile.state()
    assert after[0] == hostile.before[0] + 1
    for _ in range(3):
        hostile.send(*hostile.own.links, good)
    assert hostile.state() == after
    assert hostile.strikes == 0


def test_a_chain_through_a_denied_key_is_not_taken(hostile):
    other = hostile.network.add("other", feeds=(FeedSettings(key=hostile.feed),))
    hostile.owner.invite(hostile.feed, other, seconds=60 * DAY)
    deny(hostile.victim, other.key)
    between = hostile.link(other.identity, hostile.inviter.key)
    first = other.feed(hostile.feed).trust.chain.links
    hostile.send(*first, between, hostile.link(hostile.inviter.identity, hostile.victim.key))
    assert hostile.state() == hostile.before
    deny(hostile.victim, hostile.inviter.key)
    hostile.network.run(1)
    assert hostile.connection.is_lost


def test_a_flood_is_dropped_unread(hostile, monkeypatch):
    verified = []
    membership = hostile.victim.feed(hostile.feed).trust.membership
    verify = membership.verify
    monkeypatch.setattr(
        membership, "verify", lambda raw, now: verified.append(now) or verify(raw, now=now)
    )
    output = hostile.connection.peering.output
    for number in range(500):
        link = hostile.link(hostile.inviter.identity, hostile.victim.key, 10 * DAY + number)
        chain = (*hostile.own.links, link)
        output.send_extension(RenewedChain(links=tuple(one.to_bytes() for one in chain)))
    hostile.network.run(1)
    assert len(verified) == 1
    assert links(hostile.victim, hostile.feed) <= hostile.before[0] + 2


def test_of_so_many_keys_is_remembered_when_they_sent_one(hostile):
    renewals = hostile.victim.feed(hostile.feed).renewals
    assert renewals._may_come((b"honest",))
    for number in range(MAX_RENEWERS + 1):
        assert renewals._may_come((b"member", number.to_bytes(32, "big")))
    assert len(renewals._came) == MAX_RENEWERS
    assert not renewals._may_come((b"member", MAX_RENEWERS.to_bytes(32, "big"))), "just now"
    assert not renewals._may_come((b"honest",)), "keys of one member push out his own ones"


def test_a_clock_that_is_ahead_takes_nothing_that_is_over_by_it(hostile):
    victim, now = hostile.victim, hostile.network.now
    victim.context.now = lambda: now() + 41 * DAY
    link = hostile.link(hostile.inviter.identity, victim.key)
    (peering,) = victim.feed(hostile.feed).peers
    chain = (*hostile.own.links, link)
    victim.feed(hostile.feed).renewals.take(peering, tuple(one.to_bytes() for one in chain))
    assert links(victim, hostile.feed) == hostile.before[0]
    assert hostile.strikes == 0


def test_by_hand_and_by_itself_are_told_apart_by_the_issuer_alone(hostile):
    trust = hostile.owner.feed(hostile.feed).trust
    key, now = Identity(b"k" * 32).public_key, hostile.network.now()
    way = hostile.own.extended(hostile.link(Identity(b"i" * 32), key))
    trust.issue_link(key, expires=now + DAY, shortens=way)
    assert trust.membership.renewable(key) is None
    trust.issue_link(key, expires=now + DAY)
    link = trust.membership.renewable(key)
    assert link is not None
    assert link.is_signed_by(hostile.feed)
    assert hostile.inviter.feed(hostile.feed).trust.membership.renewable(key) is None

"""Feeds of each dialect on the in-memory network: alone, side by side, and set to another one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from players import fired, refusals
from twisted.logger import globalLogPublisher

from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import issue_link
from hyperbloom.wire import DIALECTS

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture
def warnings():
    found = []

    def observe(event):
        if event["log_level"].name == "warn":
            found.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


def owner_of(network, name, dialect):
    """A node whose own feed speaks a dialect."""
    identity = Identity(network.random.randbytes(32))
    settings = FeedSettings(key=identity.public_key, dialect=dialect)
    return network.add(name, identity=identity, feeds=(settings,))


def member_of(network, name, *owners, dialects=None):
    """A node that all these owners have invited."""
    feeds = [replace(owner.feed(owner.key).settings, peers=()) for owner in owners]
    if dialects is not None:
        feeds = [replace(one, dialect=other) for one, other in zip(feeds, dialects, strict=True)]
    return network.add(name, feeds=tuple(feeds))


@each_dialect
@pytest.mark.parametrize("dialler", ["owner", "member"])
def test_two_nodes_replicate_in_every_dialect(network, dialect, dialler):
    owner = owner_of(network, "owner", dialect)
    member = member_of(network, "member", owner)
    owner.invite(owner.key, member)
    owner.feed(owner.key).insert([b"a", b"both"])
    member.feed(owner.key).insert([b"b", b"both"])
    ends = {"owner": (owner, member), "member": (member, owner)}[dialler]
    network.connect(*ends, owner.key)
    network.run(2)
    member.feed(owner.key).insert([b"new"])
    owner.feed(owner.key).insert([b"newer"])
    network.run(2)
    assert (
        owner.values(owner.key)
        == member.values(owner.key)
        == sorted([b"a", b"b", b"both", b"new", b"newer"])
    )


@each_dialect
def test_a_guest_of_a_member_takes_part_in_every_dialect(network, dialect):
    owner = owner_of(network, "owner", dialect)
    member, guest = (member_of(network, name, owner) for name in ("member", "guest"))
    owner.invite(owner.key, member)
    member.invite(owner.key, guest)
    network.connect(guest, owner, owner.key)
    network.run(2)
    guest.feed(owner.key).insert([b"from the guest"])
    network.run(2)
    assert owner.values(owner.key) == [b"from the guest"]
    # Where there is a Link message, the owner has given the guest a chain of one link by now.
    shortened = DIALECTS[dialect].has_link_message
    assert len(guest.feed(owner.key).trust.chain) == (1 if shortened else 2)


def test_one_node_serves_feeds_of_all_dialects_on_one_port(network):
    owners = [owner_of(network, f"owner {name}", name) for name in DIALECTS]
    hub = member_of(network, "hub", *owners)
    for owner in owners:
        owner.invite(owner.key, hub)
        owner.feed(owner.key).insert([b"of " + owner.feed(owner.key).settings.dialect.encode()])
        # The hub listens, and learns from the discovery key alone which dialect is meant.
        network.connect(owner, hub, owner.key)
    network.run(2)
    for owner, dialect in zip(owners, DIALECTS, strict=True):
        assert hub.values(owner.key) == [b"of " + dialect.encode()]
    told = {feed.key: feed for feed in hub.node.status().feeds}
    for owner, dialect in zip(owners, DIALECTS.values(), strict=True):
        status = told[owner.key]
        assert status.dialect == dialect.name
        assert status.data_signed is dialect.data_signed
        assert status.lacks == dialect.lacks
        assert status.as_json()["lacks"] == list(dialect.lacks)


@pytest.mark.parametrize(("dialect", "other"), [*itertools.permutations(DIALECTS, 2)])
@pytest.mark.parametrize("dialler", ["owner", "member"])
def test_nodes_that_do_not_agree_on_a_dialect_agree_on_no_lesser_one(
    network, dialect, other, dialler
):
    owner = owner_of(network, "owner", dialect)
    member = member_of(network, "member", owner, dialects=[other])
    # Each is sure of itself: the member holds a link in the form that it reads.
    form = DIALECTS[other].link_format
    expires = network.now() + 60 if form.has_expiry else math.inf
    link = issue_link(owner.identity, member.key, expires=expires, nonce=bytes(32), format=form)
    member.feed(owner.key).trust.add_links([link.to_bytes()])
    owner.feed(owner.key).insert([b"the owner's"])
    member.feed(owner.key).insert([b"the member's"])
    ends = {"owner": (owner, member), "member": (member, owner)}[dialler]
    network.connect(*ends, owner.key)
    network.run(3)

    for node, speaks, own in ((owner, dialect, "the owner's"), (member, other, "the member's")):
        feed = node.feed(owner.key)
        assert (feed.settings.dialect, feed.dialect) == (speaks, DIALECTS[speaks])
        if "draft" in (dialect, other):
            assert node.node.peers() == []
        if "draft" in (dialect, other) or feed.dialect.data_signed:
            assert node.values(owner.key) == [own.encode()]
    if "draft" in (dialect, other):
        assert refusals(ends[1]) == ["unknown-feed"]
    else:
        assert refusals({dialect: owner, other: member}["2"]) == ["protocol"]


@each_dialect
def test_what_a_dialect_lacks_is_said_at_start(network, warnings, dialect):
    owner_of(network, "owner", dialect)
    said = [text for text in warnings if f"dialect {dialect}" in text]
    assert len(said) == len(DIALECTS[dialect].lacks)
    for lack in DIALECTS[dialect].lacks:
        assert any(lack in text for text in said)


def test_a_draft_owner_comes_back_with_the_same_chain_and_stores_none_of_it(network):
    owner = owner_of(network, "owner", "draft")
    member = member_of(network, "member", owner)
    owner.invite(owner.key, member)
    network.connect(member, owner, owner.key)
    network.run(2)
    chain = owner.feed(owner.key).trust.chain
    assert chain.is_owners
    assert len(chain) == 1
    for node in (owner, member):
        (link,) = node.feed(owner.key).trust.links()
        assert (link.issuer, link.trustee) == (owner.key, member.key)
        assert link.expires == math.inf
    owner.node.stopService()
    network.run(1)
    owner.store.close()
    again = network.add(
        "owner",
        identity=owner.identity,
        feeds=(FeedSettings(key=owner.key, dialect="draft"),),
    )
    assert again.feed(owner.key).trust.chain == chain
    assert again.node.status().feeds[0].chain_expires is None


def test_a_link_of_the_draft_is_issued_to_who_says_that_it_never_expires(network):
    draft, two = owner_of(network, "draft", "draft"), owner_of(network, "two", "2")
    with pytest.raises(ValueError, match="--expires never"):
        draft.feed(draft.key).trust.issue_link(two.key, expires=network.now() + 60)
    assert draft.feed(draft.key).trust.links() == []
    link = fired(draft.feed(draft.key).trust.issue_link(two.key, expires=math.inf))
    assert link.expires == math.inf
    with pytest.raises(ValueError, match="have to expire"):
        two.feed(two.key).trust.issue_link(draft.key, expires=math.inf)


def test_a_feed_set_to_a_dialect_of_other_links_starts_without_them(network, warnings):
    owner = owner_of(network, "owner", "2")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member)
    member.node.stopService()
    network.run(1)
    member.store.close()
    changed = network.add(
        "member",
        identity=member.identity,
        feeds=(FeedSettings(key=owner.key, dialect="draft"),),
    )
    assert changed.feed(owner.key).trust.chain is None
    assert any("dialect draft: 1 links of another dialect" in text for text in warnings)

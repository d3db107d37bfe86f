"""Which feeds a node has, which it owns, and which is meant where none is named."""

from __future__ import annotations

import pytest
from sim import SimNode
from twisted.internet.defer import ensureDeferred
from twisted.logger import formatEvent, globalLogPublisher

from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import Identity
from hyperbloom.replication.feeds import UnknownFeed, settle_feeds
from hyperbloom.replication.ownership import Ownership
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import PutFeed, Store, WriterInline

NODE, PAIR = Identity(b"n" * 32), Identity(b"f" * 32)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store", durable=False)
    yield opened
    opened.close()


def settled(store, *configured, held=()):
    return {one.key: one for one in settle_feeds(store, NODE.public_key, configured, held)}


def held_as(tmp_path, alias):
    keys = FeedKeys(tmp_path / "feed-keys")
    keys.write(PAIR, alias)
    return keys


def test_a_new_node_has_no_feed(store):
    assert settled(store) == {}


def test_a_feed_of_the_nodes_own_key_stays_once_it_is_there(store):
    settled(store, FeedSettings(key=NODE.public_key))
    assert list(settled(store)) == [NODE.public_key]


def test_a_key_that_is_held_makes_a_feed(store, tmp_path):
    found = settled(store, held=held_as(tmp_path, "words"))
    assert found[PAIR.public_key].alias == "words"
    assert settled(store)[PAIR.public_key].alias == "words"


@pytest.mark.parametrize("alias", ["own", "feed", "taken"])
def test_its_name_is_left_out_where_it_cannot_be_had(store, tmp_path, alias):
    other = FeedSettings(key=bytes(32), alias="taken")
    assert settled(store, other, held=held_as(tmp_path, alias))[PAIR.public_key].alias is None


@pytest.fixture
def owner(network, tmp_path) -> SimNode:
    """A node whose feed from before was left, and that keeps keys in a folder."""
    one = network.add("owner")
    one.context.feed_keys.folder = tmp_path / "feed-keys"
    one.node.leave(one.key)
    assert one.node.feeds == {}
    return one


def test_what_is_meant_where_no_feed_is_named(owner):
    with pytest.raises(UnknownFeed, match="no feed yet"):
        owner.node.resolve(None)
    made = []
    ownership: Ownership = owner.node.ownership
    ownership.create(alias="words", dialect="2").addCallback(made.append)
    assert owner.node.resolve(None) is made[0], "the only one"
    ownership.create(alias="others", dialect="2").addCallback(made.append)
    with pytest.raises(UnknownFeed, match="it has words, others"):
        owner.node.resolve(None)
    made[1].insert([b"a"])
    assert owner.node.resolve(None) is made[1], "the only one in use"
    owner.node.join(FeedSettings(key=bytes(32), alias="joined"))
    with pytest.raises(
        UnknownFeed, match="say which feed is meant, with --feed or by default_feed"
    ):
        owner.node.resolve(None)


def test_the_owner_shows_the_feeds_key_there_and_its_own_elsewhere(network, owner):
    owner.node.ownership.create(alias="words", dialect="2")
    feed = owner.node.resolve("words")
    member = network.add("member", feeds=(FeedSettings(key=feed.key),))
    owner.invite(feed.key, member)
    joined = FeedSettings(key=member.key, alias="theirs")
    owner.node.join(joined)
    member.invite(member.key, owner)
    feed.insert([b"a"])
    owner.feed(member.key).insert([b"b"])
    network.connect(member, owner, feed.key)
    network.connect(owner, member, member.key)
    network.run_until(lambda: member.values(feed.key) and member.values(member.key), 30)
    assert {peer.remote_key for peer in member.feed(feed.key).peers} == {feed.key}
    assert {peer.remote_key for peer in member.feed(member.key).peers} == {owner.key}
    assert owner.context.own_keys == {owner.key, feed.key}


@pytest.mark.parametrize("dialect", ["2", "1", "draft"])
def test_the_owners_chain_is_that_of_the_dialect(owner, dialect):
    owner.node.ownership.create(alias="words", dialect=dialect)
    chain = owner.node.resolve("words").trust.chain
    assert chain.is_owners
    assert len(chain) == (dialect == "draft")


def test_a_copy_that_is_asked_for_twice_copies_once(owner):
    owner.node.ownership.create(alias="words", dialect="2")
    owner.node.ownership.create(alias="others", dialect="2")
    source, target = owner.node.resolve("words"), owner.node.resolve("others")
    source.insert([b"b", b"a"])
    for _ in range(2):
        outcome = []
        step = owner.node.ownership.copy_step(source, target, 0)
        ensureDeferred(step).addCallback(outcome.append)
        assert outcome == [(2, None)]
    assert owner.values(target.key) == [b"a", b"b"]
    log = owner.store.log_slice(target.key, 0, limit=9, max_bytes=10**6)
    assert [record.value for record in log.records] == [b"b", b"a"]
    assert {record.origin for record in log.records} == {owner.key}


@pytest.mark.parametrize("mode", ["", "half", "FULL"])
def test_a_mode_that_there_is_not_is_refused_with_those_that_there_are(mode):
    with pytest.raises(ValueError, match="full, range, light"):
        FeedSettings(key=PAIR.public_key, mode=mode)


def test_whose_tombstones_were_followed_before_are_read_as_the_owners(store, request):
    """A feed that was joined at run time has its settings in the store alone."""
    feed = bytes(range(32))
    form = {**FeedSettings(key=feed, alias="old").to_json(), "tombstones": "members"}
    WriterInline(store).submit(PutFeed(feed_key=feed, settings=form), lambda _: None)
    events = []
    globalLogPublisher.addObserver(events.append)
    request.addfinalizer(lambda: globalLogPublisher.removeObserver(events.append))
    assert settled(store)[feed].tombstones == "owner"
    assert dict(store.feed(feed).settings)["tombstones"] == "owner"
    assert settled(store)[feed].tombstones == "owner"
    (told,) = map(formatEvent, events)  # once, and not at the next start
    assert told.startswith("The feed old follows the tombstones of its owner alone now")

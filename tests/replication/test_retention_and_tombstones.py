"""Values that go by themselves: by age, by size, and because a tombstone asks for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from players import chain_of, fired, numbered
from sim import pair
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from hyperbloom.keys import Identity
from hyperbloom.replication.feed import tombstones
from hyperbloom.replication.feed.retention import outdated
from hyperbloom.replication.feed.tombstones import TOMBSTONE, make_tombstone, parse_tombstone
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import ForgetValues, StoreFull
from hyperbloom.store.records import LogRecord

FEED = b"f" * 32
ANNA = Identity(b"a" * 32)


def records(*ages):
    return [
        LogRecord(number + 1, int((1_000 - age) * 1e6), b"o" * 32, b"%03d" % number)
        for number, age in enumerate(ages)
    ]


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({}, 0),
        ({"retain_age": 15.0}, 2),
        ({"retain_age": 5.0}, 4),
        ({"retain_values": 3}, 1),
        ({"retain_values": 4}, 0),
        ({"retain_bytes": 6}, 2),
        ({"retain_bytes": 5}, 3),
        ({"retain_age": 15.0, "retain_values": 1}, 3),
    ],
)
def test_what_is_to_go(settings, gone):
    log = records(30, 20, 10, 10)
    found = outdated(log, FeedSettings(key=FEED, **settings), count=4, size=12, now=1_000)
    assert found == [record.value for record in log[:gone]]


def test_by_age_and_it_does_not_come_back(network):
    owner, member, feed = pair(network)
    member.feed(feed).settings = replace(member.feed(feed).settings, retain_age=300.0)
    fired(owner.feed(feed).insert(numbered(50)))
    network.connect(member, owner, feed)
    network.run(5)
    assert member.feed(feed).values.count == 50
    network.run(280)
    fired(owner.feed(feed).insert([b"young"]))
    network.run(100)
    assert member.values(feed) == [b"young"]
    network.run(60)
    assert member.values(feed) == [b"young"]
    assert member.status(feed).retained_out == 50
    assert owner.feed(feed).values.count == 51


def test_by_count_in_small_steps(network):
    owner, _, feed = pair(network)
    fired(owner.feed(feed).insert(numbered(7_000)))
    owner.feed(feed).settings = replace(owner.feed(feed).settings, retain_values=1_000)
    owner.upkeep(feed).retention.look()
    assert owner.feed(feed).values.count == 7_000 - 2_048
    network.run(2)
    assert owner.values(feed) == numbered(7_000)[6_000:]
    assert owner.store.verify().problems == []


def test_retained_settings_are_settings_like_others():
    settings = FeedSettings(key=FEED, retain_age=5, retain_values=6, retain_bytes=7)
    assert FeedSettings.from_json(settings.to_json()) == settings
    old = {k: v for k, v in settings.to_json().items() if not k.startswith(("retain", "tomb"))}
    assert FeedSettings.from_json(old) == FeedSettings(key=FEED)
    with pytest.raises(ValueError, match="not negative"):
        FeedSettings(key=FEED, retain_age=-1)
    with pytest.raises(ValueError, match="tombstones"):
        FeedSettings(key=FEED, tombstones="all")


# Tombstones


def test_a_tombstone_is_a_line_of_text_that_says_who_signed_it():
    made = make_tombstone(ANNA, FEED, b"bad \xff")
    assert made.startswith(b"hyperbloom-forget:1:" + ANNA.public_key.hex().encode())
    assert made.isascii()
    assert b"\n" not in made
    found = parse_tombstone(FEED, made)
    assert (found.signer, found.value) == (ANNA.public_key, b"bad \xff")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: one[:-2] + b"00",
        lambda one: one[:-1],
        lambda one: one + b":",
        lambda one: one.replace(b":1:", b":2:"),
        lambda one: TOMBSTONE,
        lambda one: one.replace(ANNA.public_key.hex().encode(), b"0" * 64),
        lambda one: one[: len(TOMBSTONE) + 65 + 129],
    ],
)
def test_a_spoilt_tombstone_is_a_value_like_others(spoil):
    assert parse_tombstone(FEED, spoil(make_tombstone(ANNA, FEED, b"bad"))) is None


def test_a_tombstone_of_another_feed_does_not_count():
    assert parse_tombstone(b"g" * 32, make_tombstone(ANNA, FEED, b"bad")) is None


def follow(node, feed, whom):
    node.feed(feed).settings = replace(node.feed(feed).settings, tombstones=whom)


def put(network, node, feed, *values):
    fired(node.feed(feed).insert(list(values)))
    network.run(2)


def test_the_owners_tombstone_is_followed_where_it_is_wanted(network):
    nodes, feed = chain_of(network, 2)
    owner, follower, other = nodes
    follow(follower, feed, "owner")
    network.connect(follower, owner, feed)
    network.connect(other, owner, feed)
    put(network, owner, feed, b"bad", b"good")
    put(network, owner, feed, make_tombstone(owner.identity, feed, b"bad"))
    put(network, owner, feed, make_tombstone(owner.identity, feed, b"not here yet"))
    put(network, other, feed, b"not here yet")
    network.run(30)
    kept = [v for v in follower.values(feed) if not v.startswith(TOMBSTONE)]
    assert kept == [b"good"]
    assert b"bad" in other.values(feed)
    assert b"bad" in owner.values(feed)


@pytest.mark.parametrize("whom", ["off", "owner"])
def test_members_are_not_followed(network, whom):
    """Not even for what they brought: they may have copied it."""
    nodes, feed = chain_of(network, 2)
    owner, follower, other = nodes
    for node in nodes:
        follow(node, feed, whom)
    network.connect(other, owner, feed)
    network.connect(follower, owner, feed)
    put(network, owner, feed, b"the owner's")
    put(network, other, feed, b"its own", b"its second")
    put(network, other, feed, make_tombstone(other.identity, feed, b"its own"))
    put(network, other, feed, make_tombstone(other.identity, feed, b"the owner's"))
    put(network, follower, feed, make_tombstone(follower.identity, feed, b"its second"))
    put(network, follower, feed, make_tombstone(ANNA, feed, b"its second"), b"not here")
    for node in nodes:
        kept = [v for v in node.values(feed) if not v.startswith(TOMBSTONE)]
        assert kept == [b"its own", b"its second", b"not here", b"the owner's"]


def test_a_forged_tombstone_of_the_owner_is_none(network):
    owner, member, feed = pair(network)
    follow(member, feed, "owner")
    network.connect(member, owner, feed)
    put(network, owner, feed, b"good")
    true = make_tombstone(owner.identity, feed, b"another")
    put(network, member, feed, true[: -2 * len(b"another")] + b"good".hex().encode())
    assert b"good" in member.values(feed)


def test_an_owner_that_is_denied_is_not_followed(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    put(network, owner, feed, b"bad", make_tombstone(owner.identity, feed, b"bad"))
    fired(Deferred.fromCoroutine(member.node.deny(owner.key)))
    follow(member, feed, "owner")
    network.run(70)
    assert b"bad" in member.values(feed)


def test_what_was_brought_back_is_not_forgotten_again_by_the_same_tombstone(network):
    owner, member, feed = pair(network)
    follow(member, feed, "owner")
    network.connect(member, owner, feed)
    put(network, owner, feed, b"bad", make_tombstone(owner.identity, feed, b"bad"))
    assert b"bad" not in member.values(feed)
    fired(Deferred.fromCoroutine(member.feed(feed).forgetting.restore([b"bad"])))
    member.node.stopService()
    network.run(12)
    member.node.startService()
    follow(member, feed, "owner")
    member.upkeep(feed).tombstones.look()
    network.run(70)
    assert b"bad" in member.values(feed)


def test_what_a_node_puts_itself_behind_a_tombstone_stays_there(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    put(network, owner, feed, b"before", b"of the owner")
    put(network, member, feed, b"mine before")
    values = (b"before", b"mine before", b"mine after", b"of the owner", b"after")
    put(network, owner, feed, *[make_tombstone(owner.identity, feed, value) for value in values])
    put(network, owner, feed, b"after")
    put(network, member, feed, b"mine after")
    # It reads late what came long before.
    follow(member, feed, "owner")
    network.run(70)
    assert [v for v in member.values(feed) if not v.startswith(TOMBSTONE)] == [b"mine after"]


def test_tombstones_that_are_there_are_read_when_it_is_switched_on(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    put(network, owner, feed, b"bad", make_tombstone(owner.identity, feed, b"bad"))
    assert b"bad" in member.values(feed)
    follow(member, feed, "owner")
    network.run(70)
    assert b"bad" not in member.values(feed)


def test_a_tombstone_that_is_the_first_value_is_followed_too(network):
    owner, member, feed = pair(network)
    follow(member, feed, "owner")
    network.connect(member, owner, feed)
    put(network, owner, feed, make_tombstone(owner.identity, feed, b"bad"))
    put(network, owner, feed, b"bad", b"good")
    assert b"bad" not in member.values(feed)
    assert b"good" in member.values(feed)


def test_a_feed_that_was_left_is_read_from_its_beginning_when_it_is_joined_again(network):
    owner, member, feed = pair(network)
    settings = replace(member.feed(feed).settings, tombstones="owner")
    fired(member.node.join(settings))
    network.connect(member, owner, feed)
    put(network, owner, feed, *numbered(40))
    put(network, owner, feed, b"bad", make_tombstone(owner.identity, feed, b"bad"))
    assert b"bad" not in member.values(feed)
    fired(member.node.leave(feed))
    network.run(5)
    fired(member.node.join(settings))
    owner.invite(feed, member)
    network.connect(member, owner, feed)
    network.run(70)
    assert b"bad" not in member.values(feed)
    assert member.feed(feed).values.count == 41


def test_many_tombstones_are_followed_in_few_transactions(network, monkeypatch):
    """A commit each would be the disk's time, and a member's are not worth a signature each."""
    owner, member, feed = pair(network)
    values = numbered(300)
    follow(member, feed, "owner")
    network.connect(member, owner, feed)
    put(network, owner, feed, *values)
    submitted, verified = [], []
    submit = member.context.writer.submit
    member.context.writer.submit = lambda op, done, **more: (
        submitted.append(op),
        submit(op, done, **more),
    )
    parse = tombstones.parse_tombstone
    monkeypatch.setattr(
        tombstones, "parse_tombstone", lambda *of: (verified.append(of), parse(*of))[1]
    )
    made = [make_tombstone(owner.identity, feed, value) for value in values]
    others = [make_tombstone(Identity(bytes([i]) * 32), feed, b"v") for i in range(1, 100)]
    put(network, owner, feed, *made, *others)
    network.run(5)
    assert member.values(feed) == sorted(made + others)
    assert sum(isinstance(op, ForgetValues) for op in submitted) < 10
    assert len(verified) == 300


@pytest.mark.parametrize("kind", ["retention", "tombstones"])
def test_a_full_disk_is_said_in_one_line_and_tried_again(network, kind):
    owner, _, feed = pair(network)
    if kind == "retention":
        owner.feed(feed).settings = replace(owner.feed(feed).settings, retain_values=1)
    else:
        follow(owner, feed, "owner")
    submit = owner.context.writer.submit
    full = StoreFull("no room on the disk")

    def refuse(op, done):
        done(full) if isinstance(op, ForgetValues) else submit(op, done)

    owner.context.writer.submit = refuse
    logged = []
    globalLogPublisher.addObserver(logged.append)
    try:
        put(network, owner, feed, b"bad", b"good", make_tombstone(owner.identity, feed, b"bad"))
        network.run(70)
    finally:
        globalLogPublisher.removeObserver(logged.append)
        owner.context.writer.submit = submit
    about = [event for event in logged if "no room" in formatEvent(event)]
    assert about
    assert all("log_failure" not in event for event in logged)
    assert b"bad" in owner.values(feed)
    network.run(70)
    assert b"bad" not in owner.values(feed)


def test_where_reading_stopped_is_remembered_piece_by_piece(network, monkeypatch):
    monkeypatch.setattr("hyperbloom.replication.feed.tombstones.TOMBSTONE_SLICE", 10)
    owner, member, feed = pair(network)
    put(network, owner, feed, b"bad", make_tombstone(owner.identity, feed, b"bad"), *numbered(50))
    network.connect(member, owner, feed)
    network.run(10)
    member.thread_seconds = 1.0
    follow(member, feed, "owner")
    member.upkeep(feed).tombstones.look()
    network.run(4.5)
    assert b"bad" not in member.values(feed)
    member.thread_seconds = None
    fired(Deferred.fromCoroutine(member.feed(feed).forgetting.restore([b"bad"])))
    member.node.stopService()
    network.run(12)
    member.node.startService()
    follow(member, feed, "owner")
    member.upkeep(feed).tombstones.look()
    network.run(70)
    assert b"bad" in member.values(feed)

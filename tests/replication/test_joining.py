"""Joining a feed, changing its settings and leaving it, while other things go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from players import SlowWriter
from sim import pair
from twisted.internet.defer import Deferred

from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.settings import FeedSettings


class SlowDialer:
    """A dialer whose connection takes a second to close."""

    def __init__(self, clock, made):
        self.clock, self.running = clock, False
        self.address, self.last_problem = "slow", None
        made.append(self)

    def start(self):
        self.running = True

    def stop(self):
        done = Deferred()

        def stopped():
            self.running = False
            done.callback(None)

        self.clock.callLater(1.0, stopped)
        return done


@pytest.fixture
def dialers(monkeypatch, network):
    made = []
    monkeypatch.setattr(
        "hyperbloom.replication.net.dials.Dialer",
        lambda connections, feed, address: SlowDialer(network.clock, made),
    )
    return made


def test_settings_that_change_twice_leave_one_dialer(network, dialers):
    _, member, feed = pair(network)
    settings = FeedSettings(key=feed, peers=("127.0.0.1:1",))
    member.node.join(settings)
    network.run(2)
    member.node.join(replace(settings, alias="first"))
    member.node.join(replace(settings, alias="second"))
    network.run(5)
    assert sum(dialer.running for dialer in dialers) == 1
    assert member.feed(feed).settings.alias == "second"
    member.node.stopService()
    network.run(5)
    assert sum(dialer.running for dialer in dialers) == 0


def test_a_feed_left_while_its_settings_change_is_gone(network, dialers):
    _, member, feed = pair(network)
    settings = FeedSettings(key=feed, peers=("127.0.0.1:1",))
    member.node.join(settings)
    network.run(2)
    member.node.join(replace(settings, alias="first"))
    member.node.leave(feed)
    network.run(5)
    assert feed not in member.node.feeds
    assert sum(dialer.running for dialer in dialers) == 0
    member.node.status()


def test_a_node_that_stops_while_settings_change_does_not_dial(network, dialers):
    _, member, feed = pair(network)
    settings = FeedSettings(key=feed, peers=("127.0.0.1:1",))
    member.node.join(settings)
    network.run(2)
    member.node.join(replace(settings, alias="first"))
    network.run(0.5)
    member.node.stopService()
    network.run(5)
    assert sum(dialer.running for dialer in dialers) == 0


def test_a_peer_that_comes_while_a_feed_is_left_does_not_stay(network, dialers):
    owner, member, feed = pair(network)
    settings = FeedSettings(key=feed, peers=("127.0.0.1:1",))
    member.node.join(settings)
    network.run(2)
    member.node.leave(feed)
    connection = network.connect(owner, member, feed)
    network.run(10)
    assert not owner.feed(feed).peers
    assert connection.close_reason is not None or connection.is_lost


def test_subscribers_are_woken_when_a_left_feed_is_gone_from_the_store(network):
    _, member, feed = pair(network)
    object.__setattr__(member.context, "writer", SlowWriter(member.context.writer, network.clock))
    seen = []
    member.feed(feed).values.subscribe(lambda *_: seen.append(member.store.feed(feed)))
    member.node.leave(feed)
    network.run(3)
    assert seen[-1:] == [None]


def test_peers_that_are_no_addresses_are_refused_before_they_are_stored(network):
    with pytest.raises(ValueError, match="HOST:PORT"):
        FeedSettings(key=b"k" * 32, peers=("nonsense",))


def test_the_feed_that_is_meant_when_none_is_named(network):
    owner, member, feed = pair(network)
    assert member.node.resolve(None).key == feed, "the only one a member has joined"
    assert owner.node.resolve(None).key == feed, "its own"
    owner.node.join(FeedSettings(key=member.key))
    network.run(1)
    with pytest.raises(UnknownFeed, match="it has own"):
        owner.node.resolve(None)  # its own is in use: it has invited somebody
    member.feed(member.key).insert([b"mine"])
    with pytest.raises(UnknownFeed, match=f"say which .*: it has {feed.hex()[:12]}, own"):
        member.node.resolve(None)
    assert member.node.resolve("own").key == member.key


def test_the_first_digits_of_a_key_name_a_feed_as_long_as_they_mean_one(network):
    _, member, feed = pair(network)
    assert member.node.resolve(feed.hex()[:8].upper()).key == feed
    with pytest.raises(UnknownFeed, match="there is no feed"):
        member.node.resolve(feed.hex()[:7])
    twin = feed[:5] + bytes(27)
    member.node.join(FeedSettings(key=twin))
    network.run(1)
    beginning = feed.hex()[:10]
    with pytest.raises(UnknownFeed, match=f"2 feeds .*{feed.hex()[:16]}…, {twin.hex()[:16]}"):
        member.node.resolve(beginning)
    member.node.join(FeedSettings(key=twin, alias=beginning))
    network.run(1)
    assert member.node.resolve(beginning).key == twin, "an alias comes first"

"""Two nodes that may find what differs by symbols, and a peer that asks for symbols by hand."""

from __future__ import annotations

from players import Instead, Intruder, fired, numbered
from sim import pair
from twisted.internet.defer import Deferred

from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.wire import Range, SketchRequest, ValuesWanted

WHOLE = (Range(start=b""),)
#: Two symbols of some set.
SYMBOLS = {"values": 3, "digest": b"d" * 32, "packed": bytes(50)}


def status(node):
    (peer,) = node.node.peers()
    return peer


def way(node):
    one = status(node).last_round
    return None if one is None else one.way


def moved(node, feed):
    return node.feed(feed).peers.moved()


def different(network, shared, here, there, **more):
    """An owner and a member with values that one of both lacks, not connected yet."""
    owner, member, feed = pair(network, **more)
    for node, own in ((owner, numbered(here, b"here ")), (member, numbered(there, b"there "))):
        node.feed(feed).insert([*numbered(shared), *own])
    return owner, member, feed


def keeping_a_range(network, ranges=((b"v", b"w"),), **more):
    """An owner and a member that keeps these ranges alone, not connected yet."""
    owner = network.add("owner", **more)
    kept = FeedSettings(key=owner.key, mode="range", ranges=ranges)
    member = network.add("member", feeds=(kept,))
    owner.invite(owner.key, member)
    return owner, member, owner.key


def are_same(owner, member, feed):
    return owner.values(feed) == member.values(feed)


def silently(node, feed, values):
    """Values that come to the store past everybody, so that no broadcast tells of them."""
    subscribers, node.feed(feed).values._subscribers = node.feed(feed).values._subscribers, []
    node.feed(feed).insert(values)
    node.feed(feed).values._subscribers = subscribers


def forget(node, feed, values, **how):
    fired(Deferred.fromCoroutine(node.feed(feed).forgetting.forget(values, **how)))


SELDOM = SyncSettings(interval=1_000.0, jitter=0.0, answer_wait=500.0)


class WaitingTry:
    """A try of a node, by whom `asked_at` seconds ago; `told` is what it was told."""

    def __init__(self, *path, asked_at=None):
        self.path, self.asked_at, self.told = path, asked_at, []

    def go_on(self):
        self.told.append("go on")

    def give_way(self):
        self.told.append("give way")


class Asker(Intruder):
    """Asks for symbols by hand; `seen` are the Sketches that come."""

    def __init__(self, network, member, owner, feed):
        super().__init__(network, member, owner, feed)
        self.network, self.member, self.feed = network, member, feed
        self.seen = []
        sync = self.connection.peering.sync
        sync.sketches = Instead(sync.sketches, take_sketch=self.seen.append)

    def ask(self, *, number=7, salt=b"", ranges=WHOLE, seconds=0.5, **part):
        self.tell(SketchRequest(number=number, salt=salt, ranges=ranges, **part), seconds)

    def want(self, ids):
        self.tell(ValuesWanted(number=7, ids=ids))

    def tell(self, message, seconds=0.5):
        self.send(self.network, self.session.send_extension(message), seconds=seconds)


def asked_by_hand(network, **owner):
    """An owner of 300 values, and a member with the same that asks by hand."""
    owner, member, feed = different(network, 300, 0, 0, owner={"sync": SELDOM} | owner)
    return owner, Asker(network, member, owner, feed)


def waiting_for_symbols(network, deaf):
    """A member whose question is not answered, and its side of the tries."""
    owner, member, feed = different(network, 3_000, 9, 9, owner={"sync": SELDOM})
    deaf(owner)
    connection = network.connect(member, owner, feed)
    network.run(0.5)
    return member, connection.peering.sync.sketches

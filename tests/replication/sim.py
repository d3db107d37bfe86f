"""A network in memory: real nodes, stores and protocols; a fake clock, latency, cuts, partitions.

The transports are those of `sim_transport`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

from sim_transport import Address, SimTransport
from twisted.internet.defer import Deferred, execute, fail, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock

from hyperbloom.keys import Identity
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feeds import settle_feeds
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.net.dialer import AcceptFactory, DialFactory
from hyperbloom.replication.node import Node
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.store import Store, WriterInline
from hyperbloom.trust import issue_link

#: Far from zero, so that a clock used in place of another is noticed.
EPOCH = 1_900_000_000.0


class Network:
    """Nodes by number, connections between them, and the clock they share."""

    def __init__(self, folder: Path, *, seed: int = 0, latency: float = 0.02) -> None:
        self.folder = folder
        self.clock = Clock()
        self.random = random.Random(seed)
        self.latency = latency
        self.nodes: dict[str, SimNode] = {}
        self.transports: set[SimTransport] = set()
        self.bytes_moved = 0
        self.group: dict[str, int] = {}
        self.ports = 40_000

    def now(self) -> float:
        return EPOCH + self.clock.seconds()

    def add(self, name: str, **more) -> SimNode:
        node = SimNode(self, name, **more)
        self.nodes[name] = node
        self.group[name] = 0
        return node

    def restart(self, name: str, **more) -> SimNode:
        """The node goes without a word, and another one is made of its key and its store."""
        gone = self.nodes[name]
        for transport in [t for t in self.transports if t.connected]:
            if name in (transport.local.host, transport.remote.host):
                self.cut(transport)
        gone.node.stopService()
        gone.store.close()
        self.nodes[name] = SimNode(self, name, identity=gone.identity, **more)
        return self.nodes[name]

    def connect(self, dialler: SimNode, listener: SimNode, feed_key: bytes, factory=None):
        """A connection as the dialler of `dialler` would make it; its PeerProtocol, or None."""
        if self.group[dialler.name] != self.group[listener.name]:
            raise ConnectionLost("partitioned")
        self.ports += 1
        here, there = Address(dialler.name, self.ports), Address(listener.name, 4365)
        latency = self.latency * (0.5 + self.random.random())
        near = SimTransport(self, here, there, latency)
        far = SimTransport(self, there, here, latency)
        near.other, far.other = far, near
        dial = factory or DialFactory(dialler.node.connections, dialler.feed(feed_key))
        near.protocol = dial.buildProtocol(there)
        far.protocol = AcceptFactory(listener.node.connections).buildProtocol(here)
        self.transports = {t for t in self.transports if t.connected} | {near, far}
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        return near.protocol

    def cut(self, transport: SimTransport) -> None:
        """The connection is lost, without a word."""
        transport._lost(ConnectionLost())
        transport.other._lost(ConnectionLost())

    def partition(self, groups: dict[str, int]) -> None:
        """Nodes of different groups lose each other."""
        self.group.update(groups)
        for transport in list(self.transports):
            if transport.connected and (
                self.group[transport.local.host] != self.group[transport.remote.host]
            ):
                self.cut(transport)

    def run(self, seconds: float, step: float = 0.05) -> None:
        self.clock.pump([step] * max(1, round(seconds / step)))

    def run_until(self, reached, seconds: float, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            if reached():
                return
            self.clock.advance(step)
        assert reached(), f"not reached within {seconds} simulated seconds"

    def close(self) -> None:
        for node in self.nodes.values():
            node.node.stopService()
        self.clock.advance(10)
        for node in self.nodes.values():
            node.store.close()


class SimNode:
    """A node without sockets and threads; its store is real."""

    def __init__(
        self,
        network: Network,
        name: str,
        *,
        feeds: tuple[FeedSettings, ...] = (),
        limits: Limits | None = None,
        sync: SyncSettings | None = None,
        identity: Identity | None = None,
        leeway: float = 0.0,
        thread_seconds: float | None = None,
    ) -> None:
        self.network = network
        self.name = name
        self.identity = identity or Identity(network.random.randbytes(32))
        self.store = Store.open(network.folder / name, durable=False)
        self.thread_seconds = thread_seconds
        #: What the processor clock of every thread shows; a test moves it.
        self.work_seconds = 0.0
        if all(feed.key != self.key for feed in feeds):
            feeds = (*feeds, FeedSettings(key=self.key))
        configured = settle_feeds(self.store, self.key, feeds)
        self.context = FeedContext(
            identity=self.identity,
            store=self.store,
            writer=WriterInline(self.store),
            limits=limits or Limits(),
            sync=sync or SyncSettings(interval=5.0, answer_wait=0.5),
            clock=network.clock,
            now=network.now,
            random_bytes=network.random.randbytes,
            in_thread=self._in_thread,
            work_seconds=lambda: self.work_seconds,
            peer_id=network.random.randbytes(32),
            leeway=leeway,
        )
        self.node = Node(self.context, feeds=configured)
        self.node.startService()

    def _in_thread(self, call, /):
        if self.thread_seconds is None:
            return execute(call)
        result = Deferred()
        later = self.network.clock.callLater
        later(self.thread_seconds, lambda: execute(call).chainDeferred(result))
        return result

    @property
    def key(self) -> bytes:
        return self.identity.public_key

    def feed(self, key: bytes):
        return self.node.feeds[key]

    def status(self, key: bytes):
        (status,) = (one for one in self.node.status().feeds if one.key == key)
        return status

    def upkeep(self, key: bytes):
        return self.node._feeds.upkeep(self.feed(key))

    def values(self, key: bytes) -> list[bytes]:
        values, start = [], b""
        while start is not None:
            piece = self.store.range_slice(key, start, limit=1000, max_bytes=10**9)
            values += piece.values
            start = piece.next_start
        return values

    def invite(self, feed_key: bytes, member: SimNode, *, seconds: float = 86_400.0) -> None:
        """Issue a link for `member` and hand over the whole chain; it expires if links do."""
        feed = self.feed(feed_key)
        ends = feed.dialect.link_format.has_expiry
        feed.trust.issue_link(
            member.key, expires=self.network.now() + seconds if ends else math.inf
        )
        chain = feed.trust.membership.shortest_chain(member.key, now=self.network.now())
        member.feed(feed_key).trust.add_links(chain.to_wire())


def pair(network: Network, *, owner=None, member=None):
    """An owner and an invited member, not connected yet; the feed's key."""
    one = network.add("owner", **(owner or {}))
    settings = FeedSettings(key=one.key)
    two = network.add("member", **({"feeds": (settings,)} | (member or {})))
    one.invite(one.key, two)
    return one, two, one.key


class SimEndpoints:
    """Stands for Twisted's HostnameEndpoint in the dialer: host names are the nodes' names.

    `dialled` are the hosts in order. Those in `hanging` do not answer until `give_up`; those in
    `gone`, and hosts that are no node, refuse.
    """

    def __init__(self, network: Network, monkeypatch) -> None:
        self.network = network
        self.dialled: list[str] = []
        self.hanging: set[str] = set()
        self.gone: set[str] = set()
        self.most = 0
        self._waiting: dict[str, Deferred] = {}
        name = "hyperbloom.connections.dialing.HostnameEndpoint"
        monkeypatch.setattr(name, lambda clock, host, port, **_: SimEndpoint(self, host))

    def give_up(self, host: str) -> None:
        self.hanging.discard(host)
        self._waiting.pop(host).errback(ConnectionLost("timed out"))

    def connect(self, host: str, factory) -> Deferred:
        self.dialled.append(host)
        if host in self.hanging:
            self._waiting[host] = Deferred(lambda _: self._waiting.pop(host))
            self.most = max(self.most, len(self._waiting))
            return self._waiting[host]
        if host in self.gone or host not in self.network.nodes:
            return fail(ConnectionLost("nobody is there"))
        nodes = self.network.nodes.values()
        (dialler,) = (n for n in nodes if n.node.connections is factory._connections)
        listener = self.network.nodes[host]
        return succeed(self.network.connect(dialler, listener, factory._feed.key, factory))


@dataclass(frozen=True)
class SimEndpoint:
    endpoints: SimEndpoints
    host: str

    def connect(self, factory) -> Deferred:
        return self.endpoints.connect(self.host, factory)


__all__ = [
    "EPOCH",
    "Network",
    "SimEndpoints",
    "SimNode",
    "SimTransport",
    "issue_link",
    "pair",
]

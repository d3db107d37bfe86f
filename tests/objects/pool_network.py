"""Pools in memory: real stores, pools and protocols; a fake clock, latency, cuts."""

from __future__ import annotations

import random
from pathlib import Path

from sim_transport import Address, SimTransport
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import Types
from hyperbloom.objects.peers.context import PoolContext, let_in
from hyperbloom.objects.peers.network import PoolNetwork
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.objects.service import AcceptFactory, DialFactory
from hyperbloom.objects.settings import ObjectsSettings
from hyperbloom.store import Store, WriterInline

#: Far from zero, so that a clock used in place of another is noticed.
EPOCH = 1_900_000_000.0


def fired(deferred):
    """The result of a Deferred that has one; its exception is raised."""
    results = []
    deferred.addBoth(results.append)
    assert results, "the Deferred has not fired"
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    return results[0]


class PoolNet:
    """Nodes by name, connections between them, and the clock they share."""

    def __init__(self, folder: Path, *, seed: int = 0, latency: float = 0.02) -> None:
        self.folder = folder
        self.clock = Clock()
        self.random = random.Random(seed)
        self.latency = latency
        self.nodes: dict[str, PoolNode] = {}
        self.bytes_moved = 0
        self.ports = 40_000

    def add(self, name: str, **more) -> PoolNode:
        self.nodes[name] = node = PoolNode(self, name, **more)
        return node

    def connect(self, dialler: PoolNode, listener: PoolNode):
        """A connection; the PoolProtocol of the dialler."""
        near, far = self.transports(dialler.name, listener.name)
        near.protocol = DialFactory(dialler.network).buildProtocol(near.remote)
        far.protocol = AcceptFactory(listener.network).buildProtocol(far.remote)
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        return near.protocol

    def transports(self, here: str, there: str):
        self.ports += 1
        one, other = Address(here, self.ports), Address(there, 6000)
        latency = self.latency * (0.5 + self.random.random())
        near = SimTransport(self, one, other, latency)
        far = SimTransport(self, other, one, latency)
        near.other, far.other = far, near
        return near, far

    def cut(self, peer) -> None:
        """The connection is lost, without a word."""
        transport = peer.transport
        transport._lost(ConnectionLost())
        transport.other._lost(ConnectionLost())

    def run(self, seconds: float, step: float = 0.02) -> None:
        self.clock.pump([step] * max(1, round(seconds / step)))

    def pools(self):
        return [node.contents() for node in self.nodes.values()]

    def messages(self) -> int:
        """Messages about objects that were received until now."""
        return sum(node.messages_in() for node in self.nodes.values())

    def close(self) -> None:
        for node in self.nodes.values():
            node.network.close_all(CloseReason("stopped", "the test is over"))
        self.clock.advance(20)
        for node in self.nodes.values():
            assert node.store.verify().problems == []
            node.store.close()


class PoolNode:
    """A node of a pool without sockets and threads; its store is real."""

    def __init__(
        self,
        net: PoolNet,
        name: str,
        *,
        classes=(),
        skew: float = 0.0,
        passphrase: str | None = None,
        decide=let_in,
        thread_seconds: float | None = None,
        rule: HashRule = HashRule.TEXT,
        declared=(),
        salts=(),
        **settings,
    ) -> None:
        self.net = net
        self.name = name
        self.skew = skew
        self.settings = ObjectsSettings(enabled=True, **settings)
        self.passphrase = passphrase
        self.decide = decide
        self.classes = classes
        self.thread_seconds = thread_seconds
        self.rule = rule
        self.declared = declared
        self.salts = list(salts)
        self._gone_messages = 0
        self.open()

    def open(self) -> None:
        """Open the store and make what is in memory anew."""
        net = self.net
        self.store = Store.open(net.folder / self.name, durable=False)
        self.pool = ObjectPool(
            self.store,
            WriterInline(self.store),
            types=Types(self.classes, rule=self.rule, configured=self.declared),
            now=self.now,
            clock=net.clock,
            most=self.settings.objects,
        )
        self.network = PoolNetwork(
            PoolContext(
                pool=self.pool,
                settings=self.settings,
                clock=net.clock,
                now=self.now,
                random_bytes=self.random_bytes,
                in_thread=self.in_thread,
                node_id=net.random.randbytes(16).hex(),
                passphrase=self.passphrase,
                decide=self.decide,
            )
        )

    def random_bytes(self, count):
        """The salts that the test wants, then any."""
        return self.salts.pop(0) if self.salts else self.net.random.randbytes(count)

    def now(self) -> float:
        return EPOCH + self.skew + self.net.clock.seconds()

    def in_thread(self, call, /):
        if self.thread_seconds is None:
            return succeed(call())
        result = Deferred()
        self.net.clock.callLater(self.thread_seconds, lambda: result.callback(call()))
        return result

    def contents(self):
        """Every object: its hash and its fields."""
        records = self.store.objects(self.store.object_hashes())
        return {record.hash: dict(record.fields) for record in records}

    def messages_in(self) -> int:
        return sum(status.messages_in for status in self.network.peers())

    def put(self, type_name="Thing", **fields):
        return self._told(self.pool.put_fields(fields, type_name)).hash

    def change(self, number, **fields):
        return self._told(self.pool.change_fields(number, fields)).hash

    def remove(self, number):
        self._told(self.pool.remove_hash(number))

    def _told(self, deferred):
        """The result, which may come in the next turn of the reactor where this one is full."""
        if not deferred.called:
            self.net.clock.advance(0)
        return fired(deferred)

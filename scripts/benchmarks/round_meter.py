"""Inside a benchmark's node: begins and ends connections when it is told to, and measures a round.

A service beside the node's own. It is told what to do in JSON lines on the Unix socket
`rounds.sock` in the node's folder, and answers each with one:

    {"do": "expect", "count": 1000, "sketches": true}   what the set is to become, and how
    {"do": "dial", "port": 4365}                        have a connection
    {"do": "figures"}                                   of the last connection, see `Round`
    {"do": "hurry"}                                     compare digests now
    {"do": "close"}                                     end it

Bytes are those that this side writes; the Handshake and what is before it are not among them.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python import log

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.net.dialer import DialFactory
from hyperbloom.replication.net.protocol import PeerProtocol
from hyperbloom.replication.node import Node
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.service.node_service import NodeService

__all__ = ["RoundMeter"]

SOCKET = "rounds.sock"

#: Answers that are awaited before anything else is asked: each costs a round trip.
ANSWERS = ("DigestReceived", "SketchReceived")


@dataclass
class Round:
    """One connection; times are seconds of the system's monotonic clock, `cpu` of this process.

    `equal_at`: when the expected values were on disk here. `received`: how many events of each kind
    had come until then.
    """

    secure_at: float
    secure_wall: float
    secure_cpu: float
    secure_out: int
    equal_at: float | None = None
    equal_cpu: float | None = None
    received: dict[str, int] = field(default_factory=dict)


class RoundMeter(Service):
    """Watches one feed of a node."""

    def __init__(self, node: NodeService, feed: bytes) -> None:
        self._service = node
        self._feed_key = feed
        self._count = 0
        self._round: Round | None = None
        self._wire: PeerProtocol | None = None

    @property
    def _node(self) -> Node:
        (node,) = (one for one in self._service if isinstance(one, Node))
        return node

    def startService(self) -> None:
        """Listen for what to do, and hear of connections and values."""
        super().startService()
        self._observe()
        factory = Factory.forProtocol(Orders)
        factory.meter = self  # type: ignore[attr-defined]
        reactor.listenUNIX(SOCKET, factory)  # type: ignore[attr-defined]

    def _observe(self) -> None:
        """Have the node's classes tell of a connection that becomes secure, and of its events."""
        take_handshake, take = PeerProtocol._take_handshake, Peering.take
        meter = self

        def observed_handshake(wire: PeerProtocol, event: Any) -> None:
            meter._secure(wire)
            take_handshake(wire, event)

        def observed_take(peering: Peering, event: Any) -> None:
            current = meter._round
            if current is not None and current.equal_at is None:
                kind = type(event).__name__
                current.received[kind] = current.received.get(kind, 0) + 1
            take(peering, event)

        PeerProtocol._take_handshake = observed_handshake  # type: ignore[method-assign]
        Peering.take = observed_take  # type: ignore[method-assign]

    # What happens

    def _secure(self, wire: PeerProtocol) -> None:
        feed = self._node.feeds[self._feed_key]
        self._wire = wire
        self._round = Round(time.perf_counter(), time.time(), time.process_time(), wire.bytes_out)
        unsubscribe = feed.values.subscribe(lambda *_: self._look(feed.values.count))
        wire.when_lost().addBoth(lambda _: unsubscribe())

    def _look(self, count: int) -> None:
        current = self._round
        if current is not None and current.equal_at is None and count >= self._count:
            current.equal_at, current.equal_cpu = time.perf_counter(), time.process_time()

    # What it is told to do

    def expect(self, count: int, sketches: bool) -> dict[str, Any]:
        """The feed is to have so many values; whether it may be by sketches."""
        self._count, self._round = count, None
        context = self._node.context
        context.sync = replace(context.sync, reconcile=sketches)
        return {}

    def dial(self, port: int) -> dict[str, Any]:
        """Connect to a node of this machine."""
        node = self._node
        factory = DialFactory(node.connections, node.feeds[self._feed_key])
        dialled: Deferred[Any] = HostnameEndpoint(reactor, "127.0.0.1", port).connect(factory)
        dialled.addErrback(log.err)
        return {}

    def close(self) -> dict[str, Any]:
        """End the connection."""
        if self._wire is not None:
            self._wire.close(CloseReason("stopped", "the round is over"))
        return {}

    def hurry(self) -> dict[str, Any]:
        """Compare now: what a round took lets a node rest for longer than is measured here."""
        if self._wire is not None and self._wire.peering is not None:
            self._wire.peering.sync.hurry()
        return {}

    def figures(self) -> dict[str, Any]:
        """Of the last connection; nothing before it is secure."""
        current, wire = self._round, self._wire
        if current is None or wire is None or wire.peering is None:
            return {}
        state, counters = wire.peering.sync.state, wire.peering.counters
        return {
            **asdict(current),
            "bytes": wire.bytes_out - current.secure_out,
            "in_sync": state is not None and state.in_sync and state.source == "digest",
            "in_sync_at": None if state is None else state.at - current.secure_wall,
            "answers": sum(current.received.get(name, 0) for name in ANSWERS),
            "syncs_sent": counters.syncs_sent,
            "is_open": not wire.is_lost,
        }


class Orders(LineOnlyReceiver):
    """One connection of the benchmark."""

    delimiter = b"\n"

    def lineReceived(self, line: bytes) -> None:
        order = json.loads(line)
        answer = getattr(self.factory.meter, order.pop("do"))(**order)
        self.sendLine(json.dumps(answer).encode())

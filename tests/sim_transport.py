"""A transport in memory: latency, order, back-pressure, cuts. What networks in memory are made of.

Bytes of one direction keep their order and take `latency` seconds. A transport whose peer does not
read fills up and pauses its producer, as a socket does. `network` has a `clock` and counts
`bytes_moved`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ITransport
from twisted.python.failure import Failure
from zope.interface import implementer

BUFFER_BYTES = 65_536


@dataclass(frozen=True)
class Address:
    host: str
    port: int


@implementer(ITransport)
class SimTransport:
    """One end of a connection."""

    disconnecting = False

    def __init__(self, network: Any, local: Address, remote: Address, latency: float) -> None:
        self.network = network
        self.local, self.remote = local, remote
        self.latency = latency
        self.protocol = None
        self.other: SimTransport = None
        self.arrived: deque[bytes] = deque()
        self.in_flight = 0
        self.reading = True
        self.connected = True
        self.producer = None
        self.producer_paused = False
        self.written = 0

    def getPeer(self):
        return self.remote

    def getHost(self):
        return self.local

    def write(self, data: bytes) -> None:
        if not self.connected or self.disconnecting or not data:
            return
        self.written += len(data)
        self.in_flight += len(data)
        self.network.clock.callLater(self.latency, self.other._arrive, bytes(data))
        if self.producer is not None and self.in_flight > BUFFER_BYTES and not self.producer_paused:
            self.producer_paused = True
            self.producer.pauseProducing()

    def writeSequence(self, data) -> None:
        self.write(b"".join(data))

    def _arrive(self, data: bytes) -> None:
        if self.connected:
            self.arrived.append(data)
            self._read()

    def _read(self) -> None:
        while self.reading and self.connected and self.arrived:
            data = self.arrived.popleft()
            self.other._taken(len(data))
            self.network.bytes_moved += len(data)
            for start in range(0, len(data), BUFFER_BYTES):
                # A protocol may pause in the middle; what is left of this chunk comes later.
                if not self.reading:
                    self.arrived.appendleft(data[start:])
                    self.other.in_flight += len(data) - start
                    return
                self.protocol.dataReceived(data[start : start + BUFFER_BYTES])

    def _taken(self, size: int) -> None:
        self.in_flight -= size
        if self.producer_paused and self.in_flight <= BUFFER_BYTES and self.connected:
            self.producer_paused = False
            self.producer.resumeProducing()

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        if not self.reading:
            self.reading = True
            self.network.clock.callLater(0, self._read)

    def registerProducer(self, producer, streaming) -> None:
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None
        self.producer_paused = False

    def loseConnection(self) -> None:
        if self.connected and not self.disconnecting:
            self.disconnecting = True
            self.network.clock.callLater(self.latency, self._lost, ConnectionDone())
            self.network.clock.callLater(2 * self.latency, self.other._lost, ConnectionDone())

    def abortConnection(self) -> None:
        self._lost(ConnectionLost())
        self.network.clock.callLater(self.latency, self.other._lost, ConnectionLost())

    def _lost(self, reason: Exception) -> None:
        if self.connected:
            self.connected = False
            self.protocol.connectionLost(Failure(reason))

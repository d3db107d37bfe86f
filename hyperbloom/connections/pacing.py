"""One connection under the rates of `bandwidth`, made only where there are any.

What is written goes to the transport in pieces, each when it is the peer's turn. While something
waits here its source makes nothing new, so no more waits than the source makes at once. What comes
is counted, and the transport is not read until it is the peer's turn again, so TCP slows the peer.

Bytes leave in the order in which they were written: they are encrypted as one stream. So nothing
overtakes what waits, and its source makes less at once where there is a rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from twisted.internet.interfaces import IPushProducer
from twisted.internet.tcp import Connection as TCPConnection
from zope.interface import implementer

from hyperbloom.connections.bandwidth import Bandwidth

__all__ = ["Paced", "Source"]


class Source(Protocol):
    """What makes the bytes of a connection: an `IPushProducer` that can be held."""

    def hold(self) -> None:
        """Make nothing: what was made waits for the node's own rate, not for the peer."""

    def pauseProducing(self) -> None:
        """Make nothing: the transport is full."""

    def resumeProducing(self) -> None:
        """Go on."""

    def stopProducing(self) -> None:
        """The connection is gone."""


@implementer(IPushProducer)
class Paced:
    """Between a connection and its transport; stands for `source` as the transport's producer.

    whose: the path of the peer. read_on: called when reading may go on.
    """

    __slots__ = (
        "_bandwidth",
        "_credit",
        "_in",
        "_is_full",
        "_is_held",
        "_out",
        "_queue",
        "_read_on",
        "_source",
        "_waits",
        "_wire",
        "is_slowed",
        "queued",
    )

    def __init__(
        self,
        bandwidth: Bandwidth,
        wire: TCPConnection,
        source: Source,
        *,
        whose: tuple[Hashable, ...],
        read_on: Callable[[], None],
    ) -> None:
        self._bandwidth = bandwidth
        self._wire = wire
        self._source = source
        self._read_on = read_on
        self._out = bandwidth.sending.join(whose)
        self._in = bandwidth.receiving.join(whose)
        self._queue: deque[bytes] = deque()
        #: Bytes that wait here to be sent.
        self.queued = 0
        self._is_full = self._is_held = self._waits = False
        #: Whether the transport is not read until it is the peer's turn.
        self.is_slowed = False
        #: Bytes that were taken for the next read.
        self._credit = 0
        self.rates_changed()

    def rates_changed(self) -> None:
        """Read as much at once as the rate of now allows."""
        self._wire.bufferSize = self._bandwidth.receiving.piece

    def stop(self) -> None:
        """The connection is gone: wait for nothing."""
        self._queue.clear()
        self.queued = 0
        self._bandwidth.sending.leave(self._out, self._send_turn)
        self._bandwidth.receiving.leave(self._in, self._read_turn)

    # Bytes out

    def write(self, data: bytes) -> None:
        """Send bytes when it is their turn."""
        if not data:
            return
        if not (self._queue or self._is_full or self._bandwidth.sending.is_on):
            self._wire.write(data)
            return
        self._queue.append(data)
        self.queued += len(data)
        self._send()
        if self._queue and not (self._is_held or self._is_full):
            self._is_held = True
            self._source.hold()

    def flush(self) -> None:
        """Hand everything to the transport: the connection is closing. Others wait for it."""
        while self._queue:
            self._send_piece()

    def _send(self) -> None:
        limit = self._bandwidth.sending
        while self._queue and not (self._waits or self._is_full):
            if not limit.is_free(self._out):
                self._waits = True
                limit.wait(self._out, self._send_turn)
                return
            self._send_piece()

    def _send_turn(self) -> None:
        self._waits = False
        if not self._is_full:
            self._send_piece()
            self._send()
            self._go_on()

    def _send_piece(self) -> None:
        left = most = self._bandwidth.sending.piece
        piece = []
        while left and self._queue:
            data = self._queue.popleft()
            if len(data) > left:
                self._queue.appendleft(data[left:])
                data = data[:left]
            left -= len(data)
            piece.append(data)
        size = most - left
        self.queued -= size
        self._bandwidth.sending.take(self._out, size)
        self._wire.write(b"".join(piece))

    def _go_on(self) -> None:
        """Let the source make more, if nothing waits."""
        if self._is_held and not (self._queue or self._is_full):
            self._is_held = False
            self._source.resumeProducing()

    # Bytes in

    def received(self, size: int) -> None:
        """So many bytes were read: read on at once, or when it is the peer's turn."""
        limit = self._bandwidth.receiving
        limit.take(self._in, size - self._credit)
        self._credit = 0
        if not self.is_slowed and not limit.is_free(self._in):
            self.is_slowed = True
            self._wire.pauseProducing()
            limit.wait(self._in, self._read_turn)

    def _read_turn(self) -> None:
        # The next one has its turn before this one has read, so what it may read is taken already.
        self._credit = self._bandwidth.receiving.piece
        self._bandwidth.receiving.take(self._in, self._credit)
        self.is_slowed = False
        self._read_on()

    # IPushProducer: called by the transport

    def pauseProducing(self) -> None:
        """The transport is full: the peer reads too slowly."""
        self._is_full = True
        self._is_held = False
        self._source.pauseProducing()

    def resumeProducing(self) -> None:
        """The transport has room again: what waits here goes first."""
        self._is_full = False
        self._is_held = True
        self._source.hold()
        self._send()
        self._go_on()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self._source.stopProducing()

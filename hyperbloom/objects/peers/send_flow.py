"""What goes to a peer of another kind about objects, in writes that it can read.

The JVM takes one read of its socket for a whole header, and one for a whole payload. What TCP has
cut in two is no message to it, and ends its connection. TCP cuts where a write is longer than a
packet, and where it holds a write back and joins it with the next ones: beyond what may be on its
way at one time. So a write has as many whole messages as a packet takes, each turn of the reactor
makes one, and a PING after a few of them is awaited. Where no PONG comes it goes on after a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from hyperbloom.objects.limits import FOREIGN_WINDOW_BYTES, FOREIGN_WINDOW_WRITES

__all__ = ["WAIT_SECONDS", "FlowPeer", "ForeignFlow"]

#: Seconds to wait for a PONG.
WAIT_SECONDS: Final = 2.0


class FlowPeer(Protocol):
    """The connection, as far as the flow uses it (foreign_side.py)."""

    @property
    def may_write(self) -> bool:
        """Whether it is open, and its transport takes more."""
        ...

    def refill(self) -> None:
        """Put what is made only when there is room for it, the next object of the pool."""
        ...

    def write_frame(self, frame: bytes) -> None:
        """Write a whole message."""
        ...

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        ...


class ForeignFlow:
    """Messages on their way to one peer. `most` is what one write has in bytes.

    `later` calls after so many seconds.
    """

    def __init__(
        self, peer: FlowPeer, *, most: int, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self.most = most
        #: Bytes of the messages that wait.
        self.queued = 0
        self._peer = peer
        self._later = later
        self._queue: deque[bytes] = deque()
        self._bytes = self._writes = 0
        #: Which PING is awaited, counted from 1; 0: none.
        self._awaited = self._pings = 0
        self._called = False

    def put(self, frame: bytes) -> None:
        """Send a whole message behind what waits."""
        self._queue.append(frame)
        self.queued += len(frame)
        self.go_on()

    def acknowledged(self) -> None:
        """A PONG came: the peer has read what was sent before its PING."""
        self._bytes = self._writes = 0
        if self._awaited:
            self._awaited = 0
            self.go_on()

    def go_on(self) -> None:
        """Write what a packet takes in the next turn, if there is something and it may be sent."""
        if not self._called:
            self._called = True
            self._later(0, self._turn)

    def _turn(self) -> None:
        self._called = False
        if self._awaited or not self._peer.may_write:
            return
        written = 0
        while (frame := self._next()) is not None:
            if written and written + len(frame) > self.most:
                self._queue.appendleft(frame)
                self.queued += len(frame)
                break
            written += len(frame)
            self._peer.write_frame(frame)
        if not written:
            return
        self._bytes += written
        self._writes += 1
        if self._bytes >= FOREIGN_WINDOW_BYTES or self._writes >= FOREIGN_WINDOW_WRITES:
            self._await()
        else:
            self.go_on()

    def _next(self) -> bytes | None:
        if not self._queue:
            self._peer.refill()
        if not self._queue:
            return None
        frame = self._queue.popleft()
        self.queued -= len(frame)
        return frame

    def _await(self) -> None:
        self._pings += 1
        self._awaited = number = self._pings
        self._peer.ping()

        def waited() -> None:
            if self._awaited == number:
                self.acknowledged()

        self._later(WAIT_SECONDS, waited)

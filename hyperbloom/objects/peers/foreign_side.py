"""What a connection does besides when its peer is of another kind, as the JVM implementation is.

Its pool is asked for by OK, for a JVM that was dialled sends it for nothing else. It passes on what
others tell it by INITIALIZE as empty maps, and is then asked again. A JVM that holds an object
which it cannot write closes when it is asked; who did that last time is asked late. What it cannot
read is left out (foreign.py), and the rest goes in writes that it can read (flow.py).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from twisted.python.failure import Failure

from hyperbloom.objects.limits import FOREIGN_PACKET_BYTES, OBJECTS_PER_PART
from hyperbloom.objects.peers import foreign
from hyperbloom.objects.peers.send_flow import ForeignFlow
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.payloads import Change, Ok, Payload, Removal

if TYPE_CHECKING:
    from hyperbloom.objects.peers.peer import PoolPeer

__all__ = ["ForeignSide"]

#: After it has told that others told it of objects, it is asked for its pool this much later.
ASK_SECONDS: Final = 2.0
#: The same after a connection that ended when it was asked.
ASK_LATE_SECONDS: Final = 30.0
#: What PING and PONG may have beside messages in one write.
_SIGNAL_BYTES: Final = 192


class ForeignSide:
    """Of one connection, from its opening on."""

    def __init__(self, peer: PoolPeer) -> None:
        self._peer = peer
        self._asked = self.answered = self._ask_planned = False
        self.flow = ForeignFlow(self, most=self._packet_bytes(), later=peer.later)

    def _packet_bytes(self) -> int:
        connection = getattr(self._peer.transport, "socket", None)
        if connection is None:
            return FOREIGN_PACKET_BYTES
        try:
            packet: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        except OSError:
            return FOREIGN_PACKET_BYTES
        return max(FOREIGN_PACKET_BYTES // 2, packet - _SIGNAL_BYTES)

    # Its pool

    def begin(self) -> None:
        """Ask for its pool, if it is a server, which does not send it of itself."""
        if not self._peer.outgoing:
            return
        if self._peer.network.may_ask(self._peer):
            self._ask()
        else:
            self._plan_to_ask(ASK_LATE_SECONDS)

    def told_of_others(self) -> None:
        """Somebody else has told it of objects; it has them itself a moment later."""
        self._plan_to_ask(ASK_SECONDS)

    def _plan_to_ask(self, seconds: float) -> None:
        if not self._ask_planned:
            self._ask_planned = True
            self._peer.later(seconds, self._ask)

    def _ask(self) -> None:
        self._ask_planned = False
        if self._peer.is_open:
            self._asked, self.answered = True, False
            self._peer.send(Ok(t=self._peer.now(), v=self._peer.context.settings.version))

    @property
    def is_unanswered(self) -> bool:
        """Whether it was asked for its pool, and has not sent it."""
        return self._asked and not self.answered

    # What it is told

    def say(self, payload: Payload, data: bytes) -> None:
        """Send a message, `data` being its compressed bytes; not one that no packet takes."""
        peer, most = self._peer, self.flow.most
        size = peer.session.frame_bytes(len(data))
        if size > most:
            self.leave_out(foreign.too_large(getattr(payload, "h", 0), size, most))
            if not isinstance(payload, Change):
                return
            # Better none than an old one.
            payload = Removal(t=payload.t, h=payload.oh)
            data = compressed(payload)
        peer.figures.messages_out += 1
        self.flow.put(peer.session.send_compressed(type(payload), data))

    def leave_out(self, why: str | None) -> None:
        """Note that the peer is not told of an object, which it could not read."""
        if why is None:
            return
        figures = self._peer.figures
        figures.untold += 1
        figures.untold_why = why
        # The 1st, 2nd, 4th, 8th and so on: a large pool must not fill the log.
        if not figures.untold & (figures.untold - 1):
            what = f"not told of {figures.untold} objects, the latest: {why}"
            self._peer.network.tell(self._peer, "untold", what)

    # What the flow asks for

    @property
    def may_write(self) -> bool:
        """Whether the connection is open, and its transport takes more."""
        return self._peer.may_write

    def write_frame(self, frame: bytes) -> None:
        """Write a whole message."""
        self._peer.write_frame(frame)

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        self._peer.ping()

    def refill(self) -> None:
        """Put the next object of the pool that it can read."""
        peer = self._peer
        stream = peer.stream
        if stream is None or not stream.ready:
            return
        for _ in range(OBJECTS_PER_PART):
            try:
                record = stream.next_object()
            except Exception:
                peer.stream_failed(Failure())
                return
            if record is None:
                peer.stream = None
                return
            peer.send_all(foreign.creation(peer.context.pool.types, record))
            if self.flow.queued or not peer.is_open:
                return
        self.flow.go_on()

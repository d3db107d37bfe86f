"""What a peer of another kind is told, as the JVM implementation is one, and asked for.

Its pool is asked for by OK, for a JVM that was dialled sends it for nothing else. It passes on what
others tell it by INITIALIZE as empty maps, and is then asked again. A JVM that holds an object
which it cannot write closes when it is asked; who did that last time is asked late. What it cannot
read is left out (foreign.py), and the rest goes in writes that it can read (send_flow.py).
"""

from __future__ import annotations

import socket
from typing import Final

from twisted.python.failure import Failure

from hyperbloom.objects.limits import FOREIGN_PACKET_BYTES, OBJECTS_PER_PART
from hyperbloom.objects.peers import foreign
from hyperbloom.objects.peers.foreign import Made, Told
from hyperbloom.objects.peers.outgoing_objects import OutgoingObjects
from hyperbloom.objects.peers.port import PoolPort
from hyperbloom.objects.peers.send_flow import ForeignFlow
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.payloads import Change, Ok, Payload, Removal
from hyperbloom.store.objects.records import Outcome

__all__ = ["ForeignSide"]

#: After it has told that others told it of objects, it is asked for its pool this much later.
ASK_SECONDS: Final = 2.0
#: The same after a connection that ended when it was asked.
ASK_LATE_SECONDS: Final = 30.0
#: What PING and PONG may have beside messages in one write.
_SIGNAL_BYTES: Final = 192


class ForeignSide(OutgoingObjects):
    """Of one connection, from its opening on. `ask_late`: it closed when it was last asked."""

    def __init__(self, port: PoolPort, *, ask_late: bool) -> None:
        super().__init__(port)
        self._ask_late = ask_late
        self._ask_planned = False
        self._types = port.context.pool.types
        self._flow = ForeignFlow(self, most=self._packet_bytes(), later=port.later)

    def _packet_bytes(self) -> int:
        connection = getattr(self._port.transport, "socket", None)
        if connection is None:
            return FOREIGN_PACKET_BYTES
        try:
            packet: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        except OSError:
            return FOREIGN_PACKET_BYTES
        return max(FOREIGN_PACKET_BYTES // 2, packet - _SIGNAL_BYTES)

    # Its pool

    def begin(self) -> None:
        """Send the pool, and ask for its own, if it is a server, which does not send it unasked."""
        if self._port.outgoing and self._ask_late:
            self._plan_to_ask(ASK_LATE_SECONDS)
        elif self._port.outgoing:
            self._ask()
        super().begin()

    def peer_initialized(self, *, unnamed: bool) -> None:
        """It has sent its pool, or told that others told it of objects.

        Those it has itself a moment later.
        """
        self.is_unanswered = False
        if unnamed:
            self._plan_to_ask(ASK_SECONDS)

    def _plan_to_ask(self, seconds: float) -> None:
        if not self._ask_planned:
            self._ask_planned = True
            self._port.later(seconds, self._ask)

    def _ask(self) -> None:
        self._ask_planned = False
        if self._port.is_open:
            self.is_unanswered = True
            self._port.send(Ok(t=self._port.now(), v=self._port.context.settings.version))

    # What it is told

    def announcement(self, outcome: Outcome) -> Told:
        """The messages of foreign.py."""
        return foreign.messages(self._types, outcome)

    def answer(self, outcome: Outcome) -> Told:
        """The answers of foreign.py."""
        return foreign.answers(self._types, outcome)

    def say(self, made: Made) -> None:
        """Send messages in writes that it can read."""
        self._leave_out(made.untold)
        for payload, data in made.messages:
            if self._port.is_open:
                self._put(payload, data)
        self._check_queued(self._flow.queued)

    def _put(self, payload: Payload, data: bytes) -> None:
        """Send a message, `data` being its compressed bytes; not one that no packet takes."""
        session, most = self._port.session, self._flow.most
        size = session.frame_bytes(len(data))
        if size > most:
            self._leave_out(foreign.too_large(getattr(payload, "h", 0), size, most))
            if not isinstance(payload, Change):
                return
            # Better none than an old one.
            payload = Removal(t=payload.t, h=payload.oh)
            data = compressed(payload)
        self._port.counters.messages_out += 1
        self._flow.put(session.send_compressed(type(payload), data))

    def _leave_out(self, why: str | None) -> None:
        """Note that the peer is not told of an object, which it could not read."""
        if why is None:
            return
        counters = self._port.counters
        counters.untold += 1
        counters.untold_why = why
        # The 1st, 2nd, 4th, 8th and so on: a large pool must not fill the log.
        if not counters.untold & (counters.untold - 1):
            what = f"not told of {counters.untold} objects, the latest: {why}"
            self._port.tell("untold", what)

    def go_on(self) -> None:
        """Send what waits, and then the next objects of the pool."""
        self._flow.go_on()

    def pong_came(self) -> None:
        """It has read what was sent before the latest PING."""
        self._flow.acknowledged()

    # What the flow asks for

    @property
    def may_write(self) -> bool:
        """Whether the connection is open, and its transport takes more."""
        return self._port.may_write

    def write_frame(self, frame: bytes) -> None:
        """Write a whole message."""
        self._port.write(frame)

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        self._port.ping()

    def refill(self) -> None:
        """Put the next object of the pool that it can read."""
        sync = self._sync
        if sync is None or not sync.ready:
            return
        for _ in range(OBJECTS_PER_PART):
            try:
                record = sync.next_object()
            except Exception:
                self._cannot_read(Failure())
                return
            if record is None:
                self._sync = None
                return
            self.send(foreign.creation(self._types, record))
            if self._flow.queued or not self._port.is_open:
                return
        self._flow.go_on()

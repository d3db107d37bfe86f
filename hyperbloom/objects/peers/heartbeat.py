"""Whether the peer of a connection is there, and how far away: PING, PONG and silence."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.peers.parent_selection import MEASUREMENTS, Latency
from hyperbloom.objects.peers.port import PoolPort
from hyperbloom.objects.wire.payloads import Ping, Pong

__all__ = ["Heartbeat"]


class Heartbeat:
    """Of one connection. `latency` is measured by each PONG."""

    def __init__(self, port: PoolPort, clock: IReactorTime) -> None:
        self.latency = Latency()
        self._port = port
        self._clock = clock
        self._heard_at = clock.seconds()
        self._pinged_at: float | None = None
        #: Whether a PONG is to come, and whether one is to be sent.
        self._awaited = self._owed = False

    def heard(self) -> None:
        """A message has come."""
        self._heard_at = self._clock.seconds()

    def look(self, *, is_held: bool) -> None:
        """Called now and then: PING, and close where nothing came for too long.

        `is_held`: nothing is read of the peer at the moment, so that its silence says nothing.
        """
        now, settings = self._clock.seconds(), self._port.context.settings
        if now - self._heard_at > settings.silence_seconds and not is_held:
            self._port.close(CloseReason("silent", "it has said nothing for too long"))
        elif self._pinged_at is None or now - self._pinged_at >= settings.ping_seconds:
            self._ping()

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        if not self._awaited:
            self._ping()

    def _ping(self) -> None:
        self._pinged_at = self._clock.seconds()
        self._awaited = True
        self._port.send(Ping(t=self._port.now()))

    def take_pong(self) -> bool:
        """A PONG came; whether it answers a PING."""
        if not self._awaited or self._pinged_at is None:
            return False
        self._awaited = False
        self.latency.measured(self._clock.seconds() - self._pinged_at)
        if self.latency.seconds is None and MEASUREMENTS > 1:
            self._port.later(0, self._ping_again)
        return True

    def _ping_again(self) -> None:
        if self._port.is_open:
            self.ping()

    def answer_ping(self, *, is_paused: bool) -> None:
        """PONG; while the peer does not read, one for all PINGs of that time."""
        if is_paused:
            self._owed = True
        else:
            self._port.send(Pong(t=self._port.now()))

    def resume(self) -> None:
        """The peer reads again."""
        if self._owed:
            self._owed = False
            self._port.send(Pong(t=self._port.now()))

"""Where connections come in: nobody is let in while strangers have to rest.

To accept a connection costs about as much as what strangers then send on it. The system keeps those
who knock meanwhile, in their order, and newcomers wait with all the others.
"""

from __future__ import annotations

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IListeningPort, IReactorTime

from hyperbloom.connections.shares import Shares

__all__ = ["Door"]


class Door:
    """The ports that a node listens at."""

    def __init__(self, shares: Shares, clock: IReactorTime) -> None:
        self._shares = shares
        self._clock = clock
        self._ports: list[FileDescriptor] = []
        self._is_shut = False

    def add(self, port: IListeningPort) -> None:
        """A port is listened at from now on; one that cannot pause stays open."""
        if isinstance(port, FileDescriptor):
            self._ports.append(port)

    def look(self) -> None:
        """Somebody came in: shut the door for as long as strangers rest."""
        strangers = self._shares.strangers
        if self._is_shut or not self._shares.rests(strangers):
            return
        self._is_shut = True
        for port in self._ports:
            port.stopReading()
        strangers.wait(self._open)
        self._shares.wake_after_rest(strangers)

    def _open(self) -> None:
        self._is_shut = False
        for port in self._ports:
            if port.connected:  # else it is listened at no more
                port.startReading()

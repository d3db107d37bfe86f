"""The DHT node's machine on a UDP socket: moves datagrams and sets one timer, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import InvalidAddressError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.events import Event
from hyperbloom.discovery.dht.machine import Dht

__all__ = ["DhtProtocol"]

log = Logger()


class DhtProtocol(DatagramProtocol):
    """Runs a machine while it is connected to a transport; `on_event` gets what the machine tells.

    After every call of the machine's commands, `flush` is to be called.
    """

    noisy = False

    def __init__(
        self, machine: Dht, clock: IReactorTime, on_event: Callable[[Event], None]
    ) -> None:
        self.machine = machine
        self._clock = clock
        self._on_event = on_event
        self._timer: IDelayedCall | None = None

    def startProtocol(self) -> None:
        """Called by Twisted once there is a socket."""
        self.flush()

    def stopProtocol(self) -> None:
        """Called by Twisted when the socket is closed."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self.transport = None

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Called by Twisted; `addr` begins with host and port, for IPv6 more may follow."""
        address = Address(addr[0], addr[1])
        self.machine.receive(datagram, address, now=self._clock.seconds())
        self.flush()

    def connectionRefused(self) -> None:
        """Called by Twisted for sockets with one peer, which this is not."""

    def flush(self) -> None:
        """Send what is to be sent, tell what is to be told, set the timer anew."""
        transport: Any = self.transport
        for data, address in self.machine.take_datagrams():
            if transport is None:
                continue
            try:
                transport.write(data, address)
            except (OSError, InvalidAddressError) as error:
                # As with a lost packet: who asked will find out in time. An invalid address is one
                # of the other family, from a table that was saved on another interface.
                log.debug("No datagram to {address}: {error}", address=address, error=error)
        for event in self.machine.take_events():
            self._on_event(event)
        if transport is not None:
            self._set_timer()

    def _set_timer(self) -> None:
        wait = max(0.0, self.machine.deadline - self._clock.seconds())
        if self._timer is not None and self._timer.active():
            # Setting a timer anew costs more than finding too early that it was not time.
            if self._timer.getTime() <= self._clock.seconds() + wait:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.machine.tick(now=self._clock.seconds())
        self.flush()

"""The DHT node's machine on a UDP socket: moves datagrams, sets one timer, fires Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import InvalidAddressError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import Collector
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.events import AddressSettled, Event, OperationEnded
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.operations import Found, QueryWith, Stored

__all__ = ["DhtProtocol"]

log = Logger()


class DhtProtocol(DatagramProtocol):
    """Runs a machine while it is connected to a transport.

    `address_settled` is called when the node has a new id, see `AddressSettled`. The Deferreds of
    `find`, `put` and `bootstrap` fail with LocalProtocolError for what the machine does not allow;
    one that is cancelled ends its operation.
    """

    noisy = False

    def __init__(
        self,
        machine: Dht,
        clock: IReactorTime,
        address_settled: Callable[[AddressSettled], None],
    ) -> None:
        self.machine = machine
        self._clock = clock
        self._address_settled = address_settled
        self._under_way: dict[int, Deferred[Any]] = {}
        self._timer: IDelayedCall | None = None

    def startProtocol(self) -> None:
        """Called by Twisted once there is a socket."""
        self._flush()

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
        self._flush()

    def connectionRefused(self) -> None:
        """Called by Twisted for sockets with one peer, which this is not."""

    # Commands

    def find(self, collector: Collector) -> Deferred[Found]:
        """See `Dht.find`."""
        return self._outcome(lambda now: self.machine.find(collector, now=now))

    def put(
        self, collector: Collector, query_with: QueryWith, *, read_back: Collector | None = None
    ) -> Deferred[Stored]:
        """See `Dht.put`."""

        def begin(now: float) -> int:
            return self.machine.put(collector, query_with, now=now, read_back=read_back)

        return self._outcome(begin)

    def bootstrap(self, addresses: Sequence[Address]) -> Deferred[Found]:
        """See `Dht.bootstrap`."""
        return self._outcome(lambda now: self.machine.bootstrap(addresses, now=now))

    def cancel_all(self) -> None:
        """End what is under way; its Deferreds are cancelled."""
        for waiting in list(self._under_way.values()):
            waiting.cancel()

    def _outcome(self, begin: Callable[[float], int]) -> Deferred[Any]:
        """Begin an operation; fires with its outcome when it has ended."""
        try:
            number = begin(self._clock.seconds())
        except LocalProtocolError as error:
            return fail(error)

        def cancel(_: Deferred[Any]) -> None:
            self.machine.cancel(number)
            self._under_way.pop(number, None)

        outcome: Deferred[Any] = Deferred(cancel)
        self._under_way[number] = outcome
        self._flush()
        return outcome

    def _happened(self, event: Event) -> None:
        match event:
            case OperationEnded(number=number, outcome=outcome):
                waiting = self._under_way.pop(number, None)
                if waiting is not None:
                    waiting.callback(outcome)
            case AddressSettled():
                self._address_settled(event)

    def _flush(self) -> None:
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
            self._happened(event)
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
        self._flush()

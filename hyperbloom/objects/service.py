"""The pool's part of a node: it listens, dials parents, and owns the timers.

A Twisted service. Store and writer are made by who makes the service and closed by it, after this
one has stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IAddress, IListeningPort, IStreamServerEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.dialing import STEADY_SECONDS, dial_once, endpoint_of
from hyperbloom.objects.peers.context import PoolContext
from hyperbloom.objects.peers.network import PoolNetwork
from hyperbloom.objects.peers.parent_selection import ParentSelection
from hyperbloom.objects.peers.protocol import PoolProtocol
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.objects.settings import is_loopback
from hyperbloom.objects.status import PoolStatus

__all__ = ["AcceptFactory", "DialFactory", "ObjectsService"]

#: How often parents and silent peers are looked at, in seconds.
LOOK_SECONDS = 0.5

#: Ends after which another address is better: however long it was open, it counts as a failure.
_SENT_AWAY = frozenset({"kicked", "left"})

log = Logger()


class _PoolFactory(Factory):
    noisy = False
    outgoing: ClassVar[bool]

    def __init__(self, network: PoolNetwork) -> None:
        self._network = network

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A protocol for one connection."""
        return PoolProtocol(self._network, outgoing=self.outgoing)


class DialFactory(_PoolFactory):
    """Makes the protocols of the connections that we open: we are the client, and speak first."""

    outgoing = True


class AcceptFactory(_PoolFactory):
    """Makes the protocols of the connections that come in: we are the server."""

    outgoing = False


class ObjectsService(Service):
    """The pool of a node among its peers."""

    def __init__(
        self, context: PoolContext, *, endpoints: Sequence[IStreamServerEndpoint] = ()
    ) -> None:
        self.context = context
        self.pool: ObjectPool = context.pool
        self.network = PoolNetwork(context)
        settings = context.settings
        self._endpoints = endpoints
        self._ports: list[IListeningPort] = []
        self._parents: dict[str, PoolProtocol] = {}
        self._dialling: dict[str, Deferred[Any]] = {}
        self._problems: dict[str, str] = {}
        self._selection = ParentSelection(
            settings.peers,
            wanted=settings.parents,
            probe_seconds=settings.probe_seconds,
            retry_first=settings.retry_first,
            retry_longest=settings.retry_longest,
        )
        self._looking = LoopingCall(self._look)
        self._looking.clock = context.clock

    def startService(self) -> None:
        """Listen and dial. Raises `CannotListenError` where a port is taken."""
        super().startService()
        self._warn()
        for endpoint in self._endpoints:
            self._listen(endpoint)
        self._looking.start(LOOK_SECONDS).addErrback(self._timer_failed)

    def stopService(self) -> Deferred[None]:
        """Say KICK to every peer, close, then fire."""
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        waiting: list[Deferred[Any]] = [
            stopped for port in self._ports if (stopped := port.stopListening()) is not None
        ]
        for dialling in list(self._dialling.values()):
            dialling.cancel()
        waiting.append(self.network.close_all(CloseReason("stopped", "this node is stopping")))
        self._ports = []
        return DeferredList(waiting).addCallback(lambda _: None)

    def _warn(self) -> None:
        settings = self.context.settings
        if self.context.passphrase is not None:
            log.warn(
                "The pool's AES flag is weak (ECB, no authentication): do not rely on it against "
                "who can see or change the traffic"
            )
        if not all(map(is_loopback, settings.listen)):
            log.warn("The pool listens beyond this machine; whoever reaches it may change objects")

    def _listen(self, endpoint: IStreamServerEndpoint) -> None:
        problems: list[BaseException] = []
        endpoint.listen(AcceptFactory(self.network)).addCallbacks(
            self._ports.append, lambda failure: problems.append(failure.value)
        )
        if problems:
            raise problems[0]

    def _timer_failed(self, failure: Failure) -> None:
        log.failure("A timer of the pool failed", failure=failure)

    # Parents

    def _look(self) -> None:
        self.network.look()
        for address, peer in self._parents.items():
            self._selection.measured(address, peer.latency.seconds)
        slow = self._selection.leave()
        if slow is not None and slow in self._parents:
            self._parents[slow].close(CloseReason("left", "another parent is faster"))
        for address in self._selection.dial(now=self.context.clock.seconds()):
            dialling = self._dialling[address] = Deferred.fromCoroutine(self._dial(address))
            dialling.addErrback(self._dialling_ended, address)

    async def _dial(self, address: str) -> None:
        """One connection from its beginning to its end."""
        clock = self.context.clock
        peer: PoolProtocol | None = None
        steady = False

        def connected(connection: PoolProtocol) -> None:
            nonlocal peer
            peer = connection
            self._dialling.pop(address, None)

        def opened(connection: PoolProtocol) -> None:
            self._problems.pop(address, None)
            self._parents[address] = connection
            self._selection.opened(address)

        def failed(error: Exception) -> None:
            self._note(address, Failure(error).getErrorMessage())

        try:
            endured = await dial_once(
                endpoint_of(clock, Address.parse(address)),
                DialFactory(self.network),
                clock,
                connected=connected,
                ready=opened,
                failed=failed,
            )
            why = None if peer is None else peer.close_reason
            if why is not None:
                self._note(address, str(why))
            steady = endured >= STEADY_SECONDS and (why is None or why.kind not in _SENT_AWAY)
        finally:
            self._dialling.pop(address, None)
            self._parents.pop(address, None)
            self._selection.ended(address, now=clock.seconds(), steady=steady)

    def _note(self, address: str, problem: str) -> None:
        """Keep why there is no connection; each reason is logged once, not at every attempt."""
        if self.running and self._problems.get(address) != problem:
            log.info("No parent at {address}: {why}", address=address, why=problem)
            self._problems[address] = problem

    def _dialling_ended(self, failure: Failure, address: str) -> None:
        if not failure.check(CancelledError):
            log.failure("Dialling {address} ended", failure=failure, address=address)

    # What is told

    def listening(self) -> list[str]:
        """HOST:PORT of each listener."""
        hosts = [port.getHost() for port in self._ports]
        return [
            str(Address(host.host, host.port))
            for host in hosts
            if isinstance(host, IPv4Address | IPv6Address)
        ]

    def status(self) -> PoolStatus:
        """The pool and its connections."""
        figures = self.pool.figures()
        return PoolStatus(
            encrypted=self.context.passphrase is not None,
            listening=tuple(self.listening()),
            count=figures.count,
            bytes=figures.bytes,
            digest=figures.digest,
            past=figures.past,
            disk_bytes=figures.disk_bytes,
            clashes=self.pool.clashes,
            full=self.pool.full,
            types=tuple(map(str, self.pool.types.declarations())),
            peers=tuple(self.network.peers()),
            closings=tuple(self.network.recently_closed),
            problems=tuple(f"{address}: {why}" for address, why in self._problems.items()),
        )

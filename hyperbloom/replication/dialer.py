"""Outgoing connections: one for each address of a feed, kept up with backoff and jitter.

Twisted's `ClientService` does the redialling. An attempt counts as a success only when the
handshake is done, so that a peer that accepts and then refuses us is backed off from as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.application.internet import ClientService, backoffPolicy
from twisted.internet.defer import CancelledError, Deferred, fail, maybeDeferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from hyperbloom.addresses import parse_host_port
from hyperbloom.replication.protocol import PeerProtocol
from hyperbloom.replication.refusal import Refused

if TYPE_CHECKING:
    from hyperbloom.replication.connections import Connections
    from hyperbloom.replication.feed import Feed

__all__ = ["AcceptFactory", "DialFactory", "Dialer"]

#: Growth of the wait from one failed attempt to the next.
BACKOFF_FACTOR = 1.7

#: An address that does not answer is given up on after this many seconds.
CONNECT_SECONDS = 20.0

log = Logger()


class DialFactory(Factory):
    """Makes the protocols of the connections we open about one feed."""

    noisy = False

    def __init__(self, connections: Connections, feed: Feed) -> None:
        self._connections = connections
        self._feed = feed

    def buildProtocol(self, addr: IAddress | None) -> PeerProtocol:
        """A protocol that speaks first."""
        return PeerProtocol(self._connections, self._feed)


class AcceptFactory(Factory):
    """Makes the protocols of the connections that come in, for any feed."""

    noisy = False

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def buildProtocol(self, addr: IAddress | None) -> PeerProtocol:
        """A protocol that waits to hear which feed it is about."""
        return PeerProtocol(self._connections, None)


@implementer(IStreamClientEndpoint)
class _FeedEndpoint:
    """An endpoint that does not dial while this node has nothing to prove itself with."""

    def __init__(self, dialer: Dialer, feed: Feed, endpoint: IStreamClientEndpoint) -> None:
        self._dialer = dialer
        self._feed = feed
        self._endpoint = endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Dial, or fail with `Refused`."""
        if self._feed.credentials() is None:
            reason = Refused("no-chain", "this node has no unexpired chain for the feed")
            return cast("Deferred[IProtocol]", fail(reason).addErrback(self._dialer.failed))
        connecting = self._endpoint.connect(protocolFactory)
        return connecting.addErrback(self._dialer.failed)


class Dialer:
    """Keeps one connection to one address, from `start` to `stop`.

    `last_problem` says why there is none at the moment, for the status.
    """

    def __init__(self, connections: Connections, feed: Feed, address: str) -> None:
        host, port = parse_host_port(address)
        self.address = address
        self.last_problem: str | None = None
        context = connections.context
        backoff = backoffPolicy(
            context.sync.retry_first, context.sync.retry_longest, BACKOFF_FACTOR, jitter=lambda: 0.0
        )
        endpoint = HostnameEndpoint(context.clock, host, port, timeout=CONNECT_SECONDS)
        self._service = ClientService(
            _FeedEndpoint(self, feed, endpoint),
            DialFactory(connections, feed),
            # Without a chain nothing is dialled, so nothing is backed off from.
            retryPolicy=lambda attempt: context.jittered(backoff(attempt - 1 if feed.chain else 0)),
            clock=context.clock,
            prepareConnection=self._prepare,
        )

    def start(self) -> None:
        """Dial now, and again whenever the connection is lost."""
        self._service.startService()

    def stop(self) -> Deferred[None]:
        """Stop dialling and close what is open; fires when it is closed."""
        return maybeDeferred(self._service.stopService).addCallback(lambda _: None)

    def _prepare(self, protocol: IProtocol) -> Deferred[PeerProtocol]:
        secure = cast(PeerProtocol, protocol).when_secure()
        return secure.addCallbacks(self._secure, self.failed)

    def _secure(self, peer: PeerProtocol) -> PeerProtocol:
        self.last_problem = None
        return peer

    def failed(self, failure: Failure) -> Failure:
        """Note why an attempt failed; each reason is logged once, not at every attempt."""
        problem = failure.getErrorMessage()
        if problem != self.last_problem and not failure.check(CancelledError):
            log.info("No peer at {address}: {why}", address=self.address, why=problem)
            self.last_problem = problem
        return failure

"""Outgoing connections: one for each address of a feed, kept up with backoff and jitter.

How an address is dialled once is in `hyperbloom.connections.dialing`.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.dialing import STEADY_SECONDS, dial_once, endpoint_of, retry_wait
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.net.protocol import PeerProtocol
from hyperbloom.replication.sync.peer import Peering

__all__ = ["AcceptFactory", "DialFactory", "Dialer"]

#: Closings after which dialling again is of no use: we are who answers there, or are connected, or
#: who answers is denied, or does not protect the stream.
_NO_OTHER_PEER = frozenset({"own", "own-key", "twin", "denied", "unprotected"})

log = Logger()


class DialFactory(Factory):
    """Makes the protocols of the connections we open about one feed."""

    noisy = False

    def __init__(self, connections: Admission, feed: Feed) -> None:
        self._connections = connections
        self._feed = feed

    def buildProtocol(self, addr: IAddress | None) -> PeerProtocol:
        """A protocol that speaks first."""
        return PeerProtocol(self._connections, self._feed)


class AcceptFactory(Factory):
    """Makes the protocols of the connections that come in, for any feed."""

    noisy = False

    def __init__(self, connections: Admission) -> None:
        self._connections = connections

    def buildProtocol(self, addr: IAddress | None) -> PeerProtocol:
        """A protocol that waits to hear which feed it is about."""
        return PeerProtocol(self._connections, None)


class Dialer:
    """Keeps one connection to one address, from `start` to `stop`.

    With `attempts` it gives up after so many failures in a row, and at once on an address that is
    this node's own or of a peer that is connected already: `gave_up` fires then. `secure` is called
    with each connection that became so. `last_problem` says why there is none at the moment, for
    the status, and `last_close_kind` in one word, where a handshake came to nothing.
    """

    def __init__(
        self,
        connections: Admission,
        feed: Feed,
        address: Address,
        *,
        attempts: int | None = None,
        secure: Callable[[PeerProtocol], None] | None = None,
        gave_up: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.last_problem: str | None = None
        self.last_close_kind: str | None = None
        #: The key that was proved at the address last.
        self.answered: bytes | None = None
        self._attempts = attempts
        self._secure = secure
        self._gave_up = gave_up
        self._context = context = connections.context
        self._feed = feed
        self._found = connections.found
        self._factory = DialFactory(connections, feed)
        self._endpoint = endpoint_of(context.clock, address)
        self._failures = 0
        self._running = False
        self._lacked_chain = False
        self._dialling: Deferred[None] | None = None
        self._peer: PeerProtocol | None = None

    def start(self) -> None:
        """Dial now, and again whenever the connection is lost."""
        self._running = True
        self._dialling = Deferred.fromCoroutine(self._keep_dialling())
        self._dialling.addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """Stop dialling and close what is open; fires when it is closed."""
        self._running = False
        if self._dialling is not None:
            self._dialling.cancel()
        if self._peer is None:
            return succeed(None)
        self._peer.close(CloseReason("stopped", "this node dials it no more"))
        return self._peer.when_lost()

    @property
    def is_connected(self) -> bool:
        """Whether there is a secure connection now."""
        return self._peer is not None and self._peer.peering is not None

    @property
    def peering(self) -> Peering | None:
        """The secure connection with who answers at the address, or None."""
        return None if self._peer is None else self._peer.peering

    async def _keep_dialling(self) -> None:
        while self._running:
            wait = await self._dial()
            if self._running and self._is_hopeless():
                self._running = False
                if self._gave_up is not None:
                    self._gave_up()
            elif self._running:
                await deferLater(self._context.clock, wait)

    def _is_hopeless(self) -> bool:
        if self._attempts is None:
            return False
        return self._failures >= self._attempts or self.last_close_kind in _NO_OTHER_PEER

    async def _dial(self) -> float:
        """Dial once and stay until the connection is lost; seconds to wait before the next time."""
        context = self._context
        if self._feed.trust.credentials() is None:
            # Nothing is dialled, so nothing is backed off from. A feed that is just being joined
            # has its links a moment later.
            if self._lacked_chain:
                self._note("this node has no unexpired chain for the feed")
            self._lacked_chain = True
            return context.jittered(context.sync.retry_first)
        self._lacked_chain = False
        asked_too_much = False
        try:
            endured = await dial_once(
                self._endpoint,
                self._factory,
                context.clock,
                connected=self._connected,
                ready=self._became_secure,
                failed=self._failed,
            )
        finally:
            if self._peer is not None and self._peer.is_lost:
                peering = self._peer.peering
                asked_too_much = peering is not None and peering.was_asked_too_much
                self._peer = None
        sync = context.sync
        if endured >= STEADY_SECONDS or asked_too_much:
            # What ended for asking too much is dialled again at once, and asked for less.
            self._failures = 0
            return context.jittered(sync.retry_first)
        self._failures += 1
        wait = retry_wait(self._failures, first=sync.retry_first, longest=sync.retry_longest)
        return context.jittered(wait)

    def _connected(self, peer: PeerProtocol) -> None:
        self._peer = peer

    def _became_secure(self, peer: PeerProtocol) -> None:
        self.last_problem = self.last_close_kind = None
        if peer.peering is not None:
            self.answered = peer.peering.remote_key
        if self._secure is not None:
            self._secure(peer)

    def _failed(self, error: Exception) -> None:
        self._note(Failure(error).getErrorMessage())
        if isinstance(error, CloseReason):
            self.last_close_kind = error.kind

    def _note(self, problem: str) -> None:
        """Keep why an attempt failed; each reason is logged once, not at every attempt."""
        if not self._running or problem == self.last_problem:
            return
        self.last_problem = problem
        address = str(self.address)
        text = "No peer at {address}: {why}"
        if self._attempts is not None:
            # Anyone may have announced it, and many more.
            self._found.tell("no-peer", self.address.network, text, address=address, why=problem)
            return
        log.info(text, address=address, why=problem, peer=address, feed=self._feed.log_name)

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure(
                "Dialling {address} ended",
                failure=failure,
                address=str(self.address),
                feed=self._feed.log_name,
            )

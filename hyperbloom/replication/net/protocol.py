"""One connection: the Twisted Protocol around `hyperbloom.wire.Session`.

It moves bytes, sets timers and applies back-pressure, nothing else: what a frame means once the
connection is secure is `peering`'s, what is sent and when `outflow`'s and `jobs`'s.

Frames are taken from the session one at a time. While the peering is behind (values that wait
for the disk, questions that wait for an answer) none is taken and the transport is paused, so
that TCP slows the peer. (`Peering.is_behind` sees to it that two nodes that are both held up by
the other's questions do not wait for each other.) No turn of the reactor takes more than its
share (`reactor_budget`).

Closing has two stages: what is buffered is flushed, and after `close_seconds` the connection is
cut. The handshake has its time; only valid frames count as life.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection as TCPConnection
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import network_of
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.shares import Share
from hyperbloom.replication.limits import EARLY_READ_BYTES
from hyperbloom.replication.sync.peer import Connection, Peering, extensions_of
from hyperbloom.trust import ChainExpired
from hyperbloom.wire import (
    ConnectionEnded,
    Event,
    FrameTooLong,
    HandshakeReceived,
    LocalProtocolError,
    OpenReceived,
    PeerTurnedAway,
    RemoteProtocolError,
    Session,
    UntrustedPeer,
    Waiting,
)

if TYPE_CHECKING:
    from hyperbloom.replication.feed.feed import Feed
    from hyperbloom.replication.net.connections import Connections

__all__ = ["PeerProtocol"]

NONCE_BYTES = 24

#: A peer whose machine or network is gone says nothing. It is noticed after some two minutes, so
#: that it is let in again when it comes back: until then its new connection is a twin of the old.
#: Seconds, seconds, a number, and milliseconds that what was sent may wait to be confirmed.
_SILENCE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}

log = Logger()


def _notice_silence(transport: TCPConnection) -> None:
    """Have the system look whether the peer is still there; by default it waits two hours."""
    transport.setTcpKeepAlive(True)
    for name, number in _SILENCE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            transport.getHandle().setsockopt(socket.IPPROTO_TCP, option, number)


class PeerProtocol(Protocol):
    """A connection about one feed. `feed` None: the other side dialled and will say which."""

    def __init__(self, connections: Connections, feed: Feed | None) -> None:
        self.connections = connections
        self.context = connections.context
        self.feed = feed
        self.outgoing = feed is not None
        self.session = Session(leeway=self.context.leeway, refuses=self._why_unwanted)
        self.peering: Peering | None = None
        self.close_reason: CloseReason | None = None
        self.network = self.address = "unknown"
        self.bytes_in = self.bytes_out = self.strikes = 0
        #: The connection ended because more was asked than the peer can answer; less will be.
        self.asked_too_much = False
        self._lost = False
        self._holding = False
        #: Waits in the row of `ReactorBudget`.
        self._in_row = False
        self._waiting: list[Deferred[PeerProtocol]] = []
        self._waiting_for_end: list[Deferred[None]] = []
        self._handshake_call: IDelayedCall | None = None
        self._close_call: IDelayedCall | None = None

    @property
    def _wire(self) -> TCPConnection:
        return cast(TCPConnection, self.transport)

    # Life of the connection

    def connectionMade(self) -> None:
        """Greet the peer (when we dialled) and give it its time for the handshake."""
        peer = self._wire.getPeer()
        host = str(getattr(peer, "host", "local"))
        self.network = network_of(host)
        self.address = f"{host}:{getattr(peer, 'port', 0)}"
        self._wire.bufferSize = EARLY_READ_BYTES
        if hasattr(self._wire, "setTcpNoDelay"):
            self._wire.setTcpNoDelay(True)
            _notice_silence(self._wire)
        refusal = self.connections.admit(self)
        if refusal is not None:
            self.abort(refusal)
            return
        self._handshake_call = self.context.clock.callLater(
            self.context.limits.handshake_seconds,
            self.close,
            CloseReason("slow", "the handshake did not come in time"),
        )
        if self.feed is not None:
            self._open(self.feed)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop every timer and tell who waits."""
        self._lost = True
        for call in (self._handshake_call, self._close_call):
            if call is not None and call.active():
                call.cancel()
        if self.peering is not None:
            if self.peering.awaits_reply and self.close_reason is None:
                self._ask_for_less(self.peering)
            self.peering.stop()
        self.session.close()
        self.context.shares.strangers.forget(self.look_again)
        self.connections.forget(self)
        self._fail_waiting(self.close_reason or CloseReason("lost", "the connection was lost"))
        waiting, self._waiting_for_end = self._waiting_for_end, []
        for deferred in waiting:
            deferred.callback(None)

    def close(self, why: CloseReason) -> None:
        """Flush, then cut after `close_seconds`; no frame is taken any more."""
        if self._lost or self.close_reason is not None:
            return
        self._give_up(why)
        self._wire.resumeProducing()
        self._wire.loseConnection()
        self._close_call = self.context.clock.callLater(
            self.context.limits.close_seconds, self._wire.abortConnection
        )

    def abort(self, why: CloseReason) -> None:
        """Cut at once."""
        if not self._lost:
            if self.close_reason is None:
                self._give_up(why)
            self._wire.abortConnection()

    def _give_up(self, why: CloseReason) -> None:
        self.close_reason = why
        self.connections.refused(self, why)
        if self.peering is not None:
            self.peering.stop()
            self._wire.unregisterProducer()
        self.session.close()
        self._fail_waiting(why)

    def when_secure(self) -> Deferred[PeerProtocol]:
        """Fires when the handshake is done; fails with `CloseReason` where it comes to nothing."""
        deferred: Deferred[PeerProtocol] = Deferred()
        if self.close_reason is not None or self._lost:
            deferred.errback(self.close_reason or CloseReason("lost", "the connection was lost"))
        elif self.peering is not None:
            deferred.callback(self)
        else:
            self._waiting.append(deferred)
        return deferred

    def when_lost(self) -> Deferred[None]:
        """Fires when the connection is gone, for whatever reason."""
        deferred: Deferred[None] = Deferred()
        if self._lost:
            deferred.callback(None)
        else:
            self._waiting_for_end.append(deferred)
        return deferred

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._lost

    def _fail_waiting(self, why: CloseReason) -> None:
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.errback(why)

    # Bytes in

    def dataReceived(self, data: bytes) -> None:
        """Hand the bytes to the session and take what frames they complete."""
        if self.close_reason is not None:
            return
        self.bytes_in += len(data)
        try:
            self.session.receive_data(data)
        except LocalProtocolError as error:
            # Reading was paused and bytes came all the same; nothing of the peer's is kept.
            log.error("{peer}: {why}", peer=self.address, why=error)
            self.abort(CloseReason("failed", "this node could not go on with the connection"))
            return
        self._pump()

    def _pump(self) -> None:
        share, begun = self._share, self.context.work_seconds()
        try:
            self._take_frames()
        finally:
            # The first time a connection becomes secure, its frames until then are the strangers'.
            self.context.shares.charge(share, self.context.work_seconds() - begun)

    def _take_frames(self) -> None:
        while self.close_reason is None and not self._lost and not self._hold():
            whose = self._whose
            if not self.connections.reactor_budget.take(whose):
                # What else is buffered waits for a later turn of the reactor.
                self._in_row = True
                self._wire.pauseProducing()
                self.connections.reactor_budget.wait(
                    whose, self._next_turn, is_stranger=self.peering is None
                )
                return
            if not self._take_next():
                return

    def _take_next(self) -> bool:
        """Take a frame; whether there may be another one."""
        try:
            event = self.session.next_event(now=self.context.now())
        except RemoteProtocolError as error:
            self._blame(error)
            return False
        if isinstance(event, Waiting):
            return False
        self._take(event)
        return True

    def _next_turn(self) -> None:
        self._in_row = False
        if self.close_reason is None and not self._lost:
            if not self._holding:
                self._wire.resumeProducing()
            self._pump()

    def _hold(self) -> bool:
        """Whether no frame may be taken now; pauses and resumes the transport on a change."""
        hold = self._is_behind
        if hold and self.peering is not None:
            self.peering.wait_for_room()
        elif hold:
            self._share.wait(self.look_again)
            self._share.wake_after_rest(self.context.clock)
        if hold != self._holding:
            self._holding = hold
            if hold:
                self._wire.pauseProducing()
            elif not self._in_row:
                self._wire.resumeProducing()
        return hold or self._in_row

    @property
    def _is_behind(self) -> bool:
        """Whether nothing is read: of strangers that came in, while all of them have to rest."""
        if self.peering is not None:
            return self.peering.is_behind
        return not self.outgoing and self.context.shares.rests(self._share) > 0

    @property
    def _share(self) -> Share:
        return self.context.shares.strangers if self.peering is None else self.peering.share

    @property
    def _whose(self) -> Hashable:
        """Who takes turns with others: a key, or an address that has proved none."""
        return self.network if self.peering is None else self.peering.share

    def look_again(self) -> None:
        """Go on taking frames if the peering is no longer behind."""
        if self._holding and self.close_reason is None and not self._lost:
            self._pump()

    def _take(self, event: Event) -> None:
        match event:
            case OpenReceived():
                self._take_open(event.feed)
            case HandshakeReceived():
                self._take_handshake(event)
            case ConnectionEnded():
                self.close(CloseReason("lost", "the peer closed the connection"))
            case _ if self.peering is not None:
                self.peering.take(event)
            case _:
                log.debug("{peer}: {event}", peer=self.address, event=type(event).__name__)

    def _blame(self, error: RemoteProtocolError) -> None:
        if isinstance(error, PeerTurnedAway):
            self.close(CloseReason("crowded", str(error)))
            return
        if isinstance(error, UntrustedPeer):
            kind = "expired" if isinstance(error.reason, ChainExpired) else "untrusted"
            self.close(CloseReason(kind, str(error)))
            return
        peering = self.peering
        if isinstance(error, FrameTooLong) and peering is not None and peering.awaits_reply:
            # It cannot split its replies, and the values we asked for were longer than the mean.
            self._ask_for_less(peering)
        else:
            self._strike(str(error))
        self.close(CloseReason("protocol", str(error)))

    def _ask_for_less(self, peering: Peering) -> None:
        self.asked_too_much = peering.feed.reply_was_too_big(peering.remote_key)

    def _strike(self, what: str) -> None:
        self.strikes += 1
        self.connections.strike(self, what)

    # Bytes out

    def write(self, data: bytes) -> None:
        """Send bytes made by the session."""
        if self.close_reason is None and not self._lost:
            self.bytes_out += len(data)
            self._wire.write(data)

    def _open(self, feed: Feed) -> bool:
        credentials = feed.credentials()
        if credentials is None:
            self.close(CloseReason("no-chain", "this node has no unexpired chain for the feed"))
            return False
        self.write(
            self.session.send_open(credentials, nonce=self.context.random_bytes(NONCE_BYTES))
        )
        return True

    def _take_open(self, discovery_key: bytes) -> None:
        if self.feed is None:
            feed = self.connections.feed_of(discovery_key)
            if feed is None:
                self.close(CloseReason("unknown-feed", "it asked for a feed that is not here"))
                return
            if not self._open(feed):
                return
            self.feed = feed
            self.connections.knows_feed(self)
        self.write(
            self.session.send_handshake(
                peer_id=self.context.peer_id, extensions=extensions_of(self.feed)
            )
        )

    def _why_unwanted(self, key: bytes) -> str | None:
        return None if self.outgoing else self.connections.why_unwanted(self, key)

    def _take_handshake(self, event: HandshakeReceived) -> None:
        refusal = self.connections.check_secure(self, event.peer)
        if refusal is not None or self.feed is None:
            self.close(refusal or CloseReason("protocol", "it shook hands about no feed"))
            return
        if self._handshake_call is not None:
            self._handshake_call.cancel()
            self._handshake_call = None
        self._wire.bufferSize = TCPConnection.bufferSize
        connection = Connection(
            name=self.address,
            outgoing=self.outgoing,
            write=self.write,
            release=self.look_again,
            strike=self._strike,
            close=self.close,
            tell=lambda kind, what: self.connections.tell(self, kind, what),
        )
        self.peering = Peering(connection, self.feed, self.session, event.peer)
        self._wire.registerProducer(self.peering.outflow, True)
        self.peering.start()
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            deferred.callback(self)

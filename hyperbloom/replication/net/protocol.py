"""One connection: the Twisted Protocol around `hyperbloom.wire.Session`.

It moves bytes, sets timers and applies back-pressure, nothing else: what a frame means once the
connection is secure, and what is sent and when, is in `hyperbloom.replication.sync`.

Its life, and how frames are taken one at a time, are in `hyperbloom.connections.connection`. It is
behind while values of the peer wait for the disk, or questions for an answer. (`Peering.is_behind`
sees to it that two nodes that are both held up by the other's questions do not wait for each
other.)
"""

from __future__ import annotations

import socket
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection as TCPConnection
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.connection import PeerConnection
from hyperbloom.connections.shares import Share
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import EARLY_READ_BYTES
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.sync.peer import Peering, extensions_of
from hyperbloom.trust import ChainExpired
from hyperbloom.wire import (
    LocalProtocolError,
    RemoteProtocolError,
    Session,
    UntrustedPeer,
)
from hyperbloom.wire.errors import (
    AnnouncementStripped,
    FrameTooLong,
    PeerTurnedAway,
    StreamAltered,
)
from hyperbloom.wire.events import (
    ConnectionEnded,
    Event,
    HandshakeReceived,
    NoiseReceived,
    OpenReceived,
    RemotePeer,
    Waiting,
)
from hyperbloom.wire.extensions.noise import EPHEMERAL_BYTES

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


class PeerProtocol(PeerConnection):
    """A connection about one feed. `feed` None: the other side dialled and will say which."""

    def __init__(self, admission: Admission, feed: Feed | None) -> None:
        self.context = context = admission.context
        super().__init__(admission, context.clock, admission.times, outgoing=feed is not None)
        self.admission = admission
        self.feed = feed
        self._made = context.work_seconds()
        self.session = Session(
            dialled=self.outgoing, leeway=context.leeway, refuses=self._why_unwanted
        )
        self.peering: Peering | None = None
        self.strikes = 0

    # Life of the connection

    def connectionMade(self) -> None:
        """Greet the peer (when we dialled) and give it its time for the handshake."""
        self.wire.bufferSize = EARLY_READ_BYTES
        super().connectionMade()
        if not self.outgoing:
            shares = self.context.shares
            shares.charge(shares.strangers, self.context.work_seconds() - self._made)
            self.admission.door.look()

    def _greet(self) -> None:
        if self.feed is not None:
            self._open(self.feed)

    def close(self, why: CloseReason) -> None:
        """Say the end to a protected peer, and close."""
        if not self.is_ending:
            self.write(self.session.send_end())
        super().close(why)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop every timer and tell who waits."""
        share, begun = self._share, self.context.work_seconds()
        if self.close_reason is None and self.session.is_protected:
            self._was_cut()
        if self.peering is not None and self.close_reason is None:
            self.peering.reply_was_too_big()
        super().connectionLost(reason)
        if not self.outgoing:
            self.context.shares.charge(share, self.context.work_seconds() - begun)

    def _was_cut(self) -> None:
        if not self.session.end_received:
            self.close_reason = CloseReason("cut", "the connection was cut: the peer said no end")
            self.admission.closing(self, self.close_reason)

    def _stop(self) -> None:
        if self.peering is not None:
            self.peering.stop()
            if not self.is_lost:
                self.wire.unregisterProducer()
        self.session.close()
        self.context.shares.strangers.forget(self.look_again)

    # Bytes in

    def _receive(self, data: bytes) -> None:
        with self._charging():
            self._take_bytes(data)

    def _take_bytes(self, data: bytes) -> None:
        try:
            self.session.receive_data(data)
        except LocalProtocolError as error:
            # Reading was paused and bytes came all the same; nothing of the peer's is kept.
            log.error("{peer}: {why}", peer=self.address, why=error)
            self.abort(CloseReason("failed", "this node could not go on with the connection"))
            return
        self._take_frames()

    def _look_for_frames(self) -> None:
        with self._charging():
            self._take_frames()

    @contextmanager
    def _charging(self) -> Iterator[None]:
        """What is done meanwhile is the peer's; until a connection is secure the strangers'."""
        share, begun = self._share, self.context.work_seconds()
        try:
            yield
        finally:
            self.context.shares.charge(share, self.context.work_seconds() - begun)

    def _take_next(self) -> bool:
        try:
            event = self.session.next_event(now=self.context.now())
        except RemoteProtocolError as error:
            self._blame(error)
            return False
        if isinstance(event, Waiting):
            return False
        self._take(event)
        return True

    @property
    def _is_behind(self) -> bool:
        """Whether nothing is read: of strangers that came in, while all of them have to rest."""
        if self.peering is not None:
            return self.peering.is_behind
        return not self.outgoing and self.context.shares.rests(self._share) > 0

    def _wait_for_room(self) -> None:
        if self.peering is not None:
            self.peering.wait_for_room()
        else:
            self._share.wait(self.look_again)
            self._share.wake_after_rest(self.context.clock)

    @property
    def _share(self) -> Share:
        return self.context.shares.strangers if self.peering is None else self.peering.share

    @property
    def _whose(self) -> Hashable:
        """A key, or the network of an address that has proved none."""
        return self.network if self.peering is None else self.peering.share

    def _take(self, event: Event) -> None:
        match event:
            case OpenReceived():
                self._take_open(event.feed)
            case HandshakeReceived():
                self._take_handshake(event)
            case NoiseReceived():
                self._take_noise()
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
        if isinstance(error, AnnouncementStripped):
            self.close(CloseReason("stripped", str(error)))
            return
        if isinstance(error, StreamAltered):
            # The peer is the one to be harmed by it: no strike.
            self.close(CloseReason("altered", str(error)))
            return
        if isinstance(error, UntrustedPeer):
            kind = "expired" if isinstance(error.reason, ChainExpired) else "untrusted"
            self.close(CloseReason(kind, str(error)))
            return
        peering = self.peering
        is_too_long = isinstance(error, FrameTooLong)
        if not (is_too_long and peering is not None and peering.reply_was_too_big()):
            self.strike(str(error))
        self.close(CloseReason("protocol", str(error)))

    # What the peering needs of its connection (`peer_output.Connection`)

    @property
    def name(self) -> str:
        """HOST:PORT of the peer."""
        return self.address

    def strike(self, what: str) -> None:
        """The peer broke a rule, in words."""
        self.strikes += 1
        self.admission.strike(self, what)

    def tell(self, kind: str, what: str) -> None:
        """Something of the peer's, for the log."""
        self.admission.tell(self, kind, what)

    # The handshake

    def _open(self, feed: Feed) -> bool:
        credentials = feed.trust.credentials()
        if credentials is None:
            self.close(CloseReason("no-chain", "this node has no unexpired chain for the feed"))
            return False
        nonce = self.context.random_bytes(NONCE_BYTES)
        self.write(self.session.send_open(credentials, nonce=nonce, speaks_noise=feed.speaks_noise))
        return True

    def _take_open(self, discovery_key: bytes) -> None:
        if self.feed is None:
            feed = self.admission.feed_of(discovery_key)
            if feed is None:
                self.close(CloseReason("unknown-feed", "it asked for a feed that is not here"))
                return
            if not self._open(feed):
                return
            self.feed = feed
            self.admission.knows_feed(self)
        self.write(
            self.session.send_handshake(
                peer_id=self.context.peer_id, extensions=extensions_of(self.feed)
            )
        )

    def use_rates(self) -> None:
        """Hold to the rates of `[limits]`: the connection is secure, or they have changed."""
        if self.peering is not None:
            self.use_bandwidth(self.context.bandwidth, self.peering.scheduler)

    def _why_unwanted(self, key: bytes) -> str | None:
        return None if self.outgoing else self.admission.why_unwanted(self, key)

    def _take_handshake(self, event: HandshakeReceived) -> None:
        if event.speaks_noise:
            self._send_noise()
            return
        reason = self.admission.why_unprotected(self, event.peer)
        if reason is not None:
            self.close(reason)
            return
        self._become_secure(event.peer)

    def _take_noise(self) -> None:
        self._send_noise()
        remote = self.session.remote
        if remote is not None:
            self._become_secure(remote)

    def _send_noise(self) -> None:
        """Send our NoiseMessage, if it is its turn."""
        if self.session.noise_is_due:
            self.write(
                self.session.send_noise(ephemeral=self.context.random_bytes(EPHEMERAL_BYTES))
            )

    def _become_secure(self, remote: RemotePeer) -> None:
        reason = self.admission.check_secure(self, remote)
        if reason is not None or self.feed is None:
            self.close(reason or CloseReason("protocol", "it shook hands about no feed"))
            return
        self.admission.became_secure(self, remote)
        self.wire.bufferSize = TCPConnection.bufferSize
        if hasattr(self.wire, "setTcpKeepAlive"):
            _notice_silence(self.wire)
        self.peering = Peering(self, self.feed, self.session, remote)
        self.use_rates()
        self.peering.start()
        self.became_ready()

"""One connection: the Twisted Protocol around `hyperbloom.wire.Session`.

It moves bytes, sets timers and applies back-pressure, nothing else: what a frame means once the
connection is secure, and what is sent and when, is in `hyperbloom.replication.sync`.

Its life, and how frames are taken one at a time, are in `hyperbloom.connections.connection`. It is
behind while values of the peer wait for the disk, or questions for an answer. (`Peering.is_behind`
sees to it that two nodes that are both held up by the other's questions do not wait for each
other.)

A peer that has said its end (a record of no bytes, or without `noise` the end of its bytes) is sent
what it has asked for, up to `OWED_BYTES` within `OWED_SECONDS`, then our end, and is closed.
"""

from __future__ import annotations

import socket
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import cast

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.internet.tcp import Connection as TCPConnection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from hyperbloom.connections.branches import Share
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.connection import PeerConnection
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import EARLY_READ_BYTES, OWED_BYTES, OWED_SECONDS
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.sync.peer import Peering, extensions_of
from hyperbloom.trust import Chain, ChainExpired
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
    PeerEnded,
    RemotePeer,
    UnknownIgnored,
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


@implementer(IHalfCloseableProtocol)
class PeerProtocol(PeerConnection):
    """A connection about one feed. `feed` None: the other side dialled and will say which."""

    #: Whether a message was skipped, which the log is told once; whether the peer has ended and was
    #: sent all that it was owed; and the bytes that had been sent when it said its end, None: it
    #: has not. Few connections set these.
    _has_skipped = _is_answered = False
    _owed_from: int | None = None

    def __init__(self, admission: Admission, feed: Feed | None) -> None:
        self.context = context = admission.context
        super().__init__(admission, context.clock, admission.times, outgoing=feed is not None)
        self.feed = feed
        #: What it has cost while it was a stranger's, in seconds; until it is made, when it began.
        self._as_stranger = 0.0 if self.outgoing else context.work_seconds()
        #: Whether its Handshake has to wait; whether the peer has shown that it holds the keys of
        #: the protected stream.
        self._waits_for_branch = self._is_confirmed = False
        self.session = Session(
            dialled=self.outgoing,
            leeway=context.leeway,
            refuses=self._why_unwanted,
            waits=self._has_to_wait,
        )
        self.peering: Peering | None = None
        self.strikes = 0

    @property
    def admission(self) -> Admission:
        """Who lets it in. Python shares the keys of few enough attributes: 1.5 KB a connection."""
        return cast("Admission", self._registry)

    # Life of the connection

    def connectionMade(self) -> None:
        """Greet the peer (when we dialled) and give it its time for the handshake."""
        self.wire.bufferSize = EARLY_READ_BYTES
        super().connectionMade()
        if not self.outgoing:
            begun, self._as_stranger = self._as_stranger, 0.0
            self._charge_stranger(self.context.work_seconds() - begun)
            self.admission.door.look()

    def _greet(self) -> None:
        if self.feed is not None:
            self._open(self.feed)

    def close(self, why: CloseReason) -> None:
        """Say the end to a protected peer, and close; one that is still owed something is cut."""
        if self.input_ended and not self._is_answered:
            self.abort(why)
            return
        if not self.is_ending:
            self.write(self.session.send_end())
        super().close(why)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop every timer and tell who waits."""
        share, begun = self._share, self.context.work_seconds()
        if self.close_reason is None and self.session.is_protected:
            self._was_cut()
        if self.peering is not None and self.close_reason is None and self._owed_from is None:
            self.peering.reply_was_too_big()
        super().connectionLost(reason)
        if not self.outgoing:
            self.context.shares.charge(share, self.context.work_seconds() - begun)

    def _was_cut(self) -> None:
        if not self.session.end_received:
            self.close_reason = self._why_ended()
            self.admission.closing(self, self.close_reason)

    def _why_ended(self) -> CloseReason:
        if self.session.end_received:
            return CloseReason("lost", "the peer closed the connection")
        return CloseReason("cut", "the connection was cut: the peer said no end")

    # The peer's end

    def readConnectionLost(self) -> None:
        """The transport brings nothing more; the peer may still read."""
        self._end_input()
        if not self.is_ending:
            self.session.end_data()
            self.later(OWED_SECONDS, self._owes_too_much)
            self._look_for_frames()

    def writeConnectionLost(self) -> None:
        """Our half is never closed alone."""

    def write(self, data: bytes) -> None:
        """Send bytes; a peer that has ended is cut where they have become too many."""
        super().write(data)
        if self._owed_from is not None and self.bytes_out - self._owed_from > OWED_BYTES:
            self._owes_too_much()

    def _owes_too_much(self) -> None:
        """Cut, and say no end: the peer has not got all that it has asked for."""
        self.abort(CloseReason("stalled", "it has ended, and asked for more than it is sent then"))

    def _answer_and_close(self, peering: Peering) -> None:
        """The peer has said its end: send it what it has asked for, and close."""
        peering.reply_was_too_big()
        if not self.input_ended:
            self._end_input()
            self.later(OWED_SECONDS, self._owes_too_much)
        self._owed_from = self.bytes_out
        peering.finish(self._hang_up)

    def _hang_up(self) -> None:
        """The peer has ended, and is owed nothing; or its bytes have, and it has said no end.

        Then we say none either: to a peer whose end was held back on the path, ours would say that
        all that it has asked for was answered.
        """
        self._is_answered = True
        if self.session.is_protected and self.session.end_received:
            self.close(self._why_ended())
        elif self.session.is_protected:
            super().close(self._why_ended())
        else:
            # As if its end had ended the connection at once.
            self._stop()
            self.wire.loseConnection()

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
        self._look_whether_confirmed()
        self._take_frames()

    def _look_whether_confirmed(self) -> None:
        """Remember the peer as speaking `noise` once it has shown that it holds the keys."""
        remote = self.session.remote
        if not self._is_confirmed and remote is not None and self.session.is_confirmed:
            self._is_confirmed = True
            self.admission.confirmed(self, remote)

    def _look_for_frames(self) -> None:
        with self._charging():
            self._take_frames()

    @contextmanager
    def _charging(self) -> Iterator[None]:
        """What is done meanwhile is the peer's; until a connection is secure the strangers'.

        Once it is, what it has cost so far is the peer's as well, and given back to the strangers.
        """
        was_stranger, begun = self.peering is None, self.context.work_seconds()
        try:
            yield
        finally:
            seconds = self.context.work_seconds() - begun
            if not was_stranger:
                self.context.shares.charge(self._share, seconds)
            elif self.peering is None or self.outgoing:
                self._charge_stranger(seconds)
            else:
                self.context.shares.was_a_strangers(
                    self._share, self._as_stranger + seconds, counted=self._as_stranger
                )

    def _charge_stranger(self, seconds: float) -> None:
        shares = self.context.shares
        shares.charge(shares.strangers, seconds)
        self._as_stranger += seconds

    def _take_next(self) -> bool:
        begun = self.context.work_seconds()
        try:
            event = self.session.next_event(now=self.context.now())
        except RemoteProtocolError as error:
            self._blame(error)
            return False
        if isinstance(event, Waiting):
            return self._waits_for_branch  # then it is behind, and reads nothing
        self._take(event)
        if self.peering is not None:
            self.peering.took(event, self.context.work_seconds() - begun)
        return True

    @property
    def _is_behind(self) -> bool:
        """Whether nothing is read: of strangers that came in, while all of them have to rest.

        And of one that has said whom it is below, while that branch has to.
        """
        if self.peering is not None:
            return self.peering.is_behind
        if self._waits_for_branch:
            return True
        return not self.outgoing and self.context.shares.rests(self._share) > 0

    def _wait_for_room(self) -> None:
        if self.peering is not None:
            self.peering.wait_for_room()
        elif not self._waits_for_branch:
            self._share.wait(self.look_again)
            self.context.shares.wake_after_rest(self._share)

    @property
    def _share(self) -> Share:
        return self.context.shares.strangers if self.peering is None else self.peering.share

    @property
    def _whose(self) -> tuple[Hashable, ...]:
        """A path, or the network of an address that has proved no key."""
        return (self.network,) if self.peering is None else self.peering.path

    def _take(self, event: Event) -> None:
        match event:
            case OpenReceived():
                self._take_open(event.feed)
            case HandshakeReceived():
                self._take_handshake(event)
            case NoiseReceived():
                self._take_noise()
            case ConnectionEnded():
                self._hang_up()
            case UnknownIgnored():
                self._skipped(event.message_id)
            case PeerEnded() if self.peering is not None:
                self._answer_and_close(self.peering)
            case _ if self.peering is not None:
                self.peering.take(event)
            case _:
                log.debug("{peer}: {event}", peer=self.address, event=type(event).__name__)

    def _skipped(self, message_id: int) -> None:
        """A message means nothing between the two; the log is told of a connection's first."""
        if not self._has_skipped:
            self._has_skipped = True
            self.tell("skipped", f"its message {message_id} means nothing here, and is skipped")

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

    def _why_unwanted(self, chain: Chain) -> str | None:
        return None if self.outgoing else self.admission.why_unwanted(self, chain)

    def _has_to_wait(self, chain: Chain) -> bool:
        """Whether the branch that a stranger names has to rest: its Handshake costs it as well.

        Nothing is verified, so whoever names another's waits for nothing.
        """
        if self.outgoing or self.feed is None:
            return False
        path = self.feed.trust.path_of(chain)
        self._waits_for_branch = self.context.shares.wait_below(path, self._branch_rested)
        return self._waits_for_branch

    def _branch_rested(self) -> None:
        self._waits_for_branch = False
        self.look_again()

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
        self.admission.became_secure(self)
        self._look_whether_confirmed()
        self.wire.bufferSize = TCPConnection.bufferSize
        if hasattr(self.wire, "setTcpKeepAlive"):
            _notice_silence(self.wire)
        self.peering = Peering(self, self.feed, self.session, remote)
        self.use_rates()
        self.peering.start()
        self.became_ready()

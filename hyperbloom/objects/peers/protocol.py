"""One connection of the pool: the Twisted Protocol around `hyperbloom.objects.wire.session`.

It moves bytes, sets timers and applies back-pressure, and leads through the handshake. What comes
about objects is incoming_objects.py's, what the peer is told outgoing_objects.py's; what an offer
comes to is the pool's.

A connection that the peer spoils ends with KICK, as the text asks, and so does every other one that
this node ends. That is for nodes of this kind: the JVM implementation forgets its whole pool at a
KICK, and its classes, so to any other peer the connection is closed without one.
"""

from __future__ import annotations

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.connection import PeerConnection
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.limits import MAX_EARLY_BYTES, MAX_EARLY_MESSAGES, SHORT_MESSAGE_BYTES
from hyperbloom.objects.peers.foreign_side import ForeignSide
from hyperbloom.objects.peers.heartbeat import Heartbeat
from hyperbloom.objects.peers.incoming_objects import IncomingObjects
from hyperbloom.objects.peers.network import PoolNetwork
from hyperbloom.objects.peers.outgoing_objects import KinObjects, OutgoingObjects
from hyperbloom.objects.peers.port import PeerCounters
from hyperbloom.objects.wire.aes import SALT_BYTES, AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError, WrongFlag
from hyperbloom.objects.wire.messagepack import pack, unpack_map
from hyperbloom.objects.wire.payloads import (
    Change,
    Creation,
    Identify,
    Kick,
    Ok,
    Payload,
    Ping,
    Pong,
    Rejection,
    Removal,
    from_map,
    to_map,
)
from hyperbloom.objects.wire.session import (
    KIN,
    KIN_VERSION,
    NEED_ROOM,
    ConnectionEnded,
    Event,
    Session,
    Waiting,
)
from hyperbloom.objects.wire.states import State

__all__ = ["PoolProtocol"]

_ID = "id"
"""The key of the metadata under which a node of this kind tells its process's random id."""

log = Logger()


@implementer(IPushProducer)
class PoolProtocol(PeerConnection):
    """A connection of the pool; `outgoing` tells who dialled, and so who is the client."""

    def __init__(self, pool_network: PoolNetwork, *, outgoing: bool) -> None:
        self.context = context = pool_network.context
        super().__init__(pool_network, context.clock, lambda: context.settings, outgoing=outgoing)
        self._pool_network = pool_network
        self.memory = pool_network.memory
        salt = None if outgoing else context.random_bytes(SALT_BYTES)
        self.session = Session(
            NoProcessing()
            if context.passphrase is None
            else AesProcessing(context.passphrase, salt=salt)
        )
        self.counters = PeerCounters()
        self.version: int | None = None
        #: When it was opened, in seconds since 1970.
        self.since = 0.0
        self._heartbeat = Heartbeat(self, context.clock)
        self.latency = self._heartbeat.latency
        #: What came about objects before the handshake was done, packed.
        self._early: list[bytes] = []
        #: Whether a long message waits for room, and whether one is being taken.
        self._awaits_room = self._has_room = False
        #: From the opening on.
        self.incoming_objects: IncomingObjects | None = None
        self.outgoing_objects: OutgoingObjects | None = None
        self._is_paused = False

    @property
    def is_open(self) -> bool:
        """Whether objects may be sent."""
        return self.is_ready and not self.is_ending and self.session.state is State.OPEN

    @property
    def may_write(self) -> bool:
        """Whether it is open, and its transport takes more."""
        return self.is_open and not self._is_paused

    # Life

    def connectionMade(self) -> None:
        """Introduce ourselves, when we dialled, and give the peer its time."""
        self.wire.registerProducer(self, True)
        super().connectionMade()

    def _greet(self) -> None:
        if self.outgoing:
            version = self.context.settings.version
            self.send(Identify(t=self.now(), v=version, d=self._about()))

    def _turn_away(self, why: CloseReason) -> None:
        self.send(Rejection(t=self.now()))
        self.close(why, kick=False)

    def close(self, why: CloseReason, *, kick: bool = True, harmless: bool = False) -> None:
        """Say KICK to a node of this kind, flush, and cut after `close_seconds`.

        `harmless`: whoever it is, it cannot read the KICK as one.
        """
        if self.is_ending:
            return
        kick = kick and (harmless or self.session.is_kin)
        if kick and self.session.state is not State.CLOSED:
            self.send(Kick(t=self.now()))
        super().close(why)

    def _stop(self) -> None:
        for part in (self.incoming_objects, self.outgoing_objects):
            if part is not None:
                part.stop()
        self._early.clear()
        self.session.close()
        self._awaits_room = False
        self.memory.forget(self)
        if not self.is_lost:
            self.wire.unregisterProducer()

    def now(self) -> int:
        """The time as payloads have it, in ms."""
        return self.context.pool.milliseconds()

    def tell(self, kind: str, what: str) -> None:
        """Something that the peer caused, for the log."""
        self._pool_network.tell(self, kind, what)

    def _about(self) -> dict[str, object]:
        return {KIN: KIN_VERSION, _ID: self.context.node_id}

    # Messages in

    def _receive(self, data: bytes) -> None:
        try:
            self.session.receive_data(data)
        except LocalProtocolError as error:
            log.error("{peer}: {why}", peer=self.address, why=error)
            self.close(CloseReason("failed", "this node could not go on with the connection"))
            return
        self._look_for_frames()

    def _look_for_frames(self) -> None:
        """Take messages while there are some, and offer together what they bring."""
        self._take_frames()
        if self.incoming_objects is not None:
            self.incoming_objects.submit()
        if not self.is_ending:
            self.memory.buffers(self, self.session.buffered_bytes)

    @property
    def _is_behind(self) -> bool:
        if self._awaits_room:
            return True
        return self.incoming_objects is not None and self.incoming_objects.is_behind

    def _take_next(self) -> bool:
        try:
            if self.incoming_objects is not None and self.incoming_objects.take_next():
                return True
            if self._has_room:
                self._has_room = False
                self.memory.took_long(self)
            event = self.session.next_event(SHORT_MESSAGE_BYTES)
            if event is NEED_ROOM:
                if not self.memory.may_take_long(self):
                    self._awaits_room = True
                    return True
                self._has_room = True
                event = self.session.next_event()
        except RemoteProtocolError as error:
            harmless = isinstance(error, WrongFlag) and not self.session.heard
            self.close(CloseReason("protocol", str(error)), harmless=harmless)
            return False
        if isinstance(event, Waiting):
            return False
        self._heartbeat.heard()
        self._take(event)
        return True

    def room_came(self) -> None:
        """It may take its long message, in a turn of its own: to read one takes some 20 ms."""
        self._awaits_room = False
        self.later(0, self.look_again)

    def _take(self, event: Event) -> None:
        match event:
            case Identify():
                self._take_identify(event)
            case Ok():
                self._take_ok(event)
            case Rejection():
                self.close(CloseReason("rejected", "the peer rejected this node"), kick=False)
            case Ping():
                self._heartbeat.answer_ping(is_paused=self._is_paused)
            case Pong():
                if self._heartbeat.take_pong() and self.outgoing_objects is not None:
                    self.outgoing_objects.pong_came()
            case Kick():
                self.close(CloseReason("kicked", "the peer said KICK"), kick=False)
            case ConnectionEnded():
                self.close(CloseReason("lost", "the peer closed the connection"), kick=False)
            case _ if self.incoming_objects is not None:
                self.incoming_objects.take(event)
            case Creation() | Change() | Removal() if self.context.passphrase is None:
                # With the AES flag they are in the clear, and anybody's.
                self._keep_early(event)

    def _keep_early(self, event: Creation | Change | Removal) -> None:
        packed = pack(to_map(event))
        size = len(packed) + sum(map(len, self._early))
        if len(self._early) < MAX_EARLY_MESSAGES and size <= MAX_EARLY_BYTES:
            self._early.append(packed)

    # The handshake

    def _take_identify(self, identify: Identify) -> None:
        about = identify.d or {}
        if about.get(_ID) == self.context.node_id:
            self._turn_away(CloseReason("own", "this node dialled itself"))
            return
        if (reason := self._wrong_rule()) is not None:
            self._turn_away(reason)
            return
        self.version = identify.v
        decision = maybeDeferred(self.context.decide, identify, self.address)
        decision.addCallbacks(self._decided, self._undecided)

    def _decided(self, accepted: bool) -> None:
        if self.is_ending:
            return
        if not accepted:
            self._turn_away(CloseReason("rejected", "the application does not let it in"))
            return
        self.send(Ok(t=self.now(), v=self.context.settings.version, d=self._about()))
        self._begin(self.version)
        self._look_for_frames()

    def _undecided(self, failure: Failure) -> None:
        log.failure("The decision about {peer} failed", failure, peer=self.address)
        self._decided(False)

    def _take_ok(self, ok: Ok) -> None:
        if self.outgoing_objects is not None:
            self.outgoing_objects.begin_pool_sync()
        elif (reason := self._wrong_rule()) is not None:
            self.close(reason)
        else:
            self._begin(ok.v)

    def _wrong_rule(self) -> CloseReason | None:
        """The pools would part without a word: hardly an object has the same hash by both rules."""
        if not self.session.is_jvm or self.context.pool.types.rule is HashRule.JVM:
            return None
        return CloseReason(
            "rule", 'it is the JVM implementation; set hash_rule = "jvm" under [objects] for it'
        )

    def _begin(self, version: int | None) -> None:
        """The connection is open: send the pool, and measure the latency."""
        early, self._early = self._early, []
        if self.session.is_kin and early:
            self.close(CloseReason("protocol", "objects came before the handshake"))
            return
        self.version = version
        self.since = self.context.now()
        outgoing = self._outgoing_side()
        incoming = IncomingObjects(self, outgoing)
        self.incoming_objects, self.outgoing_objects = incoming, outgoing
        self.became_ready()
        for packed in early:
            incoming.take(from_map(unpack_map(packed)))
        outgoing.begin()
        self._heartbeat.ping()

    def _outgoing_side(self) -> OutgoingObjects:
        if self.session.is_kin:
            return KinObjects(self)
        return ForeignSide(self, ask_late=not self._pool_network.may_ask(self.address))

    # Messages out

    def send(self, payload: Payload) -> None:
        """Send a payload that is not about objects, before everything that waits."""
        self.send_compressed(type(payload), compressed(payload))

    def send_compressed(self, kind: type[Payload], data: bytes) -> None:
        """Send a payload of this kind that is compressed already."""
        if not self.is_ending:
            self.write(self.session.send_compressed(kind, data))

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        self._heartbeat.ping()

    def look(self) -> None:
        """Called now and then: PING, and notice that the peer is gone, or may be read again."""
        if self.is_open:
            self.look_again()
            self._heartbeat.look(is_held=self._is_held)

    # What the transport says

    def pauseProducing(self) -> None:
        """The peer reads slowly: nothing more is written."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """The peer has caught up."""
        self._is_paused = False
        self._heartbeat.resume()
        if self.outgoing_objects is not None:
            self.outgoing_objects.go_on()

    def stopProducing(self) -> None:
        """The connection is gone; `connectionLost` follows."""

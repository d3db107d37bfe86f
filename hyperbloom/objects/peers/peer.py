"""One connection of the pool: the Twisted Protocol around `session`.

It moves bytes, sets timers and applies back-pressure; what an offer comes to is the pool's. While
objects of the peer wait for the disk beyond `unwritten_bytes`, no message is taken and the
transport is paused, so that TCP slows the peer. What waits for a peer that reads slowly is bounded
by `queued_bytes`: beyond it the peer is kicked, and has the whole pool sent when it comes back.

A connection that the peer spoils ends with KICK, as the text asks, and so does every other one that
this node ends; what is buffered is flushed, and after `close_seconds` the connection is cut. That
is for nodes of this kind: the JVM implementation forgets its whole pool at a KICK, and its classes,
so to any other peer the connection is closed without one. What else such a peer needs is in
foreign_side.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection as TCPConnection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from hyperbloom.objects.classes.hashes import HashRule, record_hash
from hyperbloom.objects.limits import (
    FRAMES_PER_TURN,
    MAX_EARLY_MESSAGES,
    OBJECTS_PER_TURN,
    RESPOND_SECONDS,
    TURN_SECONDS,
)
from hyperbloom.objects.peers import foreign
from hyperbloom.objects.peers.announcements import NEWS, answers, messages
from hyperbloom.objects.peers.counters import PeerFigures
from hyperbloom.objects.peers.foreign import Made, Told
from hyperbloom.objects.peers.foreign_side import ForeignSide
from hyperbloom.objects.peers.parent_selection import MEASUREMENTS, Latency
from hyperbloom.objects.peers.pool_sync import PoolStream
from hyperbloom.objects.wire.aes import SALT_BYTES, AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError, WrongFlag
from hyperbloom.objects.wire.messagepack import check_fields, pack
from hyperbloom.objects.wire.payloads import (
    Change,
    Creation,
    Fields,
    Identify,
    Initialize,
    Kick,
    Ok,
    Payload,
    Ping,
    Pong,
    Rejection,
    Removal,
    Version,
)
from hyperbloom.objects.wire.session import (
    KIN,
    KIN_VERSION,
    ConnectionEnded,
    Event,
    Session,
    Waiting,
)
from hyperbloom.objects.wire.states import State
from hyperbloom.store.limits import MAX_OBJECT_BYTES, MAX_OBJECT_FIELDS
from hyperbloom.store.objects.offers import (
    Offer,
    OfferedChange,
    OfferedObject,
    OfferedRemoval,
)
from hyperbloom.store.objects.records import Outcome, Verdict

if TYPE_CHECKING:
    from hyperbloom.objects.peers.network import PoolNetwork

__all__ = ["Closing", "PoolPeer"]

_ID = "id"
"""The key of the metadata under which a node of this kind tells its process's random id."""

log = Logger()


class Closing(Exception):
    """Why a connection ends; `kind` is one word for programs."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


@implementer(IPushProducer)
class PoolPeer(Protocol):
    """A connection of the pool; `outgoing` tells who dialled, and so who is the client."""

    def __init__(self, network: PoolNetwork, *, outgoing: bool) -> None:
        self.network = network
        self.context = context = network.context
        self.outgoing = outgoing
        salt = None if outgoing else context.random_bytes(SALT_BYTES)
        self.session = Session(
            NoProcessing()
            if context.passphrase is None
            else AesProcessing(context.passphrase, salt=salt)
        )
        self.figures = PeerFigures()
        self.latency = Latency()
        self.closing: Closing | None = None
        self.host = self.address = "unknown"
        self.version: int | None = None
        self.since = 0.0
        self._lost = False
        self._heard = 0.0
        self._pinged: float | None = None
        self._awaited = False
        self._streamed: float | None = None
        self.stream: PoolStream | None = None
        #: For a peer of another kind, once the connection is open.
        self._foreign: ForeignSide | None = None
        #: What came before the handshake was done.
        self._early: list[Event] = []
        self._offers: list[Offer] = []
        self._initializing: set[int] = set()
        #: Of INITIALIZE, what no turn had room for yet.
        self._coming: deque[tuple[Fields, Version | None]] = deque()
        self._unwritten = self._refused = 0
        self._queue: deque[tuple[type[Payload], bytes]] = deque()
        self._queued = 0
        self._paused = self._holding = self._turn_over = self._owes_pong = False
        self._calls: list[IDelayedCall] = []
        self._opened: Deferred[PoolPeer] | None = Deferred()
        self._ended: Deferred[None] = Deferred()

    @property
    def _wire(self) -> TCPConnection:
        return cast(TCPConnection, self.transport)

    @property
    def is_unanswered(self) -> bool:
        """Whether it is of another kind, was asked for its pool, and has not sent it."""
        return self._foreign is not None and self._foreign.is_unanswered

    @property
    def is_open(self) -> bool:
        """Whether objects may be sent."""
        return self.session.state is State.OPEN and self.closing is None and not self._lost

    # Life

    def connectionMade(self) -> None:
        """Introduce ourselves, when we dialled, and give the peer its time."""
        peer = self._wire.getPeer()
        self.host = str(getattr(peer, "host", "local"))
        self.address = f"{self.host}:{getattr(peer, 'port', 0)}"
        if hasattr(self._wire, "setTcpNoDelay"):
            self._wire.setTcpNoDelay(True)
        self._wire.registerProducer(self, True)
        self._heard = self.context.clock.seconds()
        refusal = self.network.admit(self)
        if refusal is not None:
            self._reject(refusal)
            return
        slow = Closing("slow", "the handshake did not come in time")
        self.later(self.context.settings.handshake_seconds, self._unless_open, slow)
        if self.outgoing:
            self.send(Identify(t=self.now(), v=self.context.settings.version, d=self._about()))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop every timer and tell who waits."""
        self._lost = True
        for call in self._calls:
            if call.active():
                call.cancel()
        self.session.close()
        self.stream = None
        self._queue.clear()
        self._coming.clear()
        self._early.clear()
        self.network.forget(self)
        self._settle_opened(self.closing or Closing("lost", "the connection was lost"))
        self._ended.callback(None)

    def close(self, why: Closing, *, kick: bool = True, harmless: bool = False) -> None:
        """Say KICK to a node of this kind, flush, and cut after `close_seconds`.

        `harmless`: whoever it is, it cannot read the KICK as one.
        """
        if self._lost or self.closing is not None:
            return
        self.network.tell(self, why.kind, f"closing, {why}")
        kick = kick and (harmless or self.session.is_kin)
        if kick and self.session.state is not State.CLOSED:
            self._write(Kick, compressed(Kick(t=self.now())))
        self.closing = why
        self.stream = None
        self._queue.clear()
        self._coming.clear()
        self.session.close()
        self._wire.unregisterProducer()
        self._wire.resumeProducing()
        self._wire.loseConnection()
        self.later(self.context.settings.close_seconds, self._wire.abortConnection)
        self._settle_opened(why)

    def when_open(self) -> Deferred[PoolPeer]:
        """Fires when both sides have agreed; fails with Closing. To be asked once, at the start."""
        if self._opened is None:
            raise LocalProtocolError("this was asked already")
        return self._opened

    def when_lost(self) -> Deferred[None]:
        """Fires when the connection is gone. To be asked once."""
        return self._ended

    def _settle_opened(self, why: Closing) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and self.outgoing:
            opened.errback(why)

    def _unless_open(self, why: Closing) -> None:
        if not self.is_open:
            self.close(why)

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Call after so many seconds, unless the connection is gone."""
        self._calls = [known for known in self._calls if known.active()]
        self._calls.append(self.context.clock.callLater(seconds, call, *arguments))

    def now(self) -> int:
        """The time as payloads have it, in ms."""
        return self.context.pool.milliseconds()

    def _about(self) -> dict[str, object]:
        return {KIN: KIN_VERSION, _ID: self.context.node_id}

    # Bytes in

    def dataReceived(self, data: bytes) -> None:
        """Hand the bytes to the session and take what messages they complete."""
        if self.closing is not None:
            return
        self.figures.bytes_in += len(data)
        try:
            self.session.receive_data(data)
        except LocalProtocolError as error:
            log.error("{peer}: {why}", peer=self.address, why=error)
            self.close(Closing("failed", "this node could not go on with the connection"))
            return
        self._pump()

    def _pump(self) -> None:
        """Take messages while there are some, and offer together what they bring."""
        frames, objects, begun = 0, 0, self.context.clock.seconds()
        while self.closing is None and not self._lost and not self._hold():
            if (
                frames >= FRAMES_PER_TURN
                or objects >= OBJECTS_PER_TURN
                or self.context.clock.seconds() - begun > TURN_SECONDS
            ):
                self._turn_over = True
                self._hold()
                self.later(0, self._next_turn)
                break
            if self._coming:
                objects += 1
                self._take_coming(*self._coming.popleft())
                continue
            frames += 1
            try:
                event = self.session.next_event()
            except RemoteProtocolError as error:
                harmless = isinstance(error, WrongFlag) and not self.session.heard
                self.close(Closing("protocol", str(error)), harmless=harmless)
                break
            if isinstance(event, Waiting):
                break
            self._heard = self.context.clock.seconds()
            self._take(event)
        self._submit()

    def _next_turn(self) -> None:
        self._turn_over = False
        self._pump()

    def _hold(self) -> bool:
        """Whether no message may be taken now; pauses and resumes the transport on a change."""
        hold = self._turn_over or self._unwritten > self.context.settings.unwritten_bytes
        if hold != self._holding and self.closing is None:
            self._holding = hold
            if hold:
                self._wire.pauseProducing()
            else:
                self._wire.resumeProducing()
        return hold

    def _take(self, event: Event) -> None:
        match event:
            case Identify():
                self._take_identify(event)
            case Ok():
                self._take_ok(event)
            case Rejection():
                self.close(Closing("rejected", "the peer rejected this node"), kick=False)
            case Ping():
                self._answer_ping()
            case Pong():
                self._take_pong()
            case Kick():
                self.close(Closing("kicked", "the peer said KICK"), kick=False)
            case ConnectionEnded():
                self.close(Closing("lost", "the peer closed the connection"), kick=False)
            case _:
                self._take_objects(event)

    # The handshake

    def _take_identify(self, identify: Identify) -> None:
        about = identify.d or {}
        if about.get(_ID) == self.context.node_id:
            self._reject(Closing("own", "this node dialled itself"))
            return
        if (refusal := self._wrong_rule()) is not None:
            self._reject(refusal)
            return
        self.version = identify.v
        decision = maybeDeferred(self.context.decide, identify, self.address)
        decision.addCallbacks(self._decided, self._undecided)

    def _decided(self, accepted: bool) -> None:
        if self._lost or self.closing is not None:
            return
        if not accepted:
            self._reject(Closing("rejected", "the application does not let it in"))
            return
        self.send(Ok(t=self.now(), v=self.context.settings.version, d=self._about()))
        self._begin(self.version)
        self._pump()

    def _undecided(self, failure: Failure) -> None:
        log.failure("The decision about {peer} failed", failure, peer=self.address)
        self._decided(False)

    def _reject(self, why: Closing) -> None:
        self.send(Rejection(t=self.now()))
        self.close(why, kick=False)

    def _take_ok(self, ok: Ok) -> None:
        if self.since:
            self._begin_stream()
        elif (refusal := self._wrong_rule()) is not None:
            self.close(refusal)
        else:
            self._begin(ok.v)

    def _wrong_rule(self) -> Closing | None:
        """The pools would part without a word: hardly an object has the same hash by both rules."""
        if not self.session.is_jvm or self.context.pool.types.rule is HashRule.JVM:
            return None
        return Closing(
            "rule", 'it is the JVM implementation; set hash_rule = "jvm" under [objects] for it'
        )

    def _begin(self, version: int | None) -> None:
        """The connection is open: stream the pool, and measure the latency."""
        early, self._early = self._early, []
        if self.session.is_kin and early:
            self.close(Closing("protocol", "objects came before the handshake"))
            return
        self.version = version
        self.since = self.context.now()
        self.network.opened(self)
        if not self.session.is_kin:
            self._foreign = ForeignSide(self)
            for event in early:
                self._take_objects(event)
            self._foreign.begin()
        self._begin_stream()
        self._ping()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.callback(self)

    # Liveness

    def look(self) -> None:
        """Called now and then: PING, and notice that the peer is gone."""
        now, settings = self.context.clock.seconds(), self.context.settings
        if not self.is_open:
            return
        if now - self._heard > settings.silence_seconds and not self._holding:
            self.close(Closing("silent", "it has said nothing for too long"))
        elif self._pinged is None or now - self._pinged >= settings.ping_seconds:
            self._ping()

    def _answer_ping(self) -> None:
        """PONG; while the peer does not read, one for all PINGs of that time."""
        if self._paused:
            self._owes_pong = True
        else:
            self.send(Pong(t=self.now()))

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""
        if not self._awaited:
            self._ping()

    def _ping(self) -> None:
        self._pinged = self.context.clock.seconds()
        self._awaited = True
        self.send(Ping(t=self.now()))

    def _take_pong(self) -> None:
        if not self._awaited or self._pinged is None:
            return
        self._awaited = False
        self.latency.measured(self.context.clock.seconds() - self._pinged)
        if self._foreign is not None:
            self._foreign.flow.acknowledged()
        if self.latency.seconds is None and MEASUREMENTS > 1:
            self.later(0, self._ping_again)

    def _ping_again(self) -> None:
        if self.is_open and not self._awaited:
            self._ping()

    # Objects in

    def _take_objects(self, event: Event) -> None:
        if self.session.state is not State.OPEN:
            # With the AES flag they are in the clear, and anybody's.
            if self.context.passphrase is None and len(self._early) < MAX_EARLY_MESSAGES:
                self._early.append(event)
            return
        self.figures.messages_in += 1
        match event:
            case Creation():
                version = Version(hash=event.h, stamp=event.t)
                self._collect(lambda: self._offered_object(event.d, version))
            case Change():
                self._collect(lambda: _offered_change(event))
            case Removal():
                self._collect(lambda: OfferedRemoval(hash=event.h, stamp=event.t))
            case Initialize():
                self._take_initialize(event)

    def _take_initialize(self, event: Initialize) -> None:
        versions = event.versions or (None,) * len(event.objects)
        self._coming.extend(zip(event.objects, versions, strict=True))
        if self._foreign is not None:
            self._foreign.answered = True
            if event.unnamed:
                self._foreign.told_of_others()
        if event.respond:
            self._begin_stream()

    def _take_coming(self, fields: Fields, version: Version | None) -> None:
        offer = self._collect(lambda: self._offered_object(fields, version))
        if offer is not None:
            self._initializing.add(id(offer))

    def _collect(self, make: Callable[[], Offer]) -> Offer | None:
        """Have an offer wait for `_submit`; one that this node cannot store is refused by itself.

        That is within the protocol: its bounds are wider than the store's.
        """
        try:
            offer = make()
        except (ValueError, TypeError, LocalProtocolError) as error:
            self._refused += 1
            # The 1st, 2nd, 4th, 8th and so on: a peer must not fill the log.
            if not self._refused & (self._refused - 1):
                what = f"{self._refused} objects refused, the latest: {error}"
                self.network.tell(self, "objects-refused", what)
            return None
        self._offers.append(offer)
        return offer

    def _offered_object(self, fields: Fields, version: Version | None) -> OfferedObject:
        """An object by its version; one that nobody told the version of has no stamp."""
        # Before what takes as long as they are large.
        if len(fields) > MAX_OBJECT_FIELDS or len(pack(dict(fields))) > MAX_OBJECT_BYTES:
            raise LocalProtocolError("it has too many fields, or bytes")
        check_fields(fields)
        types = self.context.pool.types
        kind = types.fit(fields)
        name = None if kind is None else kind.name
        if version is None:
            self.figures.untyped += kind is None
            # It may have come before its type was declared here, as a record.
            earlier = () if kind is None else (record_hash(fields),)
            version = Version(hash=types.hash_of(name, fields), stamp=0, ancestors=earlier)
        return OfferedObject(
            hash=version.hash,
            stamp=version.stamp,
            fields=fields,
            type_name=name,
            ancestors=version.ancestors,
        )

    def _submit(self) -> None:
        """Offer what has come; answered by `_offered` once it is on disk."""
        if not self._offers:
            return
        offers, self._offers = self._offers, []
        initializing, self._initializing = self._initializing, set()
        size = sum(offer.size for offer in offers)
        self._unwritten += size
        settled = self.context.pool.offer(offers, self)
        settled.addBoth(self._offered, offers, initializing, size)

    def _offered(
        self,
        result: Sequence[Outcome] | Failure,
        offers: Sequence[Offer],
        initializing: set[int],
        size: int,
    ) -> None:
        self._unwritten -= size
        if isinstance(result, Failure):
            log.error("{peer}: nothing is stored: {why}", peer=self.address, why=result.value)
            self.close(Closing("store", "this node cannot store what it is sent"))
            return
        for offer, outcome in zip(offers, result, strict=True):
            self.figures.news_in += outcome.verdict in NEWS
            self.figures.clashes += outcome.verdict is Verdict.CLASH
            if self.is_open:
                self._answer(offer, outcome, initial=id(offer) in initializing)
        if self._holding:
            self._pump()

    def _answer(self, offer: Offer, outcome: Outcome, *, initial: bool) -> None:
        """Tell the peer what holds, where that is not what it said."""
        kin, types = self.session.is_kin, self.context.pool.types
        if outcome.verdict is Verdict.STALE:
            told = Told(answers(outcome)) if kin else foreign.answers(types, outcome)
            self.send_all(told)
        elif initial and outcome.verdict in (Verdict.CHANGED, Verdict.MERGED):
            # It may have both versions now: it did not know that they are one object.
            told = Told(messages(outcome)) if kin else foreign.messages(types, outcome)
            self.send_all(told)
        elif kin and outcome.stamp > offer.stamp and outcome.after is not None:
            record = outcome.after
            self.send_all(Told([Creation(t=outcome.stamp, d=record.fields, h=record.hash)]))
        elif kin and outcome.stamp > offer.stamp and outcome.verdict is Verdict.REMOVED:
            self.send_all(Told([Removal(t=outcome.stamp, h=offer.hash)]))

    # Objects out

    def tell(self, outcome: Outcome, made: Made) -> None:
        """News for this peer; `made` are its messages, compressed once for all peers."""
        if self.stream is not None and outcome.verdict is Verdict.CHANGED and outcome.after:
            self.stream.add(outcome.after.hash)
        self._say(made)

    def send_all(self, told: Told) -> None:
        """Tell this peer alone."""
        self._say(Made.of(told))

    def _say(self, made: Made) -> None:
        if self._foreign is None:
            self.figures.messages_out += len(made.messages)
            for payload, data in made.messages:
                self._enqueue(type(payload), data)
            return
        self._foreign.leave_out(made.untold)
        for payload, data in made.messages:
            if self.is_open:
                self._foreign.say(payload, data)
        self._check_queued(self._foreign.flow.queued)

    def send(self, payload: Payload) -> None:
        """Send a payload that is not about objects, before everything that waits."""
        self._write(type(payload), compressed(payload))

    def _enqueue(self, kind: type[Payload], data: bytes) -> None:
        if not self.is_open:
            return
        if not self._paused:
            self._write(kind, data)
            return
        self._queue.append((kind, data))
        self._queued += len(data)
        self._check_queued(self._queued)

    def _check_queued(self, queued: int) -> None:
        if queued > self.context.settings.queued_bytes and self.is_open:
            self.close(Closing("slow", "it reads too slowly for what happens in the pool"))

    def _write(self, kind: type[Payload], data: bytes) -> None:
        if self.closing is None and not self._lost:
            self.write_frame(self.session.send_compressed(kind, data))

    def write_frame(self, frame: bytes) -> None:
        """Write a whole message."""
        self.figures.bytes_out += len(frame)
        self._wire.write(frame)

    def _begin_stream(self) -> None:
        """Send the whole pool, unless that was done a moment ago or is being done."""
        now = self.context.clock.seconds()
        if self._streamed is not None and now - self._streamed < RESPOND_SECONDS:
            return
        self._streamed = now
        store = self.context.pool.store
        # Changes that are committed from here on are told, or in the list, or both.
        self.stream = stream = PoolStream(store.objects)
        hashes = self.context.in_thread(store.object_hashes)
        hashes.addCallback(self._stream_hashes, stream).addErrback(self.stream_failed)

    def _stream_hashes(self, hashes: Iterable[int], stream: PoolStream) -> None:
        stream.put_first(hashes)
        self._go_on_streaming()

    def stream_failed(self, failure: Failure) -> None:
        """Its pool cannot be read."""
        log.failure("The pool cannot be sent to {peer}", failure, peer=self.address)
        self.close(Closing("failed", "this node could not send its pool"))

    def _go_on_streaming(self) -> None:
        """One part; the next one in another turn, or when the transport takes more."""
        stream = self.stream
        if stream is None or not self.may_write or not stream.ready:
            return
        if self._foreign is not None:
            self._foreign.flow.go_on()
            return
        try:
            part = stream.next_part(self.now())
            data = b"" if part is None else compressed(part)
        except Exception:
            # A store that cannot be read; what is left out would never come.
            self.stream_failed(Failure())
            return
        if part is None:
            self.stream = None
            return
        self.figures.messages_out += 1
        self._write(Initialize, data)
        self.later(0, self._go_on_streaming)

    @property
    def may_write(self) -> bool:
        """Whether it is open, and its transport takes more."""
        return self.is_open and not self._paused

    # What the transport says

    def pauseProducing(self) -> None:
        """The peer reads slowly: nothing more is written."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The peer has caught up."""
        self._paused = False
        if self._owes_pong:
            self._owes_pong = False
            self.send(Pong(t=self.now()))
        while self._queue and not self._paused and self.is_open:
            kind, data = self._queue.popleft()
            self._queued -= len(data)
            self._write(kind, data)
        if self._foreign is not None:
            self._foreign.flow.go_on()
        self._go_on_streaming()

    def stopProducing(self) -> None:
        """The connection is gone; `connectionLost` follows."""


def _offered_change(change: Change) -> OfferedChange:
    check_fields(change.d)
    return OfferedChange(old=change.oh, hash=change.h, stamp=change.t, fields=change.d)

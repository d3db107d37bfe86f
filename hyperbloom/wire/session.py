"""One connection as a machine without I/O: bytes in, events out; commands in, bytes out.

The life of a connection (drawn in docs/architecture.md):

1. Each side sends Open: the feed's discovery key and a nonce. Who knows the feed may start; who
   was connected to waits for the other's Open, looks the feed up, and then sends its own.
2. All that a side sends after its Open is xored with the XSalsa20 keystream of the feed's public
   key and the nonce it sent: only who knows the feed key can go on.
3. Each side sends Handshake: a chain of trust links from the feed's key to its own, and a
   signature over both nonces by that key. Once the peer's is verified the connection is secure,
   unless both sides speak the extension `noise`: then each sends a NoiseMessage, the dialler first,
   and from the second on both send records, which nobody else can read or alter.
4. Sync, Data, Request, FilterOptions and Link may then come in any order, both ways.

Messages of an extension mean something only where both sides announced it in their Handshakes, so
behind the peer's; otherwise their ids are unknown ones, which are skipped unread.

The peer's end is a record of no bytes on a protected stream, else the end of the transport's bytes
between two frames (`end_data`). What it is owed may still be sent to it then.

How to use it: give what arrives to `receive_data`, then call `next_event` until it says NEED_DATA
or PAUSED. Frames wait as they came until they are pulled, so not pulling (and not reading from the
peer) is back-pressure. The `send_` methods return the bytes to write, in the order they are called.

Whatever a peer sends, `next_event` raises nothing but RemoteProtocolError, and the session is
CLOSED after it. Asked again, it raises a RemoteProtocolError that repeats the first; bytes that
still arrive are dropped. After `close`, each event is ConnectionEnded; after PeerEnded there is
none. A command that the state
does not allow raises LocalProtocolError and closes the session, too; one whose arguments are
refused raises LocalProtocolError and changes nothing.

Expiry is judged whenever it matters, not only in the handshake: Data of a peer whose chain has
expired is refused. Time (seconds since 1970) and nonces come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hyperbloom.trust import Chain, TrustLink
from hyperbloom.wire.credentials import Credentials, check_chain, sign_data
from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.events import (
    NEED_DATA,
    PAUSED,
    ConnectionEnded,
    DataReceived,
    DataRefused,
    Event,
    FilterOptionsReceived,
    HandshakeReceived,
    LinkIgnored,
    LinkReceived,
    NoiseReceived,
    OpenReceived,
    PeerEnded,
    RemotePeer,
    RequestReceived,
    SyncReceived,
    UnknownIgnored,
    Waiting,
)
from hyperbloom.wire.extension_messages import EXTENSION_MESSAGES, ExtensionMessage
from hyperbloom.wire.extensions.noise import NoiseMessage
from hyperbloom.wire.framing import FrameReader, encode_frame, split_frame
from hyperbloom.wire.limits import (
    MAX_BUFFERED_BYTES,
    MAX_EARLY_BYTES,
    MAX_EARLY_FRAME_BYTES,
    MAX_FRAME_BYTES,
)
from hyperbloom.wire.messages import (
    Data,
    FilterOptions,
    Handshake,
    Link,
    Open,
    Request,
    Sync,
)
from hyperbloom.wire.opening import Opening
from hyperbloom.wire.records import RecordWriter
from hyperbloom.wire.states import PAUSED_STATES, TRANSITIONS, Input, State
from hyperbloom.wire.stream_cipher import XSalsa20Stream
from hyperbloom.wire.verification import judge_data, judge_link, shared_extensions

__all__ = ["Session"]


class Session:
    """One connection to a peer; see the module's text.

    `dialled`: whether we did; it matters to Noise alone.
    `leeway` seconds are granted past the expiry of the peer's trust links, for clocks that differ.
    Of the chain that a Handshake names (nothing is verified yet),
    `refuses` says why it is turned away (PeerTurnedAway), or None, and `waits` whether it has to
    wait: `next_event` says PAUSED then, and looks at it again when it is called again.
    """

    __slots__ = (
        "_announced",
        "_credentials",
        "_dialled",
        "_failure",
        "_frames",
        "_has_no_more",
        "_held",
        "_leeway",
        "_local_chain",
        "_opening",
        "_outgoing",
        "_remote",
        "_state",
    )

    def __init__(
        self,
        *,
        dialled: bool = False,
        leeway: float = 0.0,
        refuses: Callable[[Chain], str | None] = lambda chain: None,
        waits: Callable[[Chain], bool] = lambda chain: False,
    ) -> None:
        self._dialled, self._leeway = dialled, leeway
        self._state = State.IDLE
        self._frames = FrameReader()
        #: Whether the transport brings no more bytes.
        self._has_no_more = False
        self._announced: tuple[str, ...] = ()
        self._failure: str | None = None
        self._credentials: Credentials | None = None
        self._local_chain: Chain | None = None
        self._outgoing: XSalsa20Stream | RecordWriter | None = None
        #: None once the connection is secure.
        self._opening: Opening | None = Opening(
            dialled=dialled, leeway=leeway, refuses=refuses, waits=waits
        )
        #: The peer's Handshake, while it has to wait.
        self._held: Handshake | None = None
        self._remote: RemotePeer | None = None

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def remote(self) -> RemotePeer | None:
        """The peer, once its Handshake is verified."""
        return self._remote

    @property
    def is_protected(self) -> bool:
        """Whether what is sent and received goes in records, by the extension `noise`."""
        return isinstance(self._outgoing, RecordWriter)

    @property
    def is_confirmed(self) -> bool:
        """Whether the peer has shown that it holds the keys of the protected stream.

        The second NoiseMessage shows it to the dialler, the first record to the other side.
        """
        return self.is_protected and (self._dialled or self._frames.record_received)

    @property
    def end_received(self) -> bool:
        """Whether a protected peer has said that it sends nothing more."""
        return self._frames.end_received

    @property
    def noise_is_due(self) -> bool:
        """Whether our NoiseMessage is next."""
        return self._state in (State.NOISE_DUE, State.NOISE_RECEIVED)

    @property
    def credentials(self) -> Credentials | None:
        """What `send_open` was given, or None before it."""
        return self._credentials

    @property
    def local_chain(self) -> Chain:
        """Our best chain: that of the credentials, or what `use_chain` gave since.

        LocalProtocolError before `send_open`.
        """
        if self._local_chain is None:
            raise LocalProtocolError("there is no chain before send_open")
        return self._local_chain

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet pulled as events."""
        return len(self._frames)

    # What comes in.

    def receive_data(self, data: bytes) -> None:
        """Take bytes that arrived; `next_event` then tells what they mean.

        Dropped when the session is closed, or the peer has ended. Raises LocalProtocolError, and
        closes, when more than MAX_BUFFERED_BYTES would wait to be pulled: stop reading before that.
        """
        if self._state in (State.CLOSED, State.PEER_ENDED):
            return
        if len(self._frames) + len(data) > MAX_BUFFERED_BYTES:
            self._close()
            raise LocalProtocolError(f"more than {MAX_BUFFERED_BYTES} bytes wait to be pulled")
        self._frames.feed(data)

    def end_data(self) -> None:
        """No more bytes come: `next_event` tells what came before, then how it ended."""
        self._has_no_more = True

    def next_event(self, *, now: float) -> Event | Waiting:
        """The next thing that happened, NEED_DATA, or PAUSED; `now` in seconds since 1970.

        RemoteProtocolError when the peer broke the protocol (UntrustedPeer: when it may not take
        part); the session is closed then.
        """
        if self._failure is not None:
            raise RemoteProtocolError(f"the session has ended: {self._failure}")
        try:
            return self._next_event(now)
        except RemoteProtocolError as error:
            self._failure = str(error)
            self._close()
            raise

    def _next_event(self, now: float) -> Event | Waiting:
        if self._state is State.CLOSED:
            return ConnectionEnded()
        if self._state is State.PEER_ENDED:
            return NEED_DATA
        if self._held is not None:
            return self._look_at_handshake(self._held, now)
        if self._state in PAUSED_STATES:
            return self._paused()
        if self._state in (State.IDLE, State.OPEN_SENT):
            body = self._frames.next_open()
            if body is not None:
                return self._take_open(Open.decode(body))
        else:
            is_secure = self._state is State.SECURE
            frame = self._frames.next_frame(MAX_FRAME_BYTES if is_secure else MAX_EARLY_FRAME_BYTES)
            if frame is not None:
                return self._take_frame(frame, now)
            if self._frames.check_end() or (is_secure and self._ends_in_order):
                self._state = self._next_state(Input.RECEIVE_END, RemoteProtocolError)
                return PeerEnded()
        return ConnectionEnded() if self._has_no_more else NEED_DATA

    @property
    def _ends_in_order(self) -> bool:
        """Whether a stream that says no end has ended, and between two frames."""
        return self._has_no_more and not self.is_protected and self._frames.is_between_frames

    def _paused(self) -> Waiting:
        if self._state is State.OPEN_RECEIVED and len(self._frames) > MAX_EARLY_BYTES:
            raise RemoteProtocolError(
                f"more than {MAX_EARLY_BYTES} bytes came before the peer could know our nonce"
            )
        return PAUSED

    def _take_open(self, opened: Open) -> OpenReceived:
        target = self._next_state(Input.RECEIVE_OPEN, RemoteProtocolError)
        self._way().take_open(opened, self._credentials)
        self._read_keystream()
        self._state = target
        return OpenReceived(feed=opened.feed)

    def _look_at_handshake(self, handshake: Handshake, now: float) -> Event | Waiting:
        """Take the peer's Handshake, or keep it for later."""
        if self._way().has_to_wait(handshake, self._own()):
            self._held = handshake
            return PAUSED
        self._held = None
        target = self._next_state(Input.RECEIVE_HANDSHAKE, RemoteProtocolError)
        event = self._take_handshake(handshake, now)
        if event.speaks_noise:
            target = self._next_state(self._before_noise(), RemoteProtocolError)
        self._state = target
        return event

    def _take_frame(self, frame: bytes, now: float) -> Event | Waiting:
        message_id, body = split_frame(frame)
        kind = EXTENSION_MESSAGES.get(message_id)
        if message_id == NoiseMessage.message_id and self._has_noise:
            return self._take_noise(body)
        if kind is not None and self._is_spoken(kind.extension):
            target = self._next_state(kind.received, RemoteProtocolError)
            event = kind.event(body)
        elif kind is None and self._own().dialect.knows(message_id):
            if message_id == Handshake.message_id:
                self._next_state(Input.RECEIVE_HANDSHAKE, RemoteProtocolError)
                return self._look_at_handshake(Handshake.decode(body), now)
            received, receive = _RECEIVERS[message_id]
            target = self._next_state(received, RemoteProtocolError)
            event = receive(self, body, now)
        else:
            target = self._next_state(Input.RECEIVE_UNKNOWN, RemoteProtocolError)
            event = UnknownIgnored(message_id=message_id, size=len(frame))
        self._state = target
        return event

    def _is_spoken(self, extension: str) -> bool:
        """Whether both sides have announced it."""
        peer = self._remote
        return peer is not None and extension in peer.extensions and extension in self._announced

    def _take_handshake(self, handshake: Handshake, now: float) -> HandshakeReceived:
        opening = self._way()
        self._remote = opening.take_handshake(
            handshake, self._own(), seen=self._frames.end_transcript(), now=now
        )
        if not opening.has_noise:
            self._opening = None
        return HandshakeReceived(peer=self._remote, speaks_noise=opening.has_noise)

    def _before_noise(self) -> Input:
        if self._way().dialled:
            return Input.RECEIVE_HANDSHAKE_THEN_SEND
        return Input.RECEIVE_HANDSHAKE_THEN_AWAIT

    @property
    def _has_noise(self) -> bool:
        """Whether NoiseMessage means something here, at whatever time."""
        return self.is_protected or (self._opening is not None and self._opening.has_noise)

    def _take_noise(self, body: bytes) -> NoiseReceived:
        target = self._next_state(Input.RECEIVE_NOISE, RemoteProtocolError)
        self._way().take_noise(NoiseMessage.decode(body))
        if target is State.SECURE:
            self._protect()
        self._state = target
        return NoiseReceived()

    def _take_filter_options(self, body: bytes, now: float) -> FilterOptionsReceived:
        options = FilterOptions.decode(body)
        return FilterOptionsReceived(size=options.size, n=options.n)

    def _take_data(self, body: bytes, now: float) -> DataReceived | DataRefused:
        return judge_data(body, self._own(), self._peer(), now=now, leeway=self._leeway)

    def _take_link(self, body: bytes, now: float) -> LinkReceived | LinkIgnored:
        return judge_link(
            body, self._own(), self._peer(), self.local_chain, now=now, leeway=self._leeway
        )

    # What goes out.

    def send_open(
        self, credentials: Credentials, *, nonce: bytes, speaks_noise: bool = False
    ) -> bytes:
        """Our Open. `nonce` is 24 fresh random bytes. `speaks_noise`: whether we do.

        After the peer's Open, the credentials must be of the feed it named, and the nonce another
        than its own (LocalProtocolError).
        """
        target = self._next_state(Input.SEND_OPEN, LocalProtocolError)
        opening = self._way()
        sent = opening.open(credentials, nonce=nonce, speaks_noise=speaks_noise)
        self._credentials = credentials
        self._local_chain = credentials.chain
        self._outgoing = opening.outgoing(credentials)
        self._read_keystream()
        self._state = target
        return sent

    def send_handshake(self, *, peer_id: bytes, extensions: Sequence[str] = ()) -> bytes:
        """Our Handshake, once both Opens are there. `peer_id` is 32 bytes of our choice."""
        target = self._next_state(Input.SEND_HANDSHAKE, LocalProtocolError)
        handshake = self._way().handshake(self._own(), peer_id=peer_id, extensions=extensions)
        self._announced = shared_extensions(handshake.extensions)
        return self._encrypt(handshake, target)

    def send_noise(self, *, ephemeral: bytes) -> bytes:
        """Our NoiseMessage, when `noise_is_due`. `ephemeral` is 32 fresh random bytes."""
        target = self._next_state(Input.SEND_NOISE, LocalProtocolError)
        sent = self._encrypt(self._way().noise_message(ephemeral=ephemeral), target)
        if target is State.SECURE:
            self._protect()
        return sent

    def send_end(self) -> bytes:
        """Close, and say so to a protected peer: what it is sent last, else nothing."""
        outgoing = self._outgoing
        self.close()
        return outgoing.end() if isinstance(outgoing, RecordWriter) else b""

    def send_sync(self, sync: Sync) -> bytes:
        """Ask for what is not in a filter."""
        return self._encrypt(sync, self._next_state(Input.SEND_SYNC, LocalProtocolError))

    def send_filter_options(self, options: FilterOptions) -> bytes:
        """Say which filters we would rather have. Deployed peers (npm 2.0.3) fail on it."""
        target = self._next_state(Input.SEND_FILTER_OPTIONS, LocalProtocolError)
        return self._encrypt(options, target)

    def send_data(self, values: Sequence[bytes]) -> bytes:
        """Send values that fit one frame (`pack_values`), signed as the dialect asks."""
        target = self._next_state(Input.SEND_DATA, LocalProtocolError)
        return self._encrypt(sign_data(self._own(), values), target)

    def send_encoded_data(self, frame: bytes) -> bytes:
        """Send a frame that `signed_frames` made for this feed: many peers cost one signature."""
        target = self._next_state(Input.SEND_DATA, LocalProtocolError)
        return self._encrypt_frame(frame, target)

    def send_request(self, request: Request) -> bytes:
        """Ask for the values in a range."""
        return self._encrypt(request, self._next_state(Input.SEND_REQUEST, LocalProtocolError))

    def link_due(self) -> float | None:
        """When a Link for the peer would expire (seconds since 1970), or None if none may be sent.

        One may be sent when our chain is shorter than the peer's by more than a link, and lasts as
        long as the peer's own chain (docs/protocol.md#5-link).
        """
        credentials, peer = self._credentials, self._remote
        if credentials is None or peer is None or not credentials.dialect.has_link_message:
            return None
        # The peer continues the chain of our Handshake, whatever we may have got since.
        return peer.expires if len(credentials.chain) < len(peer.chain) - 1 else None

    def send_link(self, link: TrustLink) -> bytes:
        """Give the peer a shorter chain: a link by us, for its key, that expires at `link_due`.

        LocalProtocolError if none is due, or the link is another one; nothing changes then.
        """
        target = self._next_state(Input.SEND_LINK, LocalProtocolError)
        credentials, peer = self._own(), self._peer()
        if link.expires != self.link_due():
            raise LocalProtocolError("no Link is due, or it expires at another time")
        if link.public_key != peer.key or not link.is_signed_by(credentials.identity.public_key):
            raise LocalProtocolError("a Link is signed by us and for the peer's key")
        return self._encrypt(Link(link=link.to_bytes()), target)

    def send_extension(self, message: ExtensionMessage) -> bytes:
        """Send a message of an extension, which the peer has to have announced."""
        kind = EXTENSION_MESSAGES[message.message_id]
        target = self._next_state(kind.sent, LocalProtocolError)
        if kind.extension not in self._peer().extensions:
            raise LocalProtocolError(f"the peer did not announce {kind.extension}")
        return self._encrypt(message, target)

    def use_chain(self, chain: Chain) -> None:
        """Hold Links that come from now on against another chain of ours.

        For connections made later; this one's Handshake stands. LocalProtocolError before
        `send_open`, and for a chain of another feed or key.
        """
        credentials = self._own()
        check_chain(chain, credentials.feed_key, credentials.identity)
        self._local_chain = chain

    def close(self) -> None:
        """End the session from our side, in any state; what was not pulled is dropped."""
        self._next_state(Input.CLOSE, LocalProtocolError)
        self._close()

    # What both need.

    def _read_keystream(self) -> None:
        """Both Opens are there, or not yet: what comes behind the peer's is decrypted."""
        cipher = self._way().incoming(self._credentials)
        if cipher is not None:
            self._frames.decrypt_with(cipher)

    def _protect(self) -> None:
        """Both NoiseMessages have gone: records from here on, both ways."""
        self._outgoing, reader = self._way().ciphers()
        self._opening = None
        self._frames.read_records(reader)

    def _encrypt(self, message: _Sendable, target: State) -> bytes:
        return self._encrypt_frame(encode_frame(message.message_id, message.encode()), target)

    def _encrypt_frame(self, frame: bytes, target: State) -> bytes:
        if self._outgoing is None:
            raise LocalProtocolError("there is no cipher before send_open")
        self._state = target
        return self._outgoing.process(frame)

    def _next_state(
        self, happened: Input, blame: type[LocalProtocolError] | type[RemoteProtocolError]
    ) -> State:
        """Where the table leads; what it lacks closes the session and raises `blame`."""
        state = self._state
        target = TRANSITIONS.get((state, happened))
        if target is None:
            self._close()
            raise blame(f"a connection that is {state.value} may not {happened.value}")
        return target

    def _close(self) -> None:
        self._state = State.CLOSED
        self._frames.clear()
        self._outgoing = self._opening = None

    # The table sees to it that these are there; said again for whoever reads the types.

    def _own(self) -> Credentials:
        if self._credentials is None:
            raise LocalProtocolError("our Open comes first")
        return self._credentials

    def _way(self) -> Opening:
        if self._opening is None:
            raise LocalProtocolError("the Handshakes are done")
        return self._opening

    def _peer(self) -> RemotePeer:
        if self._remote is None:
            raise LocalProtocolError("the peer's Handshake comes before other messages")
        return self._remote


_Sendable = (
    Handshake | NoiseMessage | Sync | FilterOptions | Data | Request | Link | ExtensionMessage
)

_RECEIVERS: Final[dict[int, tuple[Input, Callable[[Session, bytes, float], Event]]]] = {
    Sync.message_id: (
        Input.RECEIVE_SYNC,
        lambda session, body, now: SyncReceived(sync=Sync.decode(body)),
    ),
    FilterOptions.message_id: (Input.RECEIVE_FILTER_OPTIONS, Session._take_filter_options),
    Data.message_id: (Input.RECEIVE_DATA, Session._take_data),
    Request.message_id: (
        Input.RECEIVE_REQUEST,
        lambda session, body, now: RequestReceived(request=Request.decode(body)),
    ),
    Link.message_id: (Input.RECEIVE_LINK, Session._take_link),
}

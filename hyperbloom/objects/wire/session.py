"""One connection of PPPP 2 as a machine without I/O: bytes in, payloads out, and the reverse.

The client sends IDENTIFY, the server answers with OK or REJECTION; after OK both send their pools
by INITIALIZE and tell each other of every change (drawn in docs/objects.md).

How to use it: give what arrives to `receive_data`, then call `next_event` until it says NEED_DATA
or PAUSED; an event is the payload that came, or ConnectionEnded. Frames wait as they came until
they are pulled, so not pulling is back-pressure; a long one waits so until there is room for what
it decompresses to (NEED_ROOM). `send` returns the bytes to write.

Whatever a peer sends, `next_event` raises nothing but RemoteProtocolError. The session has FAILED
then: it reads no more, and `send` takes a KICK and nothing else. A payload that the state does not
allow raises LocalProtocolError and fails the session, too; one that cannot be encoded changes
nothing.

Nodes of this kind know each other by a key in the metadata of IDENTIFY and OK (`KIN`). To a *kin*
INITIALIZE may carry versions, and CHANGE more fields than one. Others are *foreign*; the JVM among
them is known by the zeros behind its IDENTIFY or OK (`is_jvm`). What a foreign peer
writes may be mixed up (mixed.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from hyperbloom.objects.limits import (
    MAX_EARLY_FRAME_BYTES,
    MAX_EARLY_UNENCRYPTED,
    MAX_FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
)
from hyperbloom.objects.wire.aes import Processing
from hyperbloom.objects.wire.codec import compressed, read_compressed
from hyperbloom.objects.wire.errors import (
    EarlyMessage,
    LocalProtocolError,
    PayloadTooLong,
    RemoteProtocolError,
)
from hyperbloom.objects.wire.framing import HEADER_BYTES, FrameReader, encode_frame
from hyperbloom.objects.wire.mixed import MixedFrameReader
from hyperbloom.objects.wire.payloads import (
    PAYLOADS,
    Identify,
    Ok,
    PackedInitialize,
    Payload,
)
from hyperbloom.objects.wire.states import PAUSED_STATES, TRANSITIONS, Input, State

__all__ = [
    "KIN",
    "KIN_VERSION",
    "MAX_BUFFERED_BYTES",
    "NEED_DATA",
    "NEED_ROOM",
    "PAUSED",
    "ConnectionEnded",
    "Event",
    "Session",
    "Waiting",
]

KIN: Final = "hyperbloom"
"""The key of IDENTIFY's and OK's metadata by which nodes of this kind know each other."""
KIN_VERSION: Final = 1

MAX_BUFFERED_BYTES: Final = 4 * MAX_FRAME_BYTES
"""Received and not pulled; who reads on while it does not pull has a mistake."""

_SENT: Final = {kind: Input[f"SEND_{kind.__name__.upper()}"] for kind in PAYLOADS}
_RECEIVED: Final[dict[type[Payload | PackedInitialize], Input]] = {
    kind: Input[f"RECEIVE_{kind.__name__.upper()}"] for kind in PAYLOADS
}
_RECEIVED[PackedInitialize] = Input.RECEIVE_INITIALIZE


class Waiting(Enum):
    """Why `next_event` has no event."""

    NEED_DATA = "need data"
    NEED_ROOM = "need room"
    PAUSED = "paused"


NEED_DATA: Final = Waiting.NEED_DATA
NEED_ROOM: Final = Waiting.NEED_ROOM
PAUSED: Final = Waiting.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEnded:
    """Nothing more will come. `unread` bytes of an unfinished message were lost."""

    unread: int = 0


Event: TypeAlias = Payload | PackedInitialize | ConnectionEnded


class Session:
    """One connection to a peer; see the module's text. `processing` is this connection's own."""

    __slots__ = (
        "_eof", "_failure", "_frames", "_long", "_processing", "_state",
        "heard", "is_jvm", "is_kin", "passed_over",
    )  # fmt: skip

    def __init__(self, processing: Processing) -> None:
        self._processing = processing
        self._frames = FrameReader(processing.flag)
        self._state = State.IDLE
        #: A message as it came, but for its flag's processing, that waits for room.
        self._long: bytes | None = None
        self._eof = False
        self._failure: str | None = None
        #: Whether the peer is a node of this kind; known once the connection is open.
        self.is_kin = False
        self.is_jvm = False
        #: Whether a whole message has come.
        self.heard = False
        #: Messages that could not be taken, and were no breach.
        self.passed_over = 0

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet pulled as events."""
        return len(self._frames) + len(self._long or b"")

    def receive_data(self, data: bytes) -> None:
        """Take bytes that arrived; dropped when the session has failed or is closed.

        LocalProtocolError after `receive_eof`, and above MAX_BUFFERED_BYTES.
        """
        if self._state in (State.CLOSED, State.FAILED):
            return
        if self._eof or self.buffered_bytes + len(data) > MAX_BUFFERED_BYTES:
            self._fail()
            raise LocalProtocolError("bytes after the end, or more than may wait to be pulled")
        self._frames.feed(data)

    def receive_eof(self) -> None:
        """The peer will send nothing more; what has arrived can still be pulled."""
        self._eof = True

    def next_event(self, most: int = MAX_PAYLOAD_BYTES) -> Event | Waiting:
        """The next payload, ConnectionEnded, NEED_DATA, PAUSED, or NEED_ROOM; RemoteProtocolError.

        NEED_ROOM: the next payload has more than `most` bytes when it is decompressed. It waits.
        """
        if self._failure is not None:
            raise RemoteProtocolError(f"the session has failed: {self._failure}")
        try:
            return self._next_event(most)
        except RemoteProtocolError as error:
            self._failure = str(error)
            self._fail()
            raise

    def _next_event(self, most: int) -> Event | Waiting:
        if self._state in (State.CLOSED, State.FAILED):
            return ConnectionEnded()
        if self._state in PAUSED_STATES:
            return self._end() if self._eof and not len(self._frames) else PAUSED
        data = self._next_message() if self._long is None else self._long
        if data is not None:
            limit = MAX_PAYLOAD_BYTES if self._state is State.OPEN else MAX_EARLY_FRAME_BYTES
            try:
                payload, behind = read_compressed(data, limit=min(limit, most))
            except PayloadTooLong:
                if most >= limit:
                    raise
                self._long = data
                return NEED_ROOM
            self._long = None
            is_first = self._state is not State.OPEN
            self._enter(self._next_state(_RECEIVED[type(payload)], RemoteProtocolError))
            if is_first and isinstance(payload, Identify | Ok):
                self.is_kin = KIN in (payload.d or ())
                self.is_jvm = not self.is_kin and behind > 0
                self._expect_mixed()
            return payload
        return self._end() if self._eof else NEED_DATA

    def _next_message(self) -> bytes | None:
        """The next message before its decompression; None until it is whole."""
        while (frame := self._frames.next_frame()) is not None:
            self.heard = True
            try:
                return self._processing.incoming(frame)
            except EarlyMessage:
                self._pass_over()
        return None

    def _expect_mixed(self) -> None:
        """A peer of another kind may write several messages at once, from when it is let in."""
        if self._state is State.OPEN and not self.is_kin:
            processing = self._processing
            self._frames = MixedFrameReader(
                self._frames,
                flag=processing.flag,
                begins=processing.begins(),
                is_whole=processing.is_whole,
            )

    def _pass_over(self) -> None:
        self.passed_over += 1
        if self.passed_over > MAX_EARLY_UNENCRYPTED:
            raise RemoteProtocolError("too much comes unencrypted before the handshake is done")

    def _end(self) -> ConnectionEnded:
        unread = len(self._frames)
        self._enter(self._next_state(Input.RECEIVE_EOF, RemoteProtocolError))
        return ConnectionEnded(unread=unread)

    def send(self, payload: Payload) -> bytes:
        """The bytes of a payload."""
        return self.send_compressed(type(payload), compressed(payload))

    def send_compressed(self, kind: type[Payload], data: bytes) -> bytes:
        """The bytes of a payload of this kind that `codec.compressed` made, for many peers once."""
        target = self._next_state(_SENT[kind], LocalProtocolError)
        frame = encode_frame(self._processing.flag, self._processing.outgoing(data))
        is_first = self._state is not State.OPEN
        self._enter(target)
        if is_first:
            self._expect_mixed()
        return frame

    def frame_bytes(self, size: int) -> int:
        """How long the frame of so many compressed bytes is, once both sides have shaken hands."""
        return HEADER_BYTES + self._processing.outgoing_bytes(size)

    def close(self) -> None:
        """End the session from our side, in any state; what was not pulled is dropped."""
        self._enter(self._next_state(Input.CLOSE, LocalProtocolError))

    def _next_state(
        self, happened: Input, blame: type[LocalProtocolError] | type[RemoteProtocolError]
    ) -> State:
        """Where the table leads; what it lacks fails the session and raises `blame`."""
        target = TRANSITIONS.get((self._state, happened))
        if target is None:
            state = self._state
            self._fail()
            raise blame(f"a connection that is {state.value} may not {happened.value}")
        return target

    def _enter(self, state: State) -> None:
        self._state = state
        if state is State.OPEN:
            self._frames.limit = MAX_FRAME_BYTES
        elif state is State.CLOSED:
            self._frames.clear()
            self._long = None

    def _fail(self) -> None:
        if self._state is not State.CLOSED:
            self._state = State.FAILED
        self._frames.clear()
        self._long = None

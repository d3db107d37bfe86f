"""Protected streams in memory, recorded once, and receivers that are ready for them.

Nonces and ephemeral keys are fixed, so each receiver of a role is the same, and takes what was
recorded as if it came. `Stream` is what one side sent behind its Handshake: a NoiseMessage in the
old keystream, records with frames of every kind, and the end.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from wire_peers import (
    LOCAL_EPHEMERAL,
    LOCAL_NONCE,
    NOW,
    PEER_ID,
    REMOTE_EPHEMERAL,
    REMOTE_NONCE,
    credentials_of,
)

from hyperbloom.wire import NEED_DATA, PAUSED, FilterOptions, Request, Session, Sync
from hyperbloom.wire.errors import RemoteProtocolError
from hyperbloom.wire.events import Event, PeerEnded
from hyperbloom.wire.states import State

OWNER, MEMBER = credentials_of(), credentials_of(2)
NONCES = {True: LOCAL_NONCE, False: REMOTE_NONCE}
EPHEMERALS = {True: LOCAL_EPHEMERAL, False: REMOTE_EPHEMERAL}


def _open(dialled: bool, nonces: dict[bool, bytes]) -> tuple[Session, bytes]:
    """One side and its Open."""
    session = Session(dialled=dialled)
    credentials = MEMBER if dialled else OWNER
    return session, session.send_open(credentials, nonce=nonces[dialled], speaks_noise=True)


def shake(session: Session, opened: bytes) -> bytes:
    """Take the other's Open; the Handshake."""
    session.receive_data(opened)
    session.next_event(now=NOW)
    return session.send_handshake(peer_id=PEER_ID)


@dataclass(frozen=True)
class Stream:
    """What the other side of a receiver sent. `dialled`: whether the receiver dialled.

    pieces: the NoiseMessage's frame, then each record. ends: for each event, how many bytes have
    come when it is there. events: all that it means.
    """

    dialled: bool
    nonces: dict[bool, bytes]
    opened: bytes
    handshake: bytes
    pieces: tuple[bytes, ...]
    events: tuple[Event, ...] = ()
    ends: tuple[int, ...] = ()

    @functools.cached_property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    def allowed(self, sound: int) -> int:
        """How many events the first so many bytes mean."""
        return sum(end <= sound for end in self.ends)

    def receiver(self) -> Session:
        """One that has done everything up to the other's Handshake."""
        session, _ = _open(self.dialled, self.nonces)
        shake(session, self.opened)
        session.receive_data(self.handshake)
        session.next_event(now=NOW)
        if self.dialled:
            session.send_noise(ephemeral=EPHEMERALS[True])
        return session


def drain(session: Session) -> list[Event]:
    """Events until it needs data or has ended; answers a NoiseMessage. RemoteProtocolError."""
    told: list[Event] = []
    while True:
        event = session.next_event(now=NOW)
        if event is NEED_DATA:
            return told
        if event is PAUSED:
            session.send_noise(ephemeral=EPHEMERALS[False])
            continue
        told.append(event)
        if isinstance(event, PeerEnded):
            return told


@dataclass(frozen=True)
class Meeting:
    """Two sides that have done the handshake. `other` sends; `noise` is its NoiseMessage."""

    other: Session
    opened: bytes
    handshake: bytes
    noise: bytes


def meet(dialled: bool, nonces: dict[bool, bytes]) -> Meeting:
    """The other side of receivers of this role."""
    ours, opened = _open(dialled, nonces)
    other, other_opened = _open(not dialled, nonces)
    handshake = shake(other, opened)
    other.receive_data(shake(ours, other_opened))
    ours.receive_data(handshake)
    other.next_event(now=NOW)
    ours.next_event(now=NOW)
    if dialled:
        other.receive_data(ours.send_noise(ephemeral=EPHEMERALS[True]))
        other.next_event(now=NOW)
        noise = other.send_noise(ephemeral=EPHEMERALS[False])
    else:
        noise = other.send_noise(ephemeral=EPHEMERALS[True])
        ours.receive_data(noise)
        ours.next_event(now=NOW)
        other.receive_data(ours.send_noise(ephemeral=EPHEMERALS[False]))
        other.next_event(now=NOW)
    assert other.state is State.SECURE
    return Meeting(other, other_opened, handshake, noise)


def record(dialled: bool, nonces: dict[bool, bytes]) -> Stream:
    """What a receiver of this role is sent by the other side."""
    met = meet(dialled, nonces)
    other = met.other
    pieces = [
        met.noise,
        other.send_sync(Sync(filter=b"\xff\x00", size=16, n=3, seed=1)),
        other.send_data([b"one", b"two"]),
        other.send_request(Request(start=b"a", end=b"b")),
        other.send_data([b"three" * 40]),
        other.send_filter_options(FilterOptions(size=8, n=1)),
        other.send_data([b"four"]),
        other.send_request(Request(start=b"c")),
        other.send_end(),
    ]
    return _with_events(Stream(dialled, nonces, met.opened, met.handshake, tuple(pieces)))


def _with_events(stream: Stream) -> Stream:
    session = stream.receiver()
    events: list[Event] = []
    ends: list[int] = []
    for at, byte in enumerate(stream.data):
        session.receive_data(bytes([byte]))
        for event in drain(session):
            events.append(event)
            ends.append(at + 1)
    assert isinstance(events[-1], PeerEnded)
    return replace(stream, events=tuple(events), ends=tuple(ends))


STREAMS = {dialled: record(dialled, NONCES) for dialled in (True, False)}
#: Another connection of the same two: other nonces, so other keys.
OTHERS = {
    dialled: record(dialled, {True: b"\x31" * 24, False: b"\x32" * 24}) for dialled in (True, False)
}


# What is done to a stream

Change = Callable[[random.Random, Stream], Sequence[bytes]]


def _flip(chance: random.Random, stream: Stream) -> Sequence[bytes]:
    data = bytearray(stream.data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return [bytes(data)]


def _cut(chance: random.Random, stream: Stream) -> Sequence[bytes]:
    """Bytes are left out, or all from some place on, anywhere or at the border of a record."""
    if chance.random() < 0.5:
        pieces = list(stream.pieces)
        at = chance.randrange(len(pieces))
        del pieces[at : chance.choice((at + 1, len(pieces)))]
        return pieces
    at = chance.randrange(len(stream.data))
    until = chance.choice((at + 1, at + chance.randrange(1, 80), len(stream.data)))
    return [stream.data[:at], stream.data[until:]]


def _swap(chance: random.Random, stream: Stream) -> Sequence[bytes]:
    """Two records or two runs of bytes change places; or a foreign record takes one's place."""
    pieces = list(stream.pieces)
    one, two = chance.sample(range(len(pieces)), 2)
    match chance.randrange(4):
        case 0:
            pieces[one], pieces[two] = pieces[two], pieces[one]
        case 1:
            pieces[one] = chance.choice(OTHERS[stream.dialled].pieces)
        case 2:
            # What the receiver itself has sent.
            pieces[one] = chance.choice(STREAMS[not stream.dialled].pieces)
        case _:
            data = bytearray(stream.data)
            size = chance.randrange(1, 40)
            at, to = (chance.randrange(len(data) - size) for _ in range(2))
            data[at : at + size], data[to : to + size] = data[to : to + size], data[at : at + size]
            return [bytes(data)]
    return pieces


def _repeat(chance: random.Random, stream: Stream) -> Sequence[bytes]:
    """A record, several, or a run of bytes comes again, at once or later."""
    if chance.random() < 0.7:
        pieces = list(stream.pieces)
        at = chance.randrange(len(pieces))
        again = pieces[at : at + chance.randrange(1, 4)]
        to = chance.randrange(at, len(pieces) + 1)
        pieces[to:to] = again
        return pieces
    data = stream.data
    at = chance.randrange(len(data))
    to = chance.randrange(at, len(data) + 1)
    return [data[:to], data[at : at + chance.randrange(1, 80)], data[to:]]


CHANGES: tuple[Change, ...] = (_flip, _cut, _swap, _repeat)


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes two have in common at their start."""
    if one == other[: len(one)]:
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def parts_of(chance: random.Random, pieces: Iterable[bytes]) -> list[bytes]:
    """How it comes: in pieces, at once, or cut anywhere."""
    match chance.randrange(3):
        case 0:
            return [piece for piece in pieces if piece]
        case 1:
            return [b"".join(pieces)]
        case _:
            data = b"".join(pieces)
            size = chance.randrange(1, 200)
            return [data[at : at + size] for at in range(0, len(data), size)]


#: More than any record: who waits for the rest of one has it then.
FILLER = bytes(65_537)


def try_change(chance: random.Random) -> str:
    """Change a stream in one way and give it to a receiver. What became of it, in a word.

    "same" (nothing was changed), "refused" (RemoteProtocolError), "cut" (no end came, and the
    connection is lost), "ended" (only bytes behind the end of a whole stream were changed).
    AssertionError where anything changed was taken.
    """
    stream = STREAMS[chance.random() < 0.5]
    pieces = chance.choice(CHANGES)(chance, stream)
    changed = b"".join(pieces)
    if changed == stream.data:
        return "same"
    sound = common_prefix(changed, stream.data)
    allowed = stream.allowed(sound)
    session = stream.receiver()
    told: list[Event] = []
    word = take(session, parts_of(chance, pieces), told)
    if word == "cut" and sound < len(changed):
        # It waits for the rest of a record that was never sent so.
        word = take(session, [FILLER], told)
        assert word == "refused"
    assert told == list(stream.events[: len(told)])
    assert len(told) <= allowed
    assert word != "ended" or sound == len(stream.data)
    if word != "cut":
        assert session.state in (State.CLOSED, State.PEER_ENDED)
        session.receive_data(stream.data)
        assert session.buffered_bytes == 0
    return word


def take(session: Session, parts: Iterable[bytes], told: list[Event]) -> str:
    """Give a receiver what comes, and collect its events; what becomes of it, in a word."""
    try:
        for part in parts:
            session.receive_data(part)
            told += drain(session)
            if session.state is State.PEER_ENDED:
                return "ended"
    except RemoteProtocolError:
        return "refused"
    assert not session.end_received
    return "cut"

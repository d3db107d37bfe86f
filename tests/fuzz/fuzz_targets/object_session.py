"""A connection of the object pool in each state, with and without the AES flag."""

from __future__ import annotations

import lz4.frame
from choices import Choices, piece

from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing, Processing
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.errors import RemoteProtocolError
from hyperbloom.objects.wire.framing import HEADER_BYTES, encode_frame
from hyperbloom.objects.wire.messagepack import pack
from hyperbloom.objects.wire.payloads import Creation, Identify, Kick, Ok, Ping, to_map
from hyperbloom.objects.wire.session import NEED_DATA, PAUSED, ConnectionEnded, Session
from hyperbloom.objects.wire.states import State

MAX_BYTES = 4_096
RUNS = 80

_SALT = bytes(range(32))
_PASSPHRASE = "secret"
_STATES = (State.IDLE, State.IDENTIFY_SENT, State.OPEN)


def fuzz(data: bytes) -> bool:
    """Pieces from the peer: bytes as they are, or a message that is framed, squeezed, encrypted."""
    choices = Choices(data)
    aes = choices.one_of((False, True))
    session, peer = _in_state(choices.one_of(_STATES), aes=aes)
    for _ in range(64):
        how, part = choices.number() % 4, choices.piece()
        if not part:
            break
        if how:
            part = lz4.frame.compress(part) if how == 3 else part
            part = peer.outgoing(part) if how > 1 else part
            part = encode_frame(peer.flag, part)
        session.receive_data(part)
        assert session.buffered_bytes <= MAX_BYTES + 200
        if not _pull(session, peer):
            return False
    left = session.buffered_bytes
    session.receive_eof()
    return _pull(session, peer) and not left


def _processing(*, aes: bool, server: bool) -> Processing:
    if not aes:
        return NoProcessing()
    return AesProcessing(_PASSPHRASE, salt=_SALT if server else None)


def _in_state(state: State, *, aes: bool) -> tuple[Session, Processing]:
    """A session, and what processes the messages of its peer; a server, unless it asked."""
    is_client = state is State.IDENTIFY_SENT
    session = Session(_processing(aes=aes, server=not is_client))
    peer = _processing(aes=aes, server=is_client)
    if is_client:
        session.send(Identify(t=1))
    elif state is State.OPEN:
        identify = peer.outgoing(compressed(Identify(t=1)))
        session.receive_data(encode_frame(peer.flag, identify))
        session.next_event()
        peer.incoming(session.send(Ok(t=2))[HEADER_BYTES:])
    assert session.state is state
    return session, peer


def _pull(session: Session, peer: Processing) -> bool:
    """Whether the peer may go on; lets it in where it asks."""
    for _ in range(MAX_BYTES):
        try:
            event = session.next_event()
        except RemoteProtocolError:
            assert session.state is State.FAILED
            assert session.buffered_bytes == 0
            session.send(Kick(t=1))
            return False
        if event is PAUSED:
            peer.incoming(session.send(Ok(t=2))[HEADER_BYTES:])
        elif event is NEED_DATA or isinstance(event, ConnectionEnded):
            return True
    raise AssertionError("more events than bytes")


def seeds() -> dict[str, bytes]:
    """Handshakes and messages that are good in their state, whole and cut."""
    found = {}
    for number, state in enumerate(_STATES):
        first = {State.IDLE: Identify(t=1), State.IDENTIFY_SENT: Ok(t=2)}.get(state, Ping(t=3))
        for aes in (0, 1):
            head = bytes([aes, number])
            name = f"{state.name.lower()}-{'aes' if aes else 'nil'}"
            found[name] = head + b"\x03" + piece(pack(to_map(first)))
            found[f"{name}-more"] = (
                found[name] + b"\x02" + piece(compressed(Creation(t=8, d={"a": 1}, h=1)))
            )
    frame = encode_frame(0, compressed(Identify(t=1)))
    found["clear"] = b"\x00\x00" + b"\x00" + piece(frame[:7]) + b"\x00" + piece(frame[7:])
    return found

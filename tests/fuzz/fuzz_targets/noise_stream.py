"""A protected stream (the extension `noise`): NoiseMessages, records, and the frames in them.

Who sends has done the handshake as it should be, and can seal: so what is behind the tags is
reached, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from choices import Choices, piece
from noise_streams import NONCES, OTHERS, STREAMS, Meeting, drain, meet
from wire_peers import FEED

from hyperbloom.wire import RemoteProtocolError, Request
from hyperbloom.wire.events import PeerEnded
from hyperbloom.wire.framing import encode_frame
from hyperbloom.wire.states import State
from hyperbloom.wire.stream_cipher import XSalsa20Stream

MAX_BYTES = 2_048
RUNS = 10

_MOST_PIECES = 20
_SEALED, _RAW, _FLIPPED, _END = range(4)


def fuzz(data: bytes) -> bool:
    """The receiver's role; what stands for a NoiseMessage; records that are sealed here, or not.

    Of what follows a piece that was not sealed, or was changed, nothing is taken.
    """
    choices = Choices(data)
    dialled = choices.one_of((True, False))
    instead = choices.one_of((False, True))
    met = meet(dialled, NONCES)
    session = STREAMS[dialled].receiver()
    # The Handshake moves the old keystream on to where the NoiseMessage stands.
    old = XSalsa20Stream(FEED, met.opened[-24:])
    old.process(met.handshake)
    first = old.process(choices.piece()) if instead else met.noise
    is_sound = True
    try:
        session.receive_data(first)
        drain(session)
        assert session.is_protected or first != met.noise
        for is_sealed, part in _parts(choices, met):
            is_sound = is_sound and (is_sealed or not session.is_protected)
            session.receive_data(part)
            events = drain(session)
            assert is_sound or not events
            if events and isinstance(events[-1], PeerEnded):
                return not session.buffered_bytes
    except RemoteProtocolError:
        assert session.state is State.CLOSED
        assert session.buffered_bytes == 0
        return False
    return is_sound and not session.buffered_bytes


def _parts(choices: Choices, met: Meeting) -> Iterator[tuple[bool, bytes]]:
    """Pieces as they go over the wire, and whether they are what the other side would send."""
    for part in choices.pieces(_MOST_PIECES):
        inner = Choices(part)
        kind = inner.number() % 4
        if kind == _END and met.other.state is State.SECURE:
            yield True, met.other.send_end()
        elif kind == _RAW or met.other.state is not State.SECURE:
            raw = inner.rest()
            yield not raw, raw
        elif kind == _SEALED:
            content = inner.rest()
            if content:
                yield True, met.other.send_encoded_data(content)
        else:
            place, bit = inner.number(), inner.number() % 8
            sealed = bytearray(met.other.send_encoded_data(inner.rest() or b"\x00"))
            sealed[place % len(sealed)] ^= 1 << bit
            yield False, bytes(sealed)


def seeds() -> dict[str, bytes]:
    """Sound streams in both roles; and what is wrong with a record or a message in one place."""
    request = encode_frame(Request.message_id, Request(start=b"a", end=b"b").encode())
    unknown = encode_frame(77, b"unknown")

    def sealed(content: bytes) -> bytes:
        return piece(bytes([_SEALED]) + content)

    end = piece(bytes([_END]))
    frames = sealed(request + unknown) + sealed(request[:2]) + sealed(request[2:])
    found = {}
    for number, dialled in enumerate((True, False)):
        stream = STREAMS[dialled]
        old = XSalsa20Stream(FEED, stream.opened[-24:])
        old.process(stream.handshake)
        noise = old.process(stream.pieces[0])
        head = bytes([number, 0])
        role = "dialler" if dialled else "dialled"
        foreign = b"".join(OTHERS[dialled].pieces[1:3])
        found |= {
            f"{role}-frames": head + frames + end,
            f"{role}-message": bytes([number, 1]) + piece(noise) + frames,
            f"{role}-no-end": head + frames,
            f"refused-{role}-message": bytes([number, 1]) + piece(noise[:20] + bytes(31)),
            f"refused-{role}-flipped": head + frames + piece(bytes([_FLIPPED, 9, 1]) + request),
            f"refused-{role}-foreign": head + frames + piece(bytes([_RAW]) + foreign),
            f"refused-{role}-short": head + piece(bytes([_RAW, 0, 15]) + bytes(15)),
            f"refused-{role}-cut-frame": head + sealed(request[:3]) + end,
        }
    return found

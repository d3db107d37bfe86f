"""HyperBloom's framing: Open, then frames, in whatever pieces they come."""

from __future__ import annotations

from choices import Choices

from hyperbloom.wire import RemoteProtocolError
from hyperbloom.wire.framing import MAGIC, FrameReader, encode_frame, encode_open, split_frame
from hyperbloom.wire.limits import MAX_FRAME_BYTES

MAX_BYTES = 4_096
RUNS = 80


def fuzz(data: bytes) -> bool:
    """Pieces of one connection, the first piece's size chosen; no more is held than came."""
    choices = Choices(data)
    size = 1 + choices.number()
    stream = choices.rest()
    reader = FrameReader()
    opened = False
    fed = taken = 0
    try:
        for at in range(0, len(stream), size):
            piece = stream[at : at + size]
            reader.feed(piece)
            fed += len(piece)
            if not opened:
                body = reader.next_open()
                if body is None:
                    continue
                opened = True
                taken += len(MAGIC) + len(body)
            while (frame := reader.next_frame()) is not None:
                assert 0 < len(frame) <= MAX_FRAME_BYTES
                taken += len(frame)
                split_frame(frame)
            assert len(reader) <= fed - taken
    except RemoteProtocolError:
        return False
    return opened and not len(reader)


def seeds() -> dict[str, bytes]:
    """An Open and frames, whole and in pieces."""
    stream = encode_open(b"a body") + encode_frame(1, b"one") + encode_frame(300, b"x" * 200)
    return {
        "whole": b"\xff" + stream,
        "bytewise": b"\x00" + stream,
        "padded-length": b"\x10" + encode_open(b"b") + b"\x82\x80\x00\x01\x02",
    }

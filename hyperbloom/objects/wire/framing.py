"""Frames: one byte flag, the length of what follows (4 bytes, big endian), and that much."""

from __future__ import annotations

import struct
from typing import Final

from hyperbloom.objects.limits import MAX_EARLY_FRAME_BYTES, MAX_FRAME_BYTES
from hyperbloom.objects.wire.errors import FrameTooLong, LocalProtocolError, WrongFlag

__all__ = ["HEADER_BYTES", "FrameReader", "encode_frame"]

_HEADER: Final = struct.Struct(">BI")
HEADER_BYTES: Final = _HEADER.size


def encode_frame(flag: int, processed: bytes) -> bytes:
    """A frame around processed bytes; LocalProtocolError if they are too many."""
    if len(processed) > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"a message has at most {MAX_FRAME_BYTES} bytes; send parts")
    return _HEADER.pack(flag, len(processed)) + processed


class FrameReader:
    """Cuts what arrives into frames. Flag and length are looked at before the rest is waited for.

    `limit` is the most bytes a frame may announce; it starts low and is raised by who knows that
    the peer has shaken hands.
    """

    def __init__(self, flag: int) -> None:
        self.flag = flag
        self._buffer = bytearray()
        self.limit = MAX_EARLY_FRAME_BYTES

    def __len__(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes that arrived."""
        self._buffer += data

    def clear(self) -> None:
        """Drop what is buffered."""
        self._buffer.clear()

    def peek(self, most: int) -> bytes:
        """The next bytes, so many at most, which stay."""
        return bytes(memoryview(self._buffer)[:most])

    def take(self, count: int) -> bytes:
        """The next `count` bytes, which must be there; they go."""
        found = self.peek(count)
        # CPython moves where a bytearray begins, and not its bytes.
        del self._buffer[:count]
        return found

    def next_frame(self) -> bytes | None:
        """The processed bytes of the next frame, or None until it is whole.

        WrongFlag and FrameTooLong as soon as the header says so.
        """
        buffered = len(self)
        if not buffered:
            return None
        if self._buffer[0] != self.flag:
            raise WrongFlag(f"the peer's flag is {self._buffer[0]}, and {self.flag} is set here")
        if buffered < HEADER_BYTES:
            return None
        length = _HEADER.unpack_from(self._buffer)[1]
        if length > self.limit:
            raise FrameTooLong(f"a message of {length} bytes; {self.limit} are taken")
        if buffered < HEADER_BYTES + length:
            return None
        del self._buffer[:HEADER_BYTES]
        return self.take(length)

"""Frames: how a stream of bytes is cut into messages.

A connection starts with Open: 4 magic bytes, a varint length, a body. Everything after it is
encrypted, and is frames: a varint length, then a varint message id and the body, which the length
covers together (docs/protocol.md#protocol).

A varint gives 7 bits a byte, lowest first; the high bit says that another byte follows. A length
takes at most three bytes here; longer ones need not be minimal for a peer to be understood.

What is refused is refused as soon as it shows: a wrong magic byte when it arrives, a length when
it is read. Nothing of a body whose length is refused is waited for. Bytes are appended at the end
of one bytearray and cut from its front, both of which CPython does without moving the rest, so a
frame costs time linear in its length however small the pieces it comes in.
"""

from __future__ import annotations

import hashlib
from typing import Final

from hyperbloom.wire.errors import FrameTooLong, LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.limits import (
    MAX_FRAME_BYTES,
    MAX_LENGTH_BYTES,
    MAX_MESSAGE_ID_BYTES,
    MAX_OPEN_BYTES,
    SEND_FRAME_BYTES,
)
from hyperbloom.wire.records import RecordReader
from hyperbloom.wire.stream_cipher import XSalsa20Stream

__all__ = [
    "MAGIC",
    "FrameReader",
    "encode_frame",
    "encode_open",
    "encode_varint",
    "read_varint",
    "split_frame",
    "varint_length",
]

MAGIC: Final = bytes.fromhex("d572c875")


def encode_varint(number: int) -> bytes:
    """A number from 0 as a varint, in as few bytes as it takes."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint_length(number: int) -> int:
    """How many bytes `encode_varint` gives a number from 0."""
    return max(1, (number.bit_length() + 6) // 7)


def read_varint(
    data: bytes | bytearray, start: int, *, most: int, what: str
) -> tuple[int, int] | None:
    """The varint at `start` and the index behind it, or None while its end is missing.

    RemoteProtocolError when it takes more than `most` bytes; `what` names it there.
    """
    number = 0
    for index, byte in enumerate(data[start : start + most]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, start + index + 1
    if len(data) - start >= most:
        raise RemoteProtocolError(f"{what} takes more than {most} bytes")
    return None


def encode_open(body: bytes) -> bytes:
    """Open as it stands on the wire: magic, length, body."""
    return MAGIC + encode_varint(len(body)) + body


def encode_frame(message_id: int, body: bytes) -> bytes:
    """A frame in the clear. LocalProtocolError when it is longer than SEND_FRAME_BYTES."""
    header = encode_varint(message_id)
    length = len(header) + len(body)
    if length > SEND_FRAME_BYTES:
        raise LocalProtocolError(
            f"a message of {length} bytes does not fit a frame of {SEND_FRAME_BYTES}"
        )
    return b"".join((encode_varint(length), header, body))


def split_frame(frame: bytes) -> tuple[int, bytes]:
    """Message id and body of a frame. RemoteProtocolError when the id does not end in it."""
    read = read_varint(frame, 0, most=MAX_MESSAGE_ID_BYTES, what="a message id")
    if read is None:
        raise RemoteProtocolError("a frame ends inside its message id")
    message_id, end = read
    return message_id, frame[end:]


class FrameReader:
    """Cuts one direction of a connection into its Open and its frames, and decrypts them.

    `feed` takes bytes as they come; `next_open` once and `next_frame` then give what is complete,
    or None. Behind the Open, bytes wait as they are until `decrypt_with` gives their cipher.
    `len()` is the number of bytes held. It holds no more than that: buffers go when they are empty.
    """

    __slots__ = ("_broken", "_buffer", "_cipher", "_length", "_records", "_transcript")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._cipher: XSalsa20Stream | None = None
        self._records: RecordReader | None = None
        #: What the records were found to be broken by.
        self._broken: RemoteProtocolError | None = None
        #: What the length read last says; 0 when the next is still to be read.
        self._length = 0
        self._transcript: hashlib.blake2b | None = hashlib.blake2b()

    def __len__(self) -> int:
        return len(self._buffer) + (0 if self._records is None else len(self._records))

    @property
    def end_received(self) -> bool:
        """Whether the peer has said that it sends nothing more."""
        return self._records is not None and self._records.has_ended

    @property
    def record_received(self) -> bool:
        """Whether a record came that is authentic."""
        return self._records is not None and self._records.has_opened

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing is held of a frame that is not whole."""
        return not (self._buffer or self._length or self._records)

    def check_end(self) -> bool:
        """Whether the end was said, now that there is no whole frame left to take.

        RemoteProtocolError when its last frame is not whole.
        """
        if not self.end_received:
            return False
        if self._buffer or self._length:
            raise RemoteProtocolError("the peer's stream ends inside a frame")
        return True

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        if self._records is not None:
            self._take_records(self._records, data)
        else:
            self._buffer += data if self._cipher is None else self._cipher.process(data)

    def decrypt_with(self, cipher: XSalsa20Stream) -> None:
        """Decrypt what is held and all that follows."""
        self._cipher = cipher
        if self._buffer:
            self._buffer = bytearray(cipher.process(self._buffer))

    def read_records(self, records: RecordReader) -> None:
        """What is held, and all that follows, was sent as records and not in the keystream."""
        held, self._buffer = self._buffer, bytearray()
        if held and self._cipher is not None:
            self._cipher.go_back(len(held))
            held = bytearray(self._cipher.process(held))
        self._cipher, self._records = None, records
        self._take_records(records, held)

    def _take_records(self, records: RecordReader, data: bytes | bytearray) -> None:
        try:
            self._buffer += records.process(data)
        except RemoteProtocolError as error:
            self._broken = error

    def end_transcript(self) -> bytes:
        """A hash (64 bytes) of all that was taken so far, without the keystream; asked for once."""
        if self._transcript is None:
            raise LocalProtocolError("the transcript has ended")
        digest, self._transcript = self._transcript.digest(), None
        return digest

    def clear(self) -> None:
        """Drop everything held."""
        self._buffer = bytearray()
        self._cipher = self._records = None
        self._length = 0

    def next_open(self) -> bytes | None:
        """The body of Open. RemoteProtocolError: wrong magic, or a length out of bounds."""
        if not self._length:
            seen = self._buffer[: len(MAGIC)]
            if not MAGIC.startswith(seen):
                raise RemoteProtocolError("the connection does not start with HyperBloom's magic")
            if len(seen) < len(MAGIC) or not self._read_length(len(MAGIC), MAX_OPEN_BYTES, "Open"):
                return None
        return self._take_body()

    def next_frame(self, limit: int = MAX_FRAME_BYTES) -> bytes | None:
        """Message id and body. RemoteProtocolError: a length of 0 or above `limit`, or records that
        are not what the peer sent.

        The limit is that of the moment in which the length is read.
        """
        if self._broken is not None:
            raise self._broken
        if not self._length and not self._read_length(0, limit, "a frame"):
            return None
        return self._take_body()

    def _read_length(self, start: int, limit: int, what: str) -> bool:
        read = read_varint(self._buffer, start, most=MAX_LENGTH_BYTES, what=f"the length of {what}")
        if read is None:
            return False
        length, end = read
        if not 0 < length <= limit:
            error = FrameTooLong if length else RemoteProtocolError
            raise error(f"the length of {what} is {length}, not 1 to {limit}")
        self._length = length
        self._cut(end)
        return True

    def _take_body(self) -> bytes | None:
        length = self._length
        if len(self._buffer) < length:
            return None
        self._length = 0
        if len(self._buffer) == length:
            body = bytes(self._buffer)
        else:
            with memoryview(self._buffer) as view:
                body = bytes(view[:length])
        self._cut(length)
        return body

    def _cut(self, count: int) -> None:
        if self._transcript is not None:
            self._transcript.update(self._buffer[:count])
        if count == len(self._buffer):
            self._buffer = bytearray()
        else:
            del self._buffer[:count]

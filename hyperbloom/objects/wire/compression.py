"""The LZ4 frame format (lz4_Frame_format.md 1.6) in bounds.

What is sent looks as the JVM's own frames do: blocks that do not depend on each other, a checksum
of the content, no content size. Of exactly 16 bytes of content the JVM's library computes another
checksum than the format's and refuses the right one, so a frame of so many has none: PING, PONG,
KICK and REJECTION are such.
"""

from __future__ import annotations

import struct
from typing import Final

import lz4.frame

from hyperbloom.objects.limits import MAX_PAYLOAD_BYTES
from hyperbloom.objects.wire.errors import PayloadTooLong, RemoteProtocolError

__all__ = ["LZ4_MAGIC", "compress", "decompress", "is_one_frame"]

#: What every frame begins with.
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"

#: No byte of a frame makes more than this. The library asks for all of `max_length` at once, so a
#: small message should name a small one.
_LARGEST: Final = 255
#: So many bytes of content go without a checksum.
_UNCHECKED_BYTES: Final = 16

_BLOCK_SIZE: Final = struct.Struct("<I")
#: A block's size with this bit: it is not compressed.
_PLAIN_BLOCK: Final = 1 << 31
#: A frame of more blocks is not followed to its end.
_MOST_BLOCKS: Final = 64


def compress(data: bytes) -> bytes:
    """One whole frame."""
    frame: bytes = lz4.frame.compress(
        data,
        block_linked=False,
        content_checksum=len(data) != _UNCHECKED_BYTES,
        store_size=False,
    )
    return frame


def decompress(data: bytes, *, limit: int = MAX_PAYLOAD_BYTES) -> bytes:
    """What one whole frame holds, at most `limit` bytes, and no more than that is ever made.

    RemoteProtocolError if it is no frame, cut short, longer (PayloadTooLong), or followed by other
    bytes.
    """
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        found: bytes = reader.decompress(data, max_length=min(limit + 1, _LARGEST * len(data) + 1))
    except (RuntimeError, ValueError, EOFError, MemoryError) as error:
        raise RemoteProtocolError(f"a message is no LZ4 frame: {error}") from None
    if len(found) > limit:
        raise PayloadTooLong(f"a message is longer than {limit} bytes when decompressed")
    if not reader.eof:
        raise RemoteProtocolError("an LZ4 frame is cut short")
    if reader.unused_data:
        raise RemoteProtocolError(f"{len(reader.unused_data)} bytes follow an LZ4 frame")
    return found


def is_one_frame(data: bytes) -> bool:
    """Whether the bytes are a whole frame and nothing else, by its header and its blocks' sizes."""
    if not data.startswith(LZ4_MAGIC) or len(data) == len(LZ4_MAGIC):
        return False
    flags = data[len(LZ4_MAGIC)]
    has_id, has_sum, has_size, has_sums = (flags >> bit & 1 for bit in (0, 2, 3, 4))
    at = len(LZ4_MAGIC) + 3 + 8 * has_size + 4 * has_id
    for _ in range(_MOST_BLOCKS):
        if len(data) < at + _BLOCK_SIZE.size:
            return False
        size = _BLOCK_SIZE.unpack_from(data, at)[0] & ~_PLAIN_BLOCK
        at += _BLOCK_SIZE.size
        if not size:
            return len(data) == at + 4 * has_sum
        at += size + 4 * has_sums
    return False

"""LZ4 frames read and written by the text of their formats alone, to check the library's against.

lz4_Frame_format.md and lz4_Block_format.md of the lz4 project, xxhash_spec.md for the checksums.
MessagePack is checked against another library, u-msgpack.
"""

from __future__ import annotations

import struct

MAGIC = 0x184D2204
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def _rotate(number: int, by: int) -> int:
    return ((number << by) | (number >> (32 - by))) & _MASK


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0."""
    at = 0
    if len(data) >= 16:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 16 <= len(data):
            words = struct.unpack_from("<4I", data, at)
            lanes = [
                _rotate((lane + word * _P2) & _MASK, 13) * _P1 & _MASK
                for lane, word in zip(lanes, words, strict=True)
            ]
            at += 16
        code = sum(map(_rotate, lanes, (1, 7, 12, 18))) & _MASK
    else:
        code = _P5
    code = (code + len(data)) & _MASK
    while at + 4 <= len(data):
        code = _rotate((code + struct.unpack_from("<I", data, at)[0] * _P3) & _MASK, 17)
        code = code * _P4 & _MASK
        at += 4
    for byte in data[at:]:
        code = _rotate((code + byte * _P5) & _MASK, 11) * _P1 & _MASK
    code = (code ^ (code >> 15)) * _P2 & _MASK
    code = (code ^ (code >> 13)) * _P3 & _MASK
    return code ^ (code >> 16)


def _length(block: bytes, at: int, first: int) -> tuple[int, int]:
    length = first
    if first == 15:
        while True:
            byte = block[at]
            at += 1
            length += byte
            if byte != 255:
                break
    return length, at


def _block(block: bytes, found: bytearray) -> None:
    at = 0
    while True:
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        found += block[at : at + count]
        at += count
        if at >= len(block):
            return
        offset = struct.unpack_from("<H", block, at)[0]
        count, at = _length(block, at + 2, token & 15)
        for _ in range(count + 4):
            found.append(found[-offset])


def read_frame(data: bytes) -> bytes:
    """What one LZ4 frame holds; every checksum of it is looked at."""
    magic, flags, _ = struct.unpack_from("<IBB", data)
    assert magic == MAGIC
    assert flags >> 6 == 1
    assert flags & 1 == 0, "no dictionary"
    at = 14 if flags & 8 else 6
    assert data[at] == (xxh32(data[4:at]) >> 8) & 0xFF
    at += 1
    found = bytearray()
    while size := struct.unpack_from("<I", data, at)[0]:
        at += 4
        length = size & 0x7FFFFFFF
        if size >> 31:
            found += data[at : at + length]
        else:
            _block(data[at : at + length], found)
        at += length + (4 if flags & 16 else 0)
    at += 4
    if flags & 4:
        assert struct.unpack_from("<I", data, at)[0] == xxh32(bytes(found))
        at += 4
    assert at == len(data)
    return bytes(found)


def write_frame(data: bytes) -> bytes:
    """An LZ4 frame of one block that is not compressed, with content checksum, as the JVM's."""
    descriptor = bytes([0b01100100, 0x70])
    head = struct.pack("<I", MAGIC) + descriptor + bytes([(xxh32(descriptor) >> 8) & 0xFF])
    block = struct.pack("<I", len(data) | 1 << 31) + data if data else b""
    return head + block + bytes(4) + struct.pack("<I", xxh32(data))

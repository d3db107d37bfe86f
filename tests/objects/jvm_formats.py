"""Bytes as the JVM implementation of PPPP 2 reads and writes them, from what was recorded of it.

Nothing here uses `hyperbloom.objects`: MessagePack is u-msgpack's, with the JVM's own rules around
it, LZ4 frames are read by the text of their format (other_formats.py), AES is `cryptography`'s.
"""

from __future__ import annotations

import hashlib
import io
import struct

import other_formats as lz4
import umsgpack
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

BUFFER_BYTES = 8_192
#: From here on a text, or a whole message, needs a second buffer, and no zeros are sent.
LONGEST_TEXT = 1_357
LEAST_LONG, MOST_LONG = -(1 << 63), (1 << 63) - 1
LEAST_INT, MOST_INT = -(1 << 31), (1 << 31) - 1


class Unreadable(Exception):
    """What the JVM ends the connection at, with KICK."""


class Unwritable(Exception):
    """What the JVM cannot write: it closes without a word."""


class Float(float):
    """A java.lang.Float; a plain float is a Double."""


def narrowed(number: float) -> Float:
    try:
        return Float(struct.unpack(">f", struct.pack(">f", number))[0])
    except OverflowError:
        return Float("inf" if number > 0 else "-inf")


# LZ4


def checksum(data: bytes) -> int:
    """Its library's: that of the format, but for exactly 16 bytes, of which one lane counts."""
    if len(data) != 16:
        return lz4.xxh32(data)
    word = struct.unpack_from("<I", data, 8)[0]
    code = lz4._rotate((word * lz4._P2) & lz4._MASK, 13) * lz4._P1 & lz4._MASK
    code = (code + lz4._P5 + 16) & lz4._MASK
    code = (code ^ (code >> 15)) * lz4._P2 & lz4._MASK
    code = (code ^ (code >> 13)) * lz4._P3 & lz4._MASK
    return code ^ (code >> 16)


def read_lz4(data: bytes) -> bytes:
    """What a frame holds; Unreadable for what its library refuses."""
    right = lz4.xxh32
    lz4.xxh32 = _either  # the content's checksum is looked at by its own measure
    try:
        return lz4.read_frame(data)
    except (AssertionError, IndexError, struct.error):
        raise Unreadable("no LZ4 frame") from None
    finally:
        lz4.xxh32 = right


def _either(data: bytes, of=lz4.xxh32) -> int:
    return checksum(data) if len(data) == 16 else of(data)


def write_lz4(data: bytes) -> bytes:
    """Blocks that are not compressed, but for a long row of zeros behind the rest."""
    descriptor = bytes([0b01100100, 0x70])
    head = struct.pack("<I", lz4.MAGIC) + descriptor
    head += bytes([(lz4.xxh32(descriptor) >> 8) & 0xFF])
    body = data.rstrip(b"\0")
    zeros = len(data) - len(body)
    block = _block(body, zeros) if zeros > 64 else None
    size = len(data) | 1 << 31 if block is None else len(block)
    return (
        head
        + struct.pack("<I", size)
        + (block or data)
        + bytes(4)
        + struct.pack("<I", checksum(data))
    )


def _block(body: bytes, zeros: int) -> bytes:
    """One block: the body and a zero as literals, a match of zeros, five zeros as literals."""
    literals, match = body + b"\0", zeros - 1 - 5
    return b"".join((
        bytes([min(15, len(literals)) << 4 | 15]), _length(len(literals) - 15), literals,
        b"\1\0", _length(match - 4 - 15), b"\x50", bytes(5),
    ))  # fmt: skip


def _length(rest: int) -> bytes:
    return b"" if rest < 0 else b"\xff" * (rest // 255) + bytes([rest % 255])


# MessagePack


def pack(value) -> bytes:
    """A value as its packer has it; Unwritable for a char, an array, a bean."""
    match value:
        case Float():
            return b"\xca" + struct.pack(">f", value)
        case None | bool() | int() | float() | str():
            return umsgpack.packb(value)
        case list():
            head = umsgpack.packb([None] * len(value))[: -len(value) or None]
            return head + b"".join(map(pack, value))
        case dict():
            return _map_head(len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    raise Unwritable(type(value).__name__)


def _map_head(count: int) -> bytes:
    if count < 16:
        return bytes([0x80 | count])
    return struct.pack(">BH", 0xDE, count) if count < 65_536 else struct.pack(">BI", 0xDF, count)


def padded(message: dict) -> bytes:
    """A message as it is compressed: with zeros up to a whole buffer."""
    packed = pack(message)
    longest = max((len(text.encode()) for text in _texts(message)), default=0)
    if len(packed) > BUFFER_BYTES or longest > LONGEST_TEXT:
        return packed
    return packed + bytes(BUFFER_BYTES - len(packed))


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(item)


class _Pairs(dict):
    pass


KNOWN_KEYS = {"v", "t", "op", "d", "h", "oh"}


def unpack(data: bytes) -> dict:
    """The message that plain bytes begin with; what follows it is not looked at."""
    try:
        found = umsgpack.unpack(
            io.BytesIO(data), allow_invalid_utf8=False, use_ordered_dict=True, strict_float=True
        )
    except (umsgpack.UnpackException, TypeError, UnicodeDecodeError):
        raise Unreadable("no MessagePack") from None
    if not isinstance(found, dict):
        raise Unreadable("no map")
    last = list(found)[-1:] or [None]
    for key, value in found.items():
        if key not in KNOWN_KEYS and key != last[0]:
            raise Unreadable(f"the key {key!r}")
        _check(key, value)
    found = {key: value for key, value in found.items() if key in KNOWN_KEYS}
    if "d" in found:
        found["d"] = _as_java(found["d"])
        if not isinstance(found["d"], dict) or not all(isinstance(k, str) for k in found["d"]):
            raise Unreadable("d")
    return found


def _check(key: str, value) -> None:
    bounds = {"v": (LEAST_INT, MOST_INT), "op": (LEAST_INT, MOST_INT)}
    least, most = bounds.get(key, (LEAST_LONG, MOST_LONG))
    if key in KNOWN_KEYS - {"d"} and not (type(value) is int and least <= value <= most):
        raise Unreadable(f"{key} is {value!r}")


def _as_java(value):
    match value:
        case None | bool() | str():
            return value
        case int():
            if LEAST_INT <= value <= MOST_INT:
                return value
            raise Unreadable(f"the integer {value}")
        case float():
            return narrowed(value)
        case bytes():
            return None
        case list() | tuple():
            return [_as_java(item) for item in value]
        case dict():
            return {_as_java(key): _as_java(item) for key, item in value.items()}
    raise Unreadable(type(value).__name__)


# AES


class Secret:
    """AES-128 in ECB mode with PKCS#5 padding; the key is SHA-1 of the passphrase, cut."""

    def __init__(self, passphrase: str) -> None:
        key = hashlib.sha1(passphrase.encode()).digest()[:16]
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())

    def encrypt(self, data: bytes) -> bytes:
        fill = 16 - len(data) % 16
        encryptor = self._cipher.encryptor()
        return encryptor.update(data + bytes([fill]) * fill) + encryptor.finalize()

    def decrypt(self, data: bytes) -> bytes:
        if not data or len(data) % 16:
            raise Unreadable("no AES")
        decryptor = self._cipher.decryptor()
        clear = decryptor.update(data) + decryptor.finalize()
        fill = clear[-1]
        if not 1 <= fill <= 16 or clear[-fill:] != bytes([fill]) * fill:
            raise Unreadable("no AES padding")
        return clear[:-fill]


# hashCode and hash


def hash_code(value) -> int:
    """Java's hashCode of a value; signed 32 bits."""
    match value:
        case None:
            return 0
        case bool():
            return 1231 if value else 1237
        case int():
            number = value if LEAST_INT <= value <= MOST_INT else value ^ (value >> 32)
            return _int(number)
        case Float():
            bits = (
                0x7FC00000 if value != value else struct.unpack(">I", struct.pack(">f", value))[0]
            )
            return _int(bits)
        case float():
            number = struct.unpack(">q", struct.pack(">d", value))[0]
            number = 0x7FF8000000000000 if value != value else number
            return _int(number ^ (number >> 32))
        case str():
            data = value.encode("utf-16-be", "surrogatepass")
            return polynomial(struct.unpack(f">{len(data) // 2}H", data), begin=0)
        case list():
            return polynomial(map(hash_code, value))
        case bytes():
            return polynomial(byte - 256 if byte > 127 else byte for byte in value)
        case dict():
            return _int(sum(hash_code(k) ^ hash_code(v) for k, v in value.items()))
    raise TypeError(type(value))


def polynomial(codes, begin: int = 1) -> int:
    code = begin
    for item in codes:
        code = (31 * code + item) & 0xFFFFFFFF
    return _int(code)


def _int(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def long_code(value: int) -> int:
    """java.lang.Long, however small."""
    number = value & 0xFFFFFFFFFFFFFFFF
    return _int(number ^ (number >> 32))


def object_hash(name: str, count: int, code: int) -> int:
    """The hash with its bytes added signed; a signed 64-bit integer."""
    number = 0
    letters = [ord(name[at]) for at in (0, len(name) // 2, -1)]
    for byte in (*letters, count, *(code >> shift for shift in (0, 8, 16, 24))):
        low = byte & 0xFF
        number = (number << 8) + (low - 256 if low > 127 else low)
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number

"""MessagePack in bounds: what arrives is measured first, and built only if it is within them.

A container's header is up to five bytes and may promise 2^32 entries, and every entry may be a
container: `msgpack` allocates what a header promises. So the bytes are walked once without building
anything, which finds the end, the depth and the number of entries; `msgpack` then reads what is
known to be small. Extension types are not part of the protocol.

Numbers as keys of a map hash to themselves in Python, so a peer can choose them to collide: 43,600
such keys (230 kB) took 0.9 s to put into a dict, and texts and byte strings, whose hashes are
random, 4 ms. So a map has few keys that are neither (MAX_PLAIN_KEYS).

A list of 64 KiB may hold 64,000 lists, which Python keeps in 4 MB. So what may be long is read item
by item (`packed_items`, `unpacked_list`), and waits as it came.

The JVM sends the buffer it packed into, whole, zeros behind the map, and looks at nothing behind
the map of others; so what follows one is passed over.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgpack

from hyperbloom.objects.limits import MAX_DEPTH, MAX_ENTRIES, MAX_PLAIN_KEYS
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "check_fields",
    "measure",
    "pack",
    "packed_items",
    "unpack_first",
    "unpack_map",
    "unpack_value",
    "unpacked_list",
]

T = TypeVar("T")

#: What a reader of a list looks ahead.
_READ_BYTES: Final = 4_096
_UNREADABLE: Final = (ValueError, TypeError, msgpack.UnpackException)

_CONTAINER: Final = -1
_STRING: Final = -2
_NEVER: Final = -3

_FIX: Final[dict[int, int]] = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip
_LENGTHS: Final[dict[int, struct.Struct]] = {
    0xC4: struct.Struct(">B"), 0xC5: struct.Struct(">H"), 0xC6: struct.Struct(">I"),
    0xD9: struct.Struct(">B"), 0xDA: struct.Struct(">H"), 0xDB: struct.Struct(">I"),
    0xDC: struct.Struct(">H"), 0xDD: struct.Struct(">I"),
    0xDE: struct.Struct(">H"), 0xDF: struct.Struct(">I"),
}  # fmt: skip


def _first_byte(byte: int) -> int:
    """Bytes that follow this one, or what has to be looked at more closely."""
    if byte < 0x80 or byte >= 0xE0:
        return 0
    if byte < 0xA0 or byte in (0xDC, 0xDD, 0xDE, 0xDF):
        return _CONTAINER
    if byte < 0xC0:
        return byte & 0x1F
    return _STRING if byte in _LENGTHS else _FIX.get(byte, _NEVER)


_FOLLOWING: Final = tuple(_first_byte(byte) for byte in range(256))


def measure(data: bytes) -> int:
    """Where the first value in `data` ends, in bytes; RemoteProtocolError if it is out of bounds.

    That is: cut short, deeper than MAX_DEPTH, of more than MAX_ENTRIES entries, or of a type that
    the protocol does not know (MessagePack specification, "Formats").
    """
    position = entries = 0
    left = 1
    outer: list[int] = []
    following = _FOLLOWING
    try:
        while True:
            while not left:
                if not outer:
                    return _within(position, data)
                left = outer.pop()
            left -= 1
            byte = data[position]
            position += 1
            size = following[byte]
            if size >= 0:
                position += size
            elif size == _STRING:
                length = _LENGTHS[byte]
                position += length.size + length.unpack_from(data, position)[0]
            elif size == _CONTAINER:
                outer.append(left)
                position, left = _open(data, byte, position)
                entries += left
                if entries > MAX_ENTRIES or len(outer) > MAX_DEPTH:
                    raise RemoteProtocolError(
                        f"a message has more than {MAX_ENTRIES} entries, or is deeper than "
                        f"{MAX_DEPTH}"
                    )
            else:
                raise RemoteProtocolError(f"MessagePack type 0x{byte:02x} is not known here")
    except (IndexError, struct.error):
        raise RemoteProtocolError("a MessagePack value is cut short") from None


def _open(data: bytes, byte: int, position: int) -> tuple[int, int]:
    """Behind a container's header, and the values in it: two for each entry of a map."""
    if byte < 0xA0:
        count, is_map = byte & 0x0F, byte < 0x90
    else:
        length = _LENGTHS[byte]
        count, is_map = length.unpack_from(data, position)[0], byte >= 0xDE
        position += length.size
    return position, 2 * count if is_map else count


def _within(position: int, data: bytes) -> int:
    if position > len(data):
        raise RemoteProtocolError("a MessagePack value is cut short")
    return position


def unpack_map(data: bytes) -> dict[Any, Any]:
    """The map that `data` begins with; RemoteProtocolError for anything else."""
    return unpack_first(data)[0]


def unpack_first(data: bytes) -> tuple[dict[Any, Any], int]:
    """The map that `data` begins with, and how many bytes follow it; RemoteProtocolError."""
    end = measure(data)
    found = unpack_value(data[:end])
    if type(found) is not dict:
        raise RemoteProtocolError("a message is a map")
    return found, len(data) - end


def unpack_value(data: bytes) -> Any:
    """The value that `data`, which has been measured, is; RemoteProtocolError."""
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=_map_of)
    except _UNREADABLE as error:
        # Text that is no UTF-8; a list or map as the key of a map.
        raise _unreadable(error) from None


def packed_items(data: bytes) -> dict[Any, bytes]:
    """The map that `data`, which has been measured, is, its values packed; RemoteProtocolError."""
    reader = _reader(data)
    pairs: list[tuple[Any, bytes]] = []
    try:
        for _ in range(reader.read_map_header()):
            key, begin = reader.unpack(), reader.tell()
            reader.skip()
            pairs.append((key, data[begin : reader.tell()]))
        return _map_of(pairs)
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def unpacked_list(data: bytes) -> tuple[int, Iterator[Any]]:
    """The length of the list that `data`, which has been measured, is, and its items one by one.

    RemoteProtocolError, which may come with any item.
    """
    reader = _reader(data)
    try:
        count: int = reader.read_array_header()
    except _UNREADABLE as error:
        raise _unreadable(error) from None

    def items() -> Iterator[Any]:
        for _ in range(count):
            try:
                yield reader.unpack()
            except _UNREADABLE as error:
                raise _unreadable(error) from None

    return count, items()


def _reader(data: bytes) -> Any:
    return msgpack.Unpacker(
        io.BytesIO(data),
        read_size=_READ_BYTES,
        raw=False,
        strict_map_key=False,
        object_pairs_hook=_map_of,
    )


def _unreadable(error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"a message cannot be read: {error}")


def _map_of(pairs: list[tuple[Any, T]]) -> dict[Any, T]:
    if len(pairs) > MAX_PLAIN_KEYS:
        plain = sum(type(key) not in (str, bytes) for key, _ in pairs)
        if plain > MAX_PLAIN_KEYS:
            raise ValueError(f"a map has {plain} keys that are neither texts nor byte strings")
    return dict(pairs)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse an object that no INITIALIZE can carry; LocalProtocolError.

    There it is two levels deeper than in CREATION and CHANGE. Taken in, it would keep the whole
    pool from every peer.
    """
    if not any(isinstance(value, dict | list | tuple) for value in fields.values()):
        return
    try:
        unpack_map(pack({"d": {"p": [dict(fields)]}}))
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"an object cannot be sent: {error}") from None


def pack(value: object) -> bytes:
    """A value as MessagePack, integers as short as they go, floats of 64 bits.

    LocalProtocolError for what MessagePack or the protocol has no form for.
    """
    try:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(value).__name__} cannot be packed: {error}") from None
    return packed

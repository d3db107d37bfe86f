"""The messages of HyperBloom as values, apart from their bytes.

Each message is a frozen dataclass that refuses what the protocol refuses: making one that breaks
it raises LocalProtocolError; `decode` of a body that does raises RemoteProtocolError (and nothing
else, whatever the bytes); `encode` gives the body back. Bodies are proto2 (proto/hyperbloom.proto)
except FilterOptions, both of whose fields carry tag 1, so that no compiler takes it.

Deployed peers send `limit: 0` for "no limit"; here that is None, and zero is never sent. Unknown
fields in a body are skipped, as protobuf asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from hyperbloom.keys import HASH_BYTES, SIGNATURE_BYTES
from hyperbloom.wire._pb2 import hyperbloom_pb2 as pb2
from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.framing import encode_varint, read_varint
from hyperbloom.wire.limits import MAX_EXTENSION_BYTES, MAX_EXTENSIONS
from hyperbloom.wire.stream_cipher import CIPHER_NONCE_BYTES

__all__ = [
    "MAX_FILTER_PADDING",
    "PEER_ID_BYTES",
    "Data",
    "FilterOptions",
    "Handshake",
    "Link",
    "Open",
    "Range",
    "Request",
    "Sync",
]

PEER_ID_BYTES: Final = 32

MAX_FILTER_PADDING: Final = 3
"""Deployed peers send filters in whole 32-bit words."""

_MAX_UINT32: Final = 0xFFFF_FFFF
_MAX_VARINT_BYTES: Final = 10

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The first message of each side, in the clear (docs/protocol.md#open).

    `feed` is the feed's discovery key (32 bytes), `nonce` (24 bytes) starts the sender's keystream.
    """

    feed: bytes
    nonce: bytes

    def __post_init__(self) -> None:
        _check(len(self.feed) == HASH_BYTES, "Open.feed has 32 bytes")
        _check(len(self.nonce) == CIPHER_NONCE_BYTES, "Open.nonce has 24 bytes")

    def encode(self) -> bytes:
        """The body."""
        return pb2.Open(feed=self.feed, nonce=self.nonce).SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Open:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        raw = _parse(pb2.Open(), body)
        return _received(lambda: cls(feed=raw.feed, nonce=raw.nonce))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """Proof of the right to take part (docs/protocol.md#0-handshake).

    `id` (32 bytes) is free; `signature` (64 bytes) is over what the dialect says, by the last key
    of `chain`, whose links (raw bytes, from the feed's end) are judged by the session.
    """

    message_id: ClassVar[int] = 0

    id: bytes
    extensions: tuple[str, ...] = ()
    signature: bytes
    chain: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        _check(len(self.id) == PEER_ID_BYTES, "Handshake.id has 32 bytes")
        _check(len(self.signature) == SIGNATURE_BYTES, "Handshake.signature has 64 bytes")
        _check(
            len(self.extensions) <= MAX_EXTENSIONS,
            f"Handshake.extensions has at most {MAX_EXTENSIONS} of them",
        )
        for extension in self.extensions:
            _check(
                len(_utf8(extension)) <= MAX_EXTENSION_BYTES,
                f"an extension of Handshake has at most {MAX_EXTENSION_BYTES} bytes",
            )

    def encode(self) -> bytes:
        """The body."""
        return pb2.Handshake(
            id=self.id,
            extensions=[_utf8(extension) for extension in self.extensions],
            signature=self.signature,
            chain=self.chain,
        ).SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Handshake:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        raw = _parse(pb2.Handshake(), body)
        try:
            extensions = tuple(extension.decode() for extension in raw.extensions)
        except UnicodeDecodeError:
            raise RemoteProtocolError("an extension of Handshake is not UTF-8") from None
        return _received(
            lambda: cls(
                id=raw.id, extensions=extensions, signature=raw.signature, chain=tuple(raw.chain)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values with start ≤ value < end, byte by byte; None for `end`: open above."""

    start: bytes
    end: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The peer wants what is not in a filter (docs/protocol.md#1-sync).

    `filter` is a Bloom filter of `size` bits with `n` hash functions seeded with `seed`, over the
    sender's values in `range` (None: all). At most `limit` values are wanted (None: any number).
    """

    message_id: ClassVar[int] = 1

    filter: bytes
    size: int
    n: int
    seed: int
    limit: int | None = None
    range: Range | None = None

    def __post_init__(self) -> None:
        _check_count(self.size, "Sync.size")
        _check_count(self.n, "Sync.n")
        _check(0 <= self.seed <= _MAX_UINT32, "Sync.seed is an unsigned 32-bit number")
        _check_limit(self.limit, "Sync.limit")
        # The text: filter.length * 8 >= size >= (filter.length - 1) * 8; the rest is padding.
        shortest = (self.size + 7) // 8
        longest = self.size // 8 + 1 + MAX_FILTER_PADDING
        _check(
            shortest <= len(self.filter) <= longest,
            f"Sync.filter of {self.size} bits has {shortest} to {longest} bytes, "
            f"not {len(self.filter)}",
        )

    def encode(self) -> bytes:
        """The body."""
        raw = pb2.Sync(
            filter=self.filter, size=self.size, n=self.n, seed=self.seed, limit=self.limit
        )
        if self.range is not None:
            raw.range.start = self.range.start
            if self.range.end is not None:
                raw.range.end = self.range.end
        return raw.SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Sync:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        raw = _parse(pb2.Sync(), body)
        bounds = None
        if raw.HasField("range"):
            bounds = Range(start=raw.range.start, end=_end(raw.range))
        return _received(
            lambda: cls(
                filter=raw.filter,
                size=raw.size,
                n=raw.n,
                seed=raw.seed,
                limit=raw.limit or None,
                range=bounds,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The filters a peer would rather have: at most `size` bits, `n` hash functions.

    Both fields carry tag 1, first `size`, then `n`; `n` is also read under tag 2, in any order.
    """

    message_id: ClassVar[int] = 2

    size: int
    n: int

    def __post_init__(self) -> None:
        _check_count(self.size, "FilterOptions.size")
        _check_count(self.n, "FilterOptions.n")

    def encode(self) -> bytes:
        """The body."""
        return b"".join((b"\x08", encode_varint(self.size), b"\x08", encode_varint(self.n)))

    @classmethod
    def decode(cls, body: bytes) -> FilterOptions:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        first: list[int] = []
        second: list[int] = []
        position = 0
        while position < len(body):
            tag, position = _varint(body, position)
            field, wire_type = tag >> 3, tag & 7
            if field == 0:
                raise RemoteProtocolError("FilterOptions has a field without a number")
            if field in (1, 2) and wire_type == 0:
                number, position = _varint(body, position)
                (first if field == 1 else second).append(number)
            else:
                position = _skip(body, position, wire_type)
        if not first or len(first) + len(second) != 2:
            raise RemoteProtocolError("FilterOptions does not hold exactly a size and an n")
        size, n = first + second
        return _received(lambda: cls(size=size, n=n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Values of the feed (docs/protocol.md#3-data).

    `values` are not empty, none is empty and none comes twice. `signature` (64 bytes) is over what
    the dialect says, by the sender's key; None where the dialect does not sign.
    """

    message_id: ClassVar[int] = 3

    values: tuple[bytes, ...]
    signature: bytes | None = None

    def __post_init__(self) -> None:
        _check(bool(self.values), "Data.values is not empty")
        _check(all(self.values), "a value of Data is not empty")
        _check(len(set(self.values)) == len(self.values), "a value comes once in a Data")
        _check(
            self.signature is None or len(self.signature) == SIGNATURE_BYTES,
            "Data.signature has 64 bytes",
        )

    def encode(self) -> bytes:
        """The body."""
        return pb2.Data(values=self.values, signature=self.signature).SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Data:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        raw = _parse(pb2.Data(), body)
        signature = raw.signature if raw.HasField("signature") else None
        return _received(lambda: cls(values=tuple(raw.values[:]), signature=signature))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The peer wants the values in a range (docs/protocol.md#4-request); fields as in Sync."""

    message_id: ClassVar[int] = 4

    start: bytes
    end: bytes | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        _check_limit(self.limit, "Request.limit")

    def encode(self) -> bytes:
        """The body."""
        return pb2.Request(start=self.start, end=self.end, limit=self.limit).SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Request:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        raw = _parse(pb2.Request(), body)
        return _received(lambda: cls(start=raw.start, end=_end(raw), limit=raw.limit or None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A trust link for the receiver, signed by the sender (docs/protocol.md#5-link): raw bytes."""

    message_id: ClassVar[int] = 5

    link: bytes

    def encode(self) -> bytes:
        """The body."""
        return pb2.Link(link=self.link).SerializeToString()

    @classmethod
    def decode(cls, body: bytes) -> Link:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        return cls(link=_parse(pb2.Link(), body).link)


def _check(holds: bool, rule: str) -> None:
    if not holds:
        raise LocalProtocolError(rule)


def _check_count(number: int, what: str) -> None:
    _check(1 <= number <= _MAX_UINT32, f"{what} is 1 to {_MAX_UINT32}, not {number}")


def _check_limit(limit: int | None, what: str) -> None:
    if limit is not None:
        _check_count(limit, what)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("an extension of Handshake is not valid Unicode") from None


def _received(make: Callable[[], _T]) -> _T:
    """What `make` makes; the same rules broken by a peer are the peer's fault."""
    try:
        return make()
    except LocalProtocolError as error:
        raise RemoteProtocolError(f"the peer breaks a rule: {error}") from None


def _parse(message: _M, body: bytes) -> _M:
    name = message.DESCRIPTOR.name
    try:
        message.ParseFromString(body)
    except DecodeError:
        raise RemoteProtocolError(f"{name} is not well-formed protobuf") from None
    if not message.IsInitialized():
        raise RemoteProtocolError(f"{name} lacks a required field")
    return message


def _end(raw: pb2.Request | pb2.Sync.Range) -> bytes | None:
    return raw.end if raw.HasField("end") else None


def _varint(body: bytes, position: int) -> tuple[int, int]:
    read = read_varint(body, position, most=_MAX_VARINT_BYTES, what="a number in FilterOptions")
    if read is None:
        raise RemoteProtocolError("FilterOptions ends inside a number")
    return read


def _skip(body: bytes, position: int, wire_type: int) -> int:
    """Where the field behind an unknown tag ends (protobuf wire types, groups excepted)."""
    if wire_type == 0:
        return _varint(body, position)[1]
    if wire_type == 2:
        length, position = _varint(body, position)
        end = position + length
    elif wire_type in (1, 5):
        end = position + (8 if wire_type == 1 else 4)
    else:
        raise RemoteProtocolError("FilterOptions holds a field of an unknown kind")
    if end > len(body):
        raise RemoteProtocolError("FilterOptions ends inside a field")
    return end

"""The objects of the pool: what is stored of them, and what is told.

A hash is the eight bytes by which PPPP 2 knows a version of an object, as a signed integer. Fields
are kept as MessagePack, in which they travel. `docs/store.md` shows the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgpack

__all__ = [
    "COUNTS_KEY",
    "HASH_BYTES",
    "LIVE",
    "MAX_ANCESTORS",
    "PAST",
    "PAST_BY_AGE",
    "ObjectCounts",
    "ObjectRecord",
    "Outcome",
    "PastVersion",
    "Verdict",
    "age_key",
    "hash_bytes",
    "hash_number",
    "pack_fields",
    "pack_live",
    "pack_past",
    "unpack_fields",
    "unpack_live",
    "unpack_past",
]

HASH_BYTES: Final = 8
LIVE: Final = b"o"
"""A version that is in the pool."""
PAST: Final = b"p"
"""A version that was changed or removed."""
PAST_BY_AGE: Final = b"q"
"""The past versions by the time of their end, to forget the oldest first."""
COUNTS_KEY: Final = b"n"

MAX_ANCESTORS: Final = 16
"""Earlier hashes kept beside an object: what a peer that was away may still call it."""

_LIVE: Final = struct.Struct(">QQQQBB")
_PAST: Final = struct.Struct(">QQB8s")
_COUNTS: Final = struct.Struct(">QQQQ32s")


class Verdict(Enum):
    """What came of an offer (rule.py)."""

    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"
    MERGED = "merged"
    RESTAMPED = "restamped"
    KNOWN = "known"
    STALE = "stale"
    UNKNOWN = "unknown"
    CLASH = "clash"
    UNFIT = "unfit"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """A version of an object.

    `stamp` is the time of its last change in ms, as the nodes agree on it; `created` and `changed`
    (µs) are when this node learned of the object and of this version. `ended` is the stamp at
    which an earlier object of the same hash ended (0: none). `ancestors` are hashes it had
    before, newest first.
    """

    hash: int
    fields: Mapping[str, Any]
    type_name: str | None
    created: int
    changed: int
    stamp: int
    ended: int = 0
    ancestors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVersion:
    """A version that has ended.

    It ended at the stamp `ended`, and became `successor`, or was removed (None). `at` (µs) is when
    this node learned of it.
    """

    fields: Mapping[str, Any]
    ended: int
    at: int
    successor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one offer.

    `before` and `after` are this node's version of the object; `after` is None where it is removed.
    `stamp` is that of `after`, or of the removal. STALE tells of a newer state than the offer's;
    `offered` are then the whole fields of the version `hash` that the offer names, None for one
    that removes it.
    """

    verdict: Verdict
    hash: int
    stamp: int = 0
    before: ObjectRecord | None = None
    after: ObjectRecord | None = None
    offered: Mapping[str, Any] | None = None


@dataclass(slots=True)
class ObjectCounts:
    """Figures of the pool: objects and past versions, their bytes, and a digest.

    The digest is the sum of the hashes' keyed hashes modulo 2^256: equal pools have equal ones. It
    is for people to look at; no peer is compared by it, and it is no proof (docs/store.md).
    Mutable while a transaction works on it.
    """

    count: int = 0
    size: int = 0
    past: int = 0
    past_size: int = 0
    digest: int = 0

    def pack(self) -> bytes:
        return _COUNTS.pack(
            self.count, self.size, self.past, self.past_size, self.digest.to_bytes(32, "big")
        )

    @classmethod
    def unpack(cls, data: bytes | None) -> ObjectCounts:
        """The figures; zeros where none are kept yet. struct.error if they are malformed."""
        if data is None:
            return cls()
        count, size, past, past_size, digest = _COUNTS.unpack(data)
        return cls(count, size, past, past_size, int.from_bytes(digest, "big"))


def hash_bytes(number: int) -> bytes:
    """A hash as it is in keys: eight bytes, two's complement, big endian."""
    return number.to_bytes(HASH_BYTES, "big", signed=True)


def hash_number(data: bytes) -> int:
    """The inverse of `hash_bytes`."""
    return int.from_bytes(data, "big", signed=True)


def age_key(at: int, number: int) -> bytes:
    """The key of a past version in the order of age."""
    return PAST_BY_AGE + at.to_bytes(8, "big") + hash_bytes(number)


def pack_fields(fields: Mapping[str, Any]) -> bytes:
    """Fields as MessagePack; TypeError, ValueError or OverflowError for what has no form there."""
    packed: bytes = msgpack.packb(dict(fields), use_bin_type=True)
    return packed


def unpack_fields(data: bytes) -> dict[str, Any]:
    """The inverse of `pack_fields`; ValueError if it is no map."""
    fields = msgpack.unpackb(data, raw=False, strict_map_key=False)
    if not isinstance(fields, dict):
        raise ValueError("the fields of an object are a map")
    return fields


def pack_live(record: ObjectRecord, fields: bytes) -> bytes:
    """The datum of a live version; `fields` are its own, packed."""
    name = (record.type_name or "").encode()
    head = _LIVE.pack(
        record.created,
        record.changed,
        record.stamp,
        record.ended,
        len(name),
        len(record.ancestors),
    )
    return b"".join((head, name, *map(hash_bytes, record.ancestors), fields))


def unpack_live(number: int, data: bytes) -> ObjectRecord:
    """A live version; struct.error or ValueError if the datum is malformed."""
    created, changed, stamp, ended, name_bytes, count = _LIVE.unpack_from(data)
    at = _LIVE.size + name_bytes
    end = at + HASH_BYTES * count
    return ObjectRecord(
        hash=number,
        fields=unpack_fields(data[end:]),
        type_name=data[_LIVE.size : at].decode() or None,
        created=created,
        changed=changed,
        stamp=stamp,
        ended=ended,
        ancestors=tuple(hash_number(data[i : i + HASH_BYTES]) for i in range(at, end, HASH_BYTES)),
    )


def pack_past(past: PastVersion, fields: bytes) -> bytes:
    """The datum of a past version."""
    follows = past.successor is not None
    successor = hash_bytes(past.successor or 0)
    return _PAST.pack(past.ended, past.at, follows, successor) + fields


def unpack_past(data: bytes) -> PastVersion:
    """A past version; struct.error or ValueError if the datum is malformed."""
    ended, at, follows, successor = _PAST.unpack_from(data)
    return PastVersion(
        fields=unpack_fields(data[_PAST.size :]),
        ended=ended,
        at=at,
        successor=hash_number(successor) if follows else None,
    )

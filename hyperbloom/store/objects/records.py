"""The objects of the pool: what is stored of them, and what is told.

A hash is the eight bytes by which PPPP 2 knows a version of an object, as a signed integer. Fields
are kept as MessagePack, in which they travel, in memory as well: a list of 64 KiB may have 64,000
lists in it, which Python keeps in 4 MB. `docs/store.md` shows the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgpack

from hyperbloom.store.limits import MAX_AHEAD_MS

__all__ = [
    "BROUGHT",
    "COUNTS_KEY",
    "HASH_BYTES",
    "LIVE",
    "MAX_ANCESTORS",
    "OWNER_BYTES",
    "PAST",
    "PAST_BY_AGE",
    "ObjectCounts",
    "ObjectRecord",
    "Outcome",
    "PastVersion",
    "Verdict",
    "age_key",
    "credible_stamp",
    "disk_bytes",
    "hash_bytes",
    "hash_number",
    "pack_fields",
    "pack_live",
    "pack_past",
    "past_disk_bytes",
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
BROUGHT: Final = b"b"
"""What the objects that one origin brought take on disk, by the origin's OWNER_BYTES. Before
LIVE, for LMDB fills its pages where objects come in order with nothing behind them."""
COUNTS_KEY: Final = b"n"

OWNER_BYTES: Final = 8
"""The beginning of the keyed hash of an origin, which tells whose part of the pool a version is."""

MAX_ANCESTORS: Final = 16
"""Earlier hashes kept beside an object: what a peer that was away may still call it."""

_LIVE: Final = struct.Struct(">QQQQBB")
_PAST: Final = struct.Struct(">QQB8s")
_COUNTS: Final = struct.Struct(">QQQQ32sQQ")
#: Of schema 5 and before: without what the versions take on disk.
_OLD_COUNTS: Final = struct.Struct(">QQQQ32s")
#: In the number of ancestors: the owner follows them.
_OWNED: Final = 0x80

_PAGE_BYTES: Final = 4_096
_LARGEST_NODE_BYTES: Final = 2_038
"""LMDB keeps what is longer in pages of its own."""
_NODE_BYTES: Final = 46
"""LMDB's head and pointer of a record, its key, and the row of an origin in BROUGHT."""
_AGE_BYTES: Final = 27
_EMPTIEST: Final = 4
"""LMDB merges pages that are less than a quarter full, so a record takes no more than this times
its bytes."""


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

    `packed` are its fields. `stamp` is the time of its last change in ms, as the nodes agree on it;
    `created` and `changed` (µs) are when this node learned of the object and of this version.
    `ended` is the stamp at which an earlier object of the same hash ended (0: none). `ancestors`
    are hashes it had before, newest first. `owner` tells in whose part of the pool it is (none: in
    nobody's, this node made it).
    """

    hash: int
    packed: bytes
    type_name: str | None
    created: int
    changed: int
    stamp: int
    ended: int = 0
    ancestors: tuple[int, ...] = ()
    owner: bytes = b""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields, built anew each time."""
        return unpack_fields(self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVersion:
    """A version that has ended.

    It ended at the stamp `ended`, and became `successor`, or was removed (None). `at` (µs) is when
    this node learned of it. `packed` are its fields.
    """

    packed: bytes
    ended: int
    at: int
    successor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one offer.

    `before` and `after` are this node's version of the object; `after` is None where it is removed.
    `stamp` is that of `after`, or of the removal. STALE tells of a newer state than the offer's;
    `offered` are then the packed fields, all, of the version `hash` that the offer names; None for
    one that removes it.
    """

    verdict: Verdict
    hash: int
    stamp: int = 0
    before: ObjectRecord | None = None
    after: ObjectRecord | None = None
    offered: bytes | None = None


@dataclass(slots=True)
class ObjectCounts:
    """Figures of the pool: objects and past versions, their bytes, on disk, too; and a digest.

    The digest is the sum of the hashes' keyed hashes modulo 2^256: equal pools have equal ones. It
    is for people to look at; no peer is compared by it, and it is no proof (docs/store.md).
    Mutable while a transaction works on it.
    """

    count: int = 0
    size: int = 0
    past: int = 0
    past_size: int = 0
    digest: int = 0
    disk: int = 0
    past_disk: int = 0

    def pack(self) -> bytes:
        return _COUNTS.pack(
            self.count,
            self.size,
            self.past,
            self.past_size,
            self.digest.to_bytes(32, "big"),
            self.disk,
            self.past_disk,
        )

    @classmethod
    def unpack(cls, data: bytes | None) -> ObjectCounts:
        """The figures; zeros where none are kept yet. struct.error if they are malformed."""
        if data is None:
            return cls()
        if len(data) == _OLD_COUNTS.size:
            data += bytes(_COUNTS.size - _OLD_COUNTS.size)
        count, size, past, past_size, digest, disk, past_disk = _COUNTS.unpack(data)
        return cls(count, size, past, past_size, int.from_bytes(digest, "big"), disk, past_disk)


def hash_bytes(number: int) -> bytes:
    """A hash as it is in keys: eight bytes, two's complement, big endian."""
    return number.to_bytes(HASH_BYTES, "big", signed=True)


def hash_number(data: bytes) -> int:
    """The inverse of `hash_bytes`."""
    return int.from_bytes(data, "big", signed=True)


def age_key(at: int, number: int) -> bytes:
    """The key of a past version in the order of age."""
    return PAST_BY_AGE + at.to_bytes(8, "big") + hash_bytes(number)


def disk_bytes(stored: int) -> int:
    """The most that a record with a datum of so many bytes takes on disk, in pages of 4,096."""
    node = stored + _NODE_BYTES
    if node <= _LARGEST_NODE_BYTES:
        return min(_EMPTIEST * node, _PAGE_BYTES)
    return -(-(stored + 16) // _PAGE_BYTES) * _PAGE_BYTES + _EMPTIEST * _NODE_BYTES


def past_disk_bytes(stored: int) -> int:
    """The same of a past version, which has its place in the order of age, too."""
    return disk_bytes(stored) + _EMPTIEST * _AGE_BYTES


def credible_stamp(stamp: int, learned: int, now: int) -> int:
    """A stored stamp (ms); when this node learned of it, where it is far ahead of `now` (both µs).

    It has twice the room of a stamp that comes: a change made here is stamped a little later than
    the version that it changes.
    """
    at = now // 1_000
    return stamp if stamp <= at + 2 * MAX_AHEAD_MS else min(learned // 1_000, at)


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


def pack_live(record: ObjectRecord) -> bytes:
    """The datum of a live version."""
    name = (record.type_name or "").encode()
    head = _LIVE.pack(
        record.created,
        record.changed,
        record.stamp,
        record.ended,
        len(name),
        len(record.ancestors) | (_OWNED if record.owner else 0),
    )
    ancestors = map(hash_bytes, record.ancestors)
    return b"".join((head, name, *ancestors, record.owner, record.packed))


def unpack_live(number: int, data: bytes) -> ObjectRecord:
    """A live version; struct.error or ValueError if the datum is malformed. Its fields are not
    looked at."""
    created, changed, stamp, ended, name_bytes, count = _LIVE.unpack_from(data)
    at = _LIVE.size + name_bytes
    end = at + HASH_BYTES * (count & ~_OWNED)
    begin = end + OWNER_BYTES if count & _OWNED else end
    return ObjectRecord(
        hash=number,
        packed=data[begin:],
        type_name=data[_LIVE.size : at].decode() or None,
        created=created,
        changed=changed,
        stamp=stamp,
        ended=ended,
        ancestors=tuple(hash_number(data[i : i + HASH_BYTES]) for i in range(at, end, HASH_BYTES)),
        owner=data[end:begin],
    )


def pack_past(past: PastVersion) -> bytes:
    """The datum of a past version."""
    follows = past.successor is not None
    successor = hash_bytes(past.successor or 0)
    return _PAST.pack(past.ended, past.at, follows, successor) + past.packed


def unpack_past(data: bytes) -> PastVersion:
    """A past version; struct.error if the datum is malformed. Its fields are not looked at."""
    ended, at, follows, successor = _PAST.unpack_from(data)
    return PastVersion(
        packed=data[_PAST.size :],
        ended=ended,
        at=at,
        successor=hash_number(successor) if follows else None,
    )

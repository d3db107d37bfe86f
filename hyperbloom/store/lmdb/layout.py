"""How records lie in the databases: every key and every datum, in one place.

All integers are big endian, so that LMDB's byte order of keys is the numeric order, but for the
arrays in ``sketches``.

======== ============================================== =========================================
database key                                            data
======== ============================================== =========================================
meta     name (UTF-8; ``store.`` is ours)               bytes
feeds    feed key (32)                                  ``FEED`` struct, then settings as JSON
log      feed id u32, seq u64                           received-at u64 µs, origin (32), value
index    feed id u32, bucket u64, key part              seq u64, or tag u8, u64 (ordered_index.py)
links    feed id u32, issuer (32), hash of raw (32)     ``LINK`` struct, then the link as it came
refused  feed id u32, hash of value (32)                ``REFUSED`` struct, reason, value
peers    feed key (32), address (UTF-8)                 JSON
objects  tag, hash (8) (see objects/records.py)         a version of an object
denied   key (32)                                       denied-at u64 µs, reason
aside    feed id u32, tag u8 (see forgotten.py)         ``FEED`` struct of a set kept aside
sketches feed id u32, tag u8, of a run: first seq u64   see kept_sketch.py
gone     feed id u32, of a note: number u64             see gone.py
noise    tag u8, of ages: last met u64; peer key (32)   see tables/noise.py
names    tag u8; peer key (32), or folded name (UTF-8)  see tables/names.py
pending  feed key (32), invited key (32)                invited-at u64 µs
======== ============================================== =========================================

Among ``meta`` are also ``store.sum.`` and a feed id: the ``SUM`` struct of that set, and, while not
all its values are in it (digest_migration.py), ``store.unsummed.`` and the id: the key of its
record in ``feeds`` or ``aside``.

A feed id is a small local number, never given twice. It makes keys short and lets a dropped feed
vanish at once, while its records are removed bit by bit under the old id. A set that is kept aside
for a feed has an id of its own, and its log and index lie among those of the feeds.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from hyperbloom.digests import (
    ELEMENT_BYTES,
    EMPTY_DIGEST,
    SUM_BATCH,
    SUM_MODULUS,
    element_sum,
    set_digest,
)

__all__ = [
    "ADDED_LATER",
    "ASIDE_TAGS",
    "BOUNDED_SCHEMA",
    "DATABASES",
    "KEY_BYTES",
    "LINK",
    "LOG_HEAD",
    "LOG_HEAD_BYTES",
    "META_DROPPING",
    "META_FORMAT",
    "META_NEXT_FEED",
    "META_SCHEMA",
    "META_SUM",
    "META_UNSUMMED",
    "NO_EXPIRY",
    "REFUSED",
    "STORE_FORMAT",
    "SUMMED_SCHEMA",
    "U32",
    "U64",
    "FeedState",
    "KeptSum",
    "packed_range",
    "parse_settings",
]

DATABASES: Final = (
    "meta", "feeds", "log", "index", "links", "peers", "objects", "refused", "denied", "aside",
    "sketches", "noise", "gone", "names", "pending",
)  # fmt: skip

ADDED_LATER: Final = frozenset({"sketches", "noise", "gone", "names", "pending"})
"""Databases that a snapshot of OLDEST_READABLE (migrations.py) may lack: there they are empty.

All but ``sketches`` came without another schema: a program that does not know them may go on with
the store. It does ``noise`` and ``names`` no harm, what it forgets without a note shows (gone.py),
and of a feed that it leaves some keys stay in ``pending`` that name no feed."""

STORE_FORMAT: Final = b"hyperbloom store"
META_FORMAT: Final = b"store.format"
META_SCHEMA: Final = b"store.schema"
META_NEXT_FEED: Final = b"store.next_feed_id"
META_DROPPING: Final = b"store.dropping."
META_SUM: Final = b"store.sum."
META_UNSUMMED: Final = b"store.unsummed."

SUMMED_SCHEMA: Final = 4
"""From this version on a feed's digest is digests.set_digest; before, it is sum_of_schema_3."""

BOUNDED_SCHEMA: Final = 6
"""From this version on it is kept what the objects of the pool take on disk."""

ASIDE_TAGS: Final = (b"v", b"h")
"""The sets kept aside for a feed: forgotten values whole, and hashes of forgotten values."""

KEY_BYTES: Final = 32
NO_EXPIRY: Final = float("inf")

U32: Final = struct.Struct(">I")
U64: Final = struct.Struct(">Q")


def packed_range(first: int, count: int) -> list[bytes]:
    """The numbers first … first + count − 1, each as a U64."""
    if count < 16:  # numpy takes 3 µs, however few there are
        return [U64.pack(number) for number in range(first, first + count)]
    packed: list[bytes] = np.arange(first, first + count, dtype=">u8").view("V8").tolist()
    return packed


LOG_HEAD: Final = struct.Struct(">Q32s")
LOG_HEAD_BYTES: Final = LOG_HEAD.size
LINK: Final = struct.Struct(">32sdQ32s")
"""trustee, expires (s), first seen (µs), introduced by"""
REFUSED: Final = struct.Struct(">QQH")
"""last seen (µs), count, length of the reason"""

_FEED = struct.Struct(">IQQQQIdIQ32s")
_SUM = struct.Struct(f">QQQ{ELEMENT_BYTES}s")
"""values not in the sum yet, up to which number they are, the last number of them, the sum"""


@dataclass(slots=True)
class FeedState:
    """A feed's record while a transaction works on it (the only mutable record).

    ``link_expiry`` is no later than the earliest expiry among the stored links. ``digest``
    (digests.py) is zero for an empty set, and for one whose sum is not known yet (KeptSum).
    ``prefix`` is the four bytes that every key of this feed begins with.
    """

    feed_id: int
    settings: bytes
    count: int = 0
    size: int = 0
    top_seq: int = 0
    next_bucket: int = 1
    links: int = 0
    link_expiry: float = NO_EXPIRY
    refused: int = 0
    refused_bytes: int = 0
    digest: bytes = EMPTY_DIGEST
    prefix: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = U32.pack(self.feed_id)

    def pack(self) -> bytes:
        return (
            _FEED.pack(
                self.feed_id,
                self.count,
                self.size,
                self.top_seq,
                self.next_bucket,
                self.links,
                self.link_expiry,
                self.refused,
                self.refused_bytes,
                self.digest,
            )
            + self.settings
        )

    @classmethod
    def unpack(cls, data: bytes) -> "FeedState":
        """Read a record of the feeds database; struct.error if it is too short."""
        fields = _FEED.unpack_from(data)
        return cls(
            feed_id=fields[0],
            settings=data[_FEED.size :],
            count=fields[1],
            size=fields[2],
            top_seq=fields[3],
            next_bucket=fields[4],
            links=fields[5],
            link_expiry=fields[6],
            refused=fields[7],
            refused_bytes=fields[8],
            digest=fields[9],
        )


@dataclass(slots=True, eq=False, repr=False)
class KeptSum:
    """The sum of a set's elements while a transaction works on it (digests.py).

    ``left`` values are not in it yet: those whose sequence numbers are above ``done`` and not above
    ``last``. That is so in a store that an older version wrote, until SumUp has gone through it.
    What single operations add is added up in batches (``_added`` waits for it), which takes half
    the time; a batch is bounded, for an operation's time is what ends a group.
    """

    total: int = 0
    left: int = 0
    done: int = 0
    last: int = 0
    _added: list[bytes] = field(default_factory=list, init=False)

    def add(self, values: Sequence[bytes]) -> None:
        """Count values in."""
        self._added += values
        if len(self._added) >= SUM_BATCH:
            self._add_up()

    def take_out(self, values: Sequence[bytes]) -> None:
        """Count values out that were in."""
        self.total = (self.total - element_sum(values)) % SUM_MODULUS

    def _add_up(self) -> None:
        if self._added:
            self.total = (self.total + element_sum(self._added)) % SUM_MODULUS
            self._added.clear()

    def counts(self, seq: int) -> bool:
        """Whether the value with this number is in the sum."""
        return not self.left or not self.done < seq <= self.last

    def digest(self, count: int) -> bytes:
        """The digest of the set, which has so many values; zero while it is not known."""
        self._add_up()
        return EMPTY_DIGEST if self.left else set_digest(count, self.total)

    def pack(self) -> bytes:
        self._add_up()
        total = self.total.to_bytes(ELEMENT_BYTES, "big")
        return _SUM.pack(self.left, self.done, self.last, total)

    @classmethod
    def unpack(cls, data: bytes) -> "KeptSum":
        """Read a record; struct.error if it has another length."""
        left, done, last, total = _SUM.unpack(data)
        return cls(int.from_bytes(total, "big"), left, done, last)


def parse_settings(data: bytes) -> dict[str, object]:
    """The settings as they were put; ValueError if the bytes are no JSON object."""
    settings: Any = json.loads(data)
    if not isinstance(settings, dict):
        raise ValueError("a feed's settings are a JSON object")
    return settings

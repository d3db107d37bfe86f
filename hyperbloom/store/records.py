"""What the store gives back: plain immutable values, no part of which points into the map.

Times are whole microseconds since 1970-01-01 UTC, except a link's expiry, which is the float of
seconds that the link itself carries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from hyperbloom.sketches import Symbols

# Two records have a field called ``bytes``, which hides the type of that name inside their class.
Octets: TypeAlias = bytes

__all__ = [
    "Appended",
    "CountSlice",
    "DeniedRecord",
    "FeedFigures",
    "FeedRecord",
    "Forgotten",
    "ForgottenFigures",
    "Holding",
    "LinkRecord",
    "LogRecord",
    "LogSlice",
    "NameRecord",
    "NoiseRecord",
    "ObjectFigures",
    "OriginSlice",
    "PeerRecord",
    "PendingRecord",
    "RangeSlice",
    "RefusedRecord",
    "SetFigures",
    "SettledSketch",
    "SnapshotInfo",
    "StoreSize",
    "VerifyReport",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRecord:
    """A feed and its figures, which are kept in the transaction that stores the values.

    ``digest`` (32 bytes, digests.py) is equal for equal sets, in whatever order they arrived, and
    None while it is being computed (digest_migration.py); then ``digest_left`` values are still to
    be added up. ``settings`` is opaque.
    """

    key: Octets
    count: int
    bytes: int
    digest: Octets | None
    top_seq: int
    settings: Mapping[str, object]
    digest_left: int = 0


class LogRecord(NamedTuple):
    """One value as it arrived (a tuple, because a slice holds thousands).

    ``received_at`` in µs; ``origin`` is the 32-byte key of the peer that brought it.
    """

    seq: int
    received_at: int
    origin: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """A piece of the arrival log; ``last_seq`` is where the next slice goes on from."""

    records: list[LogRecord]
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSlice:
    """A piece of the ordered values; ``next_start`` is None when the range has no more."""

    values: list[bytes]
    next_start: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSlice:
    """How many values a piece of a range has, and of how many bytes; where the next one begins.

    ``next_start`` is None when the range has no more.
    """

    count: int
    bytes: int
    next_start: Octets | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append added: the values not there before, in arrival order.

    ``first_seq`` and ``top_seq`` bound their sequence numbers, which ascend but may leave gaps.
    With nothing new, ``values`` is empty and ``first_seq`` is ``top_seq + 1``. ``forgotten`` values
    were refused because the feed has forgotten them.
    """

    values: list[bytes]
    first_seq: int
    top_seq: int
    forgotten: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was forgotten in one step: values and bytes that were in the feed, and ``absent`` ones.

    An absent value was not in the feed; that it is forgotten keeps it from coming.
    """

    count: int
    bytes: int
    absent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenFigures:
    """What a feed remembers of forgotten values: ``count`` whole ones with their ``bytes``,
    and ``hashes`` of others."""

    count: int
    bytes: int
    hashes: int


@dataclass(frozen=True, slots=True)
class SetFigures:
    """How many values, and their digest (32 bytes, digests.py)."""

    count: int
    digest: Octets


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What is ``here``, and what is ``settled``: that and the forgotten values kept whole.

    A value that is settled need not be sent here.
    """

    here: SetFigures
    settled: SetFigures

    def agrees_with(self, other: "Holding") -> bool:
        """Whether neither side has a value that the other would keep, as far as these show it.

        They hold the same, or differ by what one or both have forgotten.
        """
        return bool({self.here, self.settled} & {other.here, other.settled})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SettledSketch:
    """The first symbols of the sketch (sketches.py) of a feed's settled values, at one moment.

    ``settled`` are their number and digest, ``top_seq`` the number of the last arrival. Nobody
    writes to ``symbols`` any more.
    """

    symbols: Symbols
    settled: SetFigures
    top_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginSlice:
    """Values that one peer brought; ``next_seq`` is where to go on from, None at the end."""

    records: list[LogRecord]
    next_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedRecord:
    """A key that is denied, since when (µs), and why in the operator's words."""

    key: Octets
    denied_at: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRecord:
    """A peer key that has completed streams protected by Noise: the first and the last, in µs.

    branch: which keys give way for each other (8 bytes), empty where an older version wrote it.
    """

    key: Octets
    first_met: int
    last_met: int
    branch: Octets = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRecord:
    """What the operator calls a key, and since when (µs)."""

    key: Octets
    name: str
    named_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """A key that was invited to a feed (µs) and has not come yet."""

    feed_key: Octets
    key: Octets
    invited_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """A trust link: who trusts whom until when, and which peer (32-byte key) showed it first."""

    issuer: bytes
    trustee: bytes
    expires: float
    first_seen: int
    introduced_by: bytes
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRecord:
    """An address at which a feed's peer was heard of, and the key it showed there, if any."""

    address: str
    feed_key: bytes
    key: bytes | None = None
    last_seen: int = 0
    source: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A value that local policy refused, how often it came, and when last (µs)."""

    hash: bytes
    value: bytes
    reason: str
    count: int
    last_seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFigures:
    """A feed's figures in a snapshot; ``digest`` is None if it was being computed.

    In a snapshot of schema 3 or less it is another one (digests.sum_of_schema_3).
    """

    key: Octets
    count: int
    bytes: int
    digest: Octets | None
    top_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInfo:
    """What ``snapshot.json`` says: whose snapshot, when taken (µs), and each feed's figures."""

    node_key: bytes | None
    taken_at: int
    feeds: tuple[FeedFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of a verification; ``problems`` are sentences, empty when all is well."""

    ok: bool
    problems: list[str] = field(default_factory=list)
    values: int = 0
    objects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFigures:
    """The pool: objects, bytes of their fields, a digest (32 bytes) that is equal for equal pools.

    ``past`` is the number of ended versions that are remembered, ``disk_bytes`` what objects and
    ended versions take on disk at the most.
    """

    count: int
    bytes: int
    digest: Octets
    past: int
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """Bytes: of the map, of pages ever used, of those now free again, and of the file."""

    map_bytes: int
    used_bytes: int
    free_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class DiskSize:
    """Bytes of the file system with the store: in all, and those this process may still use."""

    size_bytes: int
    free_bytes: int

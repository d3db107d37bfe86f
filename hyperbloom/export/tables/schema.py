"""The tables: their columns, with what they mean, and how they are laid out on disk.

Byte strings stay bytes: a value is whatever somebody put in, mostly not text. The one exception is
`node`, which is a partition column, and the names of partitions are text: it is the node's public
key in hex. Times are microseconds in UTC. Every column carries its meaning as `comment` in the
schema, so that readers of the Delta tables show it.

`values` may be cut in two ways: a folder for each node and day, or, for nodes of which a day is
little, one for each node with files of a month. How a table is cut is said by its log alone.

Tables outlive releases. A later release may add columns, at the end and nullable, and change
comments; it never takes a column out, renames it or changes its type. So of any two releases one
has all columns of the other, and either can write the other's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

import pyarrow as pa

from hyperbloom.export.errors import TableUnusable

__all__ = [
    "ADDED",
    "CHANGES",
    "CUTS",
    "FORGOTTEN",
    "MICROSECONDS",
    "OBJECTS",
    "REPORTS",
    "TABLES",
    "TIMESTAMP",
    "Cut",
    "OtherColumns",
    "Table",
    "merged",
]

MICROSECONDS: Final = 1_000_000
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


Cut = Literal["day", "month"]
"""Of which time a file of `values` holds rows: a day of a node, or a month of one."""

CUTS: Final[Mapping[Cut, tuple[str, ...]]] = MappingProxyType(
    {"day": ("node", "date"), "month": ("node",)}
)
"""The columns that a table is then cut by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its name, which is its folder's, its columns, and the columns it is cut by.

    ``cuts`` are the ways in which it may be cut, where there are several.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()
    configuration: tuple[tuple[str, str], ...] = ()
    """Settings of Delta that such a table is made with."""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns inside a file; the others are said by the file's folder."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    @property
    def file_statistics(self) -> tuple[str, ...]:
        """The columns of which the log says each file's smallest and largest."""
        return tuple(name for name in self.statistics if name not in self.partition_by)

    @property
    def cut(self) -> Cut | None:
        """Which of its ``cuts`` this is; None for a table that has none."""
        return next((cut for cut in self.cuts if CUTS[cut] == self.partition_by), None)

    def cut_by(self, columns: tuple[str, ...]) -> Table:
        """The same table, cut by these columns; OtherColumns if no release cuts it so."""
        if columns not in (self.partition_by, *map(CUTS.get, self.cuts)):
            raise OtherColumns(f"it is cut by {', '.join(columns) or 'none'}")
        return replace(self, partition_by=columns)


def _column(name: str, kind: pa.DataType, comment: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"comment": comment})


_BINARY = pa.binary()
_NODE = _column("node", pa.string(), "public key of the node whose snapshot it was, in hex")
_FEED = _column("feed", _BINARY, "public key of the feed, 32 bytes")
_SIZE = _column("size", pa.int32(), "bytes of the value")
_TAKEN_AT = _column("taken_at", TIMESTAMP, "when the snapshot was taken")

VALUES = Table(
    name="values",
    schema=pa.schema(
        [
            _FEED,
            _column("value", _BINARY, "the value, byte for byte"),
            _SIZE,
            _column("seq", pa.int64(), "arrival number within the feed on the node, with gaps"),
            _column("received_at", TIMESTAMP, "when the node got it, by the node's clock"),
            _column("origin", _BINARY, "public key of the peer it came from, 32 bytes"),
            _NODE,
            _column("date", pa.date32(), "day of received_at in UTC"),
        ]
    ),
    partition_by=CUTS["day"],
    statistics=("size", "seq", "received_at", "date"),
    cuts=("day", "month"),
)

LINKS = Table(
    name="links",
    schema=pa.schema(
        [
            _FEED,
            _column("issuer", _BINARY, "public key of who trusts, 32 bytes"),
            _column("trustee", _BINARY, "public key of who is trusted, 32 bytes"),
            _column(
                "position",
                pa.int32(),
                "place in the shortest chain from the feed, 1 is issued by the feed itself; "
                "null if no chain of links valid at the snapshot's time led to the issuer",
                nullable=True,
            ),
            _column("expires", TIMESTAMP, "when it ends; null beyond year 9999", nullable=True),
            _column("first_seen", TIMESTAMP, "when the node first saw it"),
            _column("introduced_by", _BINARY, "public key of the peer who showed it first"),
            _column("link", _BINARY, "the link itself, as it travels"),
            _TAKEN_AT,
            _NODE,
        ]
    ),
    partition_by=("node",),
)

FEEDS = Table(
    name="feeds",
    schema=pa.schema(
        [
            _FEED,
            _column("alias", pa.string(), "the feed's name on the node", nullable=True),
            _column("count", pa.int64(), "values in the feed"),
            _column("bytes", pa.int64(), "bytes of its values"),
            _column("digest", _BINARY, "equal for equal sets of values, 32 bytes"),
            _column("top_seq", pa.int64(), "highest arrival number"),
            _TAKEN_AT,
            _column("snapshot", pa.string(), "the snapshot's id"),
            _NODE,
        ]
    ),
    partition_by=("node",),
)

OBJECTS = Table(
    name="objects",
    schema=pa.schema(
        [
            _column("hash", _BINARY, "the object's hash, 8 bytes"),
            _column("type", pa.string(), "its type's name, where the node knows it", nullable=True),
            _column("fields", pa.string(), "its fields as JSON"),
            _column("created", TIMESTAMP, "when the node learned of the object"),
            _column("changed", TIMESTAMP, "when the node learned of this version of it"),
            _TAKEN_AT,
            _NODE,
        ]
    ),
    partition_by=("node",),
)

ADDED: Final = "added"
FORGOTTEN: Final = "forgotten"

CHANGES = Table(
    name="changes",
    schema=pa.schema(
        [
            _FEED,
            _column("value", _BINARY, "the value, byte for byte"),
            _column("seq", pa.int64(), "its arrival number within the feed on the node"),
            _column(
                "at",
                TIMESTAMP,
                "when the node got an added value; when it forgot a forgotten one, "
                "or where that is not known, when the snapshot was taken",
            ),
            _NODE,
            _column("kind", pa.string(), f"`{ADDED}` or `{FORGOTTEN}`"),
        ]
    ),
    # A night's changes of a node are few, and by day they would be crumbs that no compaction joins.
    # What a day had is found by the bounds of `at` and `seq` in the log, file by file.
    partition_by=("node", "kind"),
    statistics=("seq", "at"),
    configuration=(("delta.appendOnly", "true"), ("delta.enableChangeDataFeed", "true")),
)

COVERAGE = Table(
    name="coverage",
    schema=pa.schema(
        [
            _FEED,
            _column("value_hash", _BINARY, "SHA-256 of the value"),
            _SIZE,
            _column("nodes", pa.int64(), "how many nodes have it"),
            _column("first_seen", TIMESTAMP, "earliest arrival on any node"),
            _column("last_seen", TIMESTAMP, "latest arrival on any node"),
        ]
    ),
)

PROVENANCE = Table(
    name="provenance",
    schema=pa.schema(
        [
            _column("origin", _BINARY, "public key of the peer the values came from, 32 bytes"),
            _column("values", pa.int64(), "different values, counted once a feed"),
            _column("arrivals", pa.int64(), "the same on every node that got them from it"),
            _column("bytes", pa.int64(), "bytes of the different values"),
            _column("feeds", pa.int64(), "feeds they belong to"),
            _column("days", pa.int64(), "days (UTC) on which something arrived from it"),
            _column("first_seen", TIMESTAMP, "the first arrival"),
            _column("last_seen", TIMESTAMP, "the last arrival"),
        ]
    ),
)

TABLES: Final = MappingProxyType(
    {table.name: table for table in (VALUES, LINKS, FEEDS, OBJECTS, CHANGES, COVERAGE, PROVENANCE)}
)
REPORTS: Final = (COVERAGE.name, PROVENANCE.name)
"""Tables made anew from `values`; the others are made from snapshots."""


class OtherColumns(TableUnusable):
    """Columns on disk that no release of ours has written; the text says which, and how."""


def merged(columns: pa.Schema, table: Table) -> pa.Schema:
    """The ``columns`` of a table on disk as this release is to leave them.

    Those that only this release has are added, nullable; comments become this release's. Columns
    of a newer release stay with everything that it said of them, for then it knows better.
    Raises OtherColumns.
    """
    ours = {field.name: field for field in table.schema}
    missing = [name for name in ours if name not in columns.names]
    unknown = [field for field in columns if field.name not in ours]
    for field in columns:
        wanted = ours.get(field.name, field).type
        if field.type != wanted:
            raise OtherColumns(f"`{field.name}` is {field.type}, not {wanted}")
    for name in missing:
        # The first release's; or renamed, for no release has both a column more and one less.
        if unknown or not ours[name].nullable:
            raise OtherColumns(f"`{name}` is missing")
    for field in unknown:
        if not field.nullable:
            raise OtherColumns(f"`{field.name}` is not known and must not be null")
    if unknown:
        return columns
    kept = [_both(field, ours[field.name]) for field in columns]
    return pa.schema([*kept, *(ours[name] for name in missing)])


def _both(field: pa.Field, ours: pa.Field) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), **ours.metadata}).with_nullable(
        field.nullable or ours.nullable
    )

"""The tables `links`, `feeds` and `objects`: not many rows a node, written without Spark."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from hyperbloom.export.places.place import Place
from hyperbloom.export.snapshots import Snapshot, reading
from hyperbloom.export.tables.files import FileFact, PartWriter
from hyperbloom.export.tables.schema import MICROSECONDS, TABLES
from hyperbloom.json_fields import json_fields
from hyperbloom.store import Store
from hyperbloom.store.objects.records import ObjectRecord, hash_bytes
from hyperbloom.store.records import LinkRecord

__all__ = ["chain_positions", "has_objects", "write_feeds", "write_links", "write_objects"]

_YEAR_10000: Final = 253_402_300_800.0
_SLICE_OBJECTS: Final = 256
"""An object has up to 64 KiB: 16 MiB, some 100 as Python has them."""


def write_links(snapshots: Sequence[Snapshot], place: Place, name: str) -> list[FileFact]:
    """Write the links of each snapshot; OSError if that fails, SnapshotUnusable if reading does."""
    facts: list[FileFact] = []
    for snapshot in snapshots:
        rows: list[dict[str, Any]] = []
        with reading(snapshot.path) as store:
            for feed in snapshot.feeds:
                rows += _link_rows(snapshot, feed.key, store.links(feed.key))
        facts += _write("links", rows, snapshot.node, place, name)
    return facts


def _link_rows(
    snapshot: Snapshot, feed: bytes, links: Sequence[LinkRecord]
) -> list[dict[str, Any]]:
    positions = chain_positions(feed, links, now=snapshot.taken_at / MICROSECONDS)
    return [
        {
            "feed": feed,
            "issuer": link.issuer,
            "trustee": link.trustee,
            "position": positions.get(link.issuer),
            "expires": _microseconds(link.expires),
            "first_seen": min(link.first_seen, _last_microsecond()),
            "introduced_by": link.introduced_by,
            "link": link.raw,
            "taken_at": snapshot.taken_at,
        }
        for link in links
    ]


def _last_microsecond() -> int:
    return int(_YEAR_10000) * MICROSECONDS - 1


def _microseconds(seconds: float) -> int | None:
    """A moment as the tables have it; None for one that no date can name."""
    if math.isnan(seconds) or not 0 <= seconds < _YEAR_10000:
        return None
    return int(seconds * MICROSECONDS)


def chain_positions(feed: bytes, links: Iterable[LinkRecord], *, now: float) -> dict[bytes, int]:
    """For each issuer that a chain of links valid at ``now`` leads to, its links' position."""
    trusted: dict[bytes, list[bytes]] = {}
    for link in links:
        if link.expires >= now:
            trusted.setdefault(link.issuer, []).append(link.trustee)
    positions = {feed: 1}
    border = deque([feed])
    while border:
        issuer = border.popleft()
        for trustee in trusted.get(issuer, ()):
            if trustee not in positions:
                positions[trustee] = positions[issuer] + 1
                border.append(trustee)
    return positions


def write_feeds(snapshots: Sequence[Snapshot], place: Place, name: str) -> list[FileFact]:
    """Write a row for each feed of each snapshot; OSError if that fails."""
    facts: list[FileFact] = []
    for node in sorted({snapshot.node for snapshot in snapshots}):
        rows = [
            {
                "feed": feed.key,
                "alias": feed.alias,
                "count": feed.count,
                "bytes": feed.size,
                "digest": feed.digest or b"",
                "top_seq": feed.top_seq,
                "taken_at": snapshot.taken_at,
                "snapshot": snapshot.id,
            }
            for snapshot in sorted(snapshots, key=lambda snapshot: snapshot.taken_at)
            if snapshot.node == node
            for feed in snapshot.feeds
        ]
        facts += _write("feeds", rows, node, place, name)
    return facts


def has_objects(snapshots: Sequence[Snapshot]) -> bool:
    """Whether one of the snapshots holds objects; SnapshotUnusable if it cannot be read."""
    for snapshot in snapshots:
        with reading(snapshot.path) as store:
            if store.object_figures().count:
                return True
    return False


def write_objects(snapshots: Sequence[Snapshot], place: Place, name: str) -> list[FileFact]:
    """Write the objects of each snapshot; OSError, or SnapshotUnusable if reading fails."""
    facts: list[FileFact] = []
    for snapshot in snapshots:
        with reading(snapshot.path) as store:
            slices = _object_slices(snapshot, store)
            facts += _write_slices("objects", slices, snapshot.node, place, name)
    return facts


def _object_slices(snapshot: Snapshot, store: Store) -> Iterator[list[dict[str, Any]]]:
    after: int | None = None
    while records := store.objects_slice(after, limit=_SLICE_OBJECTS):
        after = records[-1].hash
        yield [_object_row(snapshot, record) for record in records]


def _object_row(snapshot: Snapshot, record: ObjectRecord) -> dict[str, Any]:
    fields = json_fields(record.fields)
    return {
        "hash": hash_bytes(record.hash),
        "type": record.type_name,
        "fields": json.dumps(fields, separators=(",", ":"), sort_keys=True, allow_nan=False),
        "created": min(record.created, _last_microsecond()),
        "changed": min(record.changed, _last_microsecond()),
        "taken_at": snapshot.taken_at,
    }


def _write(
    table: str, rows: Sequence[dict[str, Any]], node: str, place: Place, name: str
) -> list[FileFact]:
    return _write_slices(table, [list(rows)], node, place, name)


def _write_slices(
    table: str, slices: Iterable[list[dict[str, Any]]], node: str, place: Place, name: str
) -> list[FileFact]:
    """Write rows that come in slices, so that no more of them are in memory at once."""
    spec = TABLES[table]
    writer = PartWriter(table=spec, place=place, partition={"node": node}, name=name)
    try:
        for rows in slices:
            writer.add(pa.RecordBatch.from_pylist(rows, schema=spec.file_schema))
        return writer.close()
    except BaseException:
        writer.abandon()
        raise

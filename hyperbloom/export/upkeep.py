"""What is in a folder of tables, and keeping it small: status, compaction, vacuum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.places.place import Place
from hyperbloom.export.places.urls import Where, place_of
from hyperbloom.export.tables.delta import METADATA, Compaction, OpenTable
from hyperbloom.export.tables.joining import join_months, recut
from hyperbloom.export.tables.ranges import TARGET_FILE_BYTES
from hyperbloom.export.tables.schema import TABLES, Cut

__all__ = ["KEEP_HOURS", "TableStatus", "compact_tables", "table_statuses", "vacuum_tables"]

KEEP_HOURS: Final = 7 * 24
"""A reader that began before a compaction has a week to end; so has a job for its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table as it is committed.

    ``cut`` says of which time a file holds rows, for a table of which that can be chosen.
    ``committed_at`` (ms) and ``snapshots`` (id, node and moment in µs of each) are those of the
    newest commit of an export that the log still tells of.
    """

    table: str
    cut: Cut | None
    version: int
    rows: int
    files: int
    bytes: int
    committed_at: int | None
    snapshots: tuple[Mapping[str, Any], ...]


def table_statuses(target: Where) -> list[TableStatus]:
    """Each table below ``target``; TableUnusable if there is none."""
    return [_status(table) for table in _tables(place_of(target))]


def _tables(target: Place) -> list[OpenTable]:
    tables = [table for name in TABLES if (table := OpenTable.find(target, name)) is not None]
    if not tables:
        raise TableUnusable(f"there are no tables of an export in {target}; name another folder")
    return tables


def _status(table: OpenTable) -> TableStatus:
    files = table.files()
    committed_at = None
    snapshots: tuple[Mapping[str, Any], ...] = ()
    for commit in table.history():
        if METADATA in commit:
            committed_at = commit.get("timestamp")
            snapshots = tuple(
                {name: snapshot[name] for name in ("id", "node", "taken_at")}
                for snapshot in json.loads(commit[METADATA])["snapshots"]
            )
            break
    return TableStatus(
        table=table.table.name,
        cut=table.table.cut,
        version=table.version,
        rows=sum(file.rows for file in files),
        files=len(files),
        bytes=sum(file.size for file in files),
        committed_at=committed_at,
        snapshots=snapshots,
    )


def compact_tables(
    target: Where, *, by: Cut | None = None, target_bytes: int = TARGET_FILE_BYTES
) -> list[tuple[str, Compaction]]:
    """Join small files in each table. The old ones stay until they are vacuumed.

    With ``by`` the table `values` is then cut by day or by month, and exports go on so. Who may
    read a table stays as it is.
    """
    place = place_of(target)
    tables = _tables(place)
    done = []
    with place.held():
        for table in tables:
            with table.place.shared():
                done.append((table.table.name, _compact(table, by, target_bytes)))
    return done


def _compact(table: OpenTable, by: Cut | None, target_bytes: int) -> Compaction:
    cut = table.table.cut
    if cut is not None and by not in (cut, None):
        return recut(table, by, target_bytes)
    if cut == "month":
        return join_months(table, target_bytes)
    return table.compact(target_bytes)


def vacuum_tables(
    target: Where, *, keep_hours: int = KEEP_HOURS, dry_run: bool = False
) -> list[tuple[str, list[str]]]:
    """Remove from each table the files that no commit has named for ``keep_hours``; their paths."""
    place = place_of(target)
    tables = _tables(place)
    done = []
    with place.held():
        for table in tables:
            with table.place.shared():
                done.append((table.table.name, table.vacuum(keep_hours, dry_run=dry_run)))
    return done

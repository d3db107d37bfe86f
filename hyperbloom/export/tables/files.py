"""Parquet files of a table: written under new names, synced, and described by a fact each.

A file means nothing until a commit names it (delta.py), so nothing here needs to be undone. What is
held in memory is bounded: rows wait until they make a row group, and when all that wait together
grow beyond a limit, the largest part is written.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hyperbloom.export.places.place import NewFile, Place
from hyperbloom.export.tables.ranges import TARGET_FILE_BYTES
from hyperbloom.export.tables.rows import Rows, dates
from hyperbloom.export.tables.schema import Table

__all__ = ["FileFact", "PartWriter", "ValueWriter", "read_batches", "read_rows"]

_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 16 * 1024 * 1024
_WAITING_BYTES: Final = 32 * 1024 * 1024
_OPEN_PARTS: Final = 16
_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024
_KEYS: Final = ("feed", "issuer", "trustee", "introduced_by", "origin", "node", "alias", "snapshot")
_NUMBERS: Final = ("seq", "received_at", "taken_at", "first_seen", "last_seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFact:
    """A written file: path below the table's folder, bytes, rows, partition, Delta statistics."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    stats: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FileFact:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class PartWriter:
    """One partition's files, one after the other; each ends near ``target_bytes``.

    ``name`` begins the files' names; the rest is random.
    """

    table: Table
    place: Place
    partition: Mapping[str, str]
    name: str
    target_bytes: int = TARGET_FILE_BYTES
    waiting_bytes: int = 0
    facts: list[FileFact] = field(default_factory=list)
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _waiting_rows: int = 0
    _file: NewFile | None = None
    _writer: pq.ParquetWriter | None = None
    _path: str = ""
    _rows: int = 0
    _least: dict[str, Any] = field(default_factory=dict)
    _most: dict[str, Any] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; OSError if they cannot be written."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting_bytes += batch.get_total_buffer_size()
        if self._waiting_rows >= _GROUP_ROWS or self.waiting_bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one row group."""
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0
        if self._writer is None or self._file is None:
            self._writer, self._file = self._begin()
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows
        self._count_in(group)
        if self._file.sink.tell() >= self.target_bytes:
            self._end()

    def close(self) -> list[FileFact]:
        """Write the rest; the facts of all files."""
        self.flush()
        self._end()
        return self.facts

    def abandon(self) -> None:
        """Close without a fact; the file is no part of anything."""
        if self._file is not None:
            self._file.abandon()

    def _begin(self) -> tuple[pq.ParquetWriter, NewFile]:
        folder = "/".join(f"{key}={value}" for key, value in self.partition.items())
        file_name = f"{self.name}-{uuid.uuid4().hex[:12]}.parquet"
        self._path = f"{folder}/{file_name}" if folder else file_name
        file = self.place.create(self._path)
        schema = self.table.file_schema
        writer = pq.ParquetWriter(
            file.sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _KEYS if name in schema.names],
            column_encoding={
                name: "DELTA_BINARY_PACKED" for name in _NUMBERS if name in schema.names
            },
            # Smallest and largest of values of 256 KiB would be kept in every file's footer.
            write_statistics=[n for n in schema.names if n not in ("value", "link")],
        )
        return writer, file

    def _count_in(self, group: pa.Table) -> None:
        for name in self.table.file_statistics:
            bounds = pc.min_max(group.column(name)).as_py()
            self._least[name] = min(self._least.get(name, bounds["min"]), bounds["min"])
            self._most[name] = max(self._most.get(name, bounds["max"]), bounds["max"])

    def _end(self) -> None:
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        size = self._file.finish()
        stats = {
            "numRecords": self._rows,
            "minValues": {name: _stat(value) for name, value in self._least.items()},
            "maxValues": {name: _stat(value) for name, value in self._most.items()},
            "nullCount": dict.fromkeys(self.table.file_statistics, 0),
        }
        self.facts.append(
            FileFact(
                path=self._path,
                size=size,
                rows=self._rows,
                partition=dict(self.partition),
                stats=json.dumps(stats),
            )
        )
        self._writer = self._file = None
        self._rows = 0
        self._least, self._most = {}, {}


def _stat(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, dt.date) else value


class ValueWriter:
    """Rows of `values` into the files of their node and day, or month, as the table is cut."""

    def __init__(self, table: Table, place: Place, *, name: str, target_bytes: int) -> None:
        self._table = table
        self._schema = table.file_schema
        self._place = place
        self._name = name
        self._target_bytes = target_bytes
        self._parts: dict[tuple[str, dt.date], PartWriter] = {}
        self._facts: list[FileFact] = []

    def add(self, rows: Rows, node: str) -> None:
        """Take rows of one node; OSError if they cannot be written."""
        for start, batch in self._cut(rows):
            self._part(node, start).add(batch)
        if sum(part.waiting_bytes for part in self._parts.values()) > _WAITING_BYTES:
            max(self._parts.values(), key=lambda part: part.waiting_bytes).flush()

    def close(self) -> list[FileFact]:
        """Write the rest; the facts of all files."""
        for part in self._parts.values():
            self._facts += part.close()
        self._parts = {}
        return self._facts

    def abandon(self) -> None:
        """Close all files as they are."""
        for part in self._parts.values():
            part.abandon()

    def _cut(self, rows: Rows) -> Iterator[tuple[dt.date, pa.RecordBatch]]:
        """The rows of each day, or month, with its first day."""
        starts, batch = rows.days.astype("M8[D]"), rows.batch
        if "date" in self._schema.names:
            starts, batch = starts.astype("M8[M]"), self._with_dates(rows)
        first = starts[0]
        if (starts == first).all():
            yield first.astype("M8[D]").item(), batch
            return
        order = np.argsort(starts, kind="stable")
        found, begins = np.unique(starts[order], return_index=True)
        for start, at in zip(found.astype("M8[D]"), np.split(order, begins[1:]), strict=True):
            yield start.item(), batch.take(pa.array(at))

    def _with_dates(self, rows: Rows) -> pa.RecordBatch:
        columns = dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
        columns["date"] = dates(rows)
        arrays = [columns[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _part(self, node: str, start: dt.date) -> PartWriter:
        # Taken out and put back, so that the first one is the one unused for longest.
        part = self._parts.pop((node, start), None)
        if part is None:
            if len(self._parts) >= _OPEN_PARTS:
                self._facts += self._parts.pop(next(iter(self._parts))).close()
            named = {"node": node, "date": start.isoformat()}
            part = PartWriter(
                table=self._table,
                place=self._place,
                partition={key: named[key] for key in self._table.partition_by},
                name=self._name,
                target_bytes=self._target_bytes,
            )
        self._parts[node, start] = part
        return part


def read_rows(
    place: Place,
    path: str,
    columns: Sequence[str] | None = None,
    *,
    is_wanted: Callable[[int | None, int | None], bool] = lambda least, most: True,
) -> Iterator[pa.RecordBatch]:
    """A file's rows with these columns (those that it has), few at a time where rows are large.

    ``is_wanted`` is asked for each row group, with the bounds of its `seq`, or None without them.
    Raises OSError, and pa.ArrowInvalid for a file that is damaged.
    """
    with pq.ParquetFile(place.open(path), buffer_size=_READ_BYTES) as file:
        names = file.schema_arrow.names
        there = names if columns is None else [name for name in columns if name in names]
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if not is_wanted(*_seq_bounds(group)):
                continue
            row_bytes = group.total_byte_size / max(1, group.num_rows)
            rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, row_bytes))))
            # A group at a time, or the buffers of all would be held to the end.
            for batch in file.iter_batches(rows, [number], columns=there, use_threads=False):
                yield batch.select(there)


def _seq_bounds(group: pq.RowGroupMetaData) -> tuple[int | None, int | None]:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "seq":
            kept = column.statistics
            return (kept.min, kept.max) if kept is not None and kept.has_min_max else (None, None)
    return None, None


def read_batches(
    place: Place, path: str, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The same; raises ExportError."""
    try:
        yield from read_rows(place, path, columns)
    except (OSError, pa.ArrowException) as error:
        raise place.failed(error) from error

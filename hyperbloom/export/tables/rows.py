"""From records of the arrival log to Arrow columns, without a Python object a field.

A datum of the log is received-at ‖ origin ‖ value. A chunk of data becomes one binary Arrow array,
and its columns are byte slices of that, cut by Arrow. Numbers are big endian there and are turned
by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hyperbloom.export.tables.schema import CUTS, MICROSECONDS, TABLES, TIMESTAMP
from hyperbloom.store import Store, StoreCorrupt
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, U32, U64
from hyperbloom.store.values.scan import LogChunk, scan_log, scan_values

__all__ = [
    "DAY",
    "LATEST",
    "Rows",
    "dates",
    "decode",
    "read_log_rows",
    "read_value_rows",
    "rows_by_node",
    "whole_rows",
]

DAY: Final = 86_400 * MICROSECONDS
LATEST: Final = 253_402_300_800 * MICROSECONDS - 1
"""The last microsecond of the year 9999, the last one that a date can name."""
_BEHIND_VALUE: Final = 1 << 31
"""An end behind every value's. Without one, Arrow's sum of possible lengths overflows."""

_KEY = np.dtype([("feed", ">u4"), ("seq", ">u8")])
_FILE_SCHEMA = TABLES["values"].cut_by(CUTS["day"]).file_schema
_LAP_BYTES: Final = 12 * 1024 * 1024


class Rows(NamedTuple):
    """Rows of `values` without `node` and `date`, and each row's day since 1970."""

    batch: pa.RecordBatch
    days: npt.NDArray[np.int64]


def decode(chunk: LogChunk, feed_key: bytes) -> Rows:
    """Records as columns; StoreCorrupt for a record that is too short."""
    count = len(chunk.data)
    keys = b"".join(chunk.keys)
    if len(keys) != count * (U32.size + U64.size) or min(map(len, chunk.data)) < LOG_HEAD_BYTES:
        raise StoreCorrupt("a record of the arrival log is malformed; use another snapshot")
    data = pa.array(chunk.data, pa.binary())
    times = _bytes_of(pc.binary_slice(data, 0, U64.size), count * U64.size)
    received_at = np.minimum(np.frombuffer(times, ">u8"), LATEST).astype(np.int64)
    values = pc.binary_slice(data, LOG_HEAD_BYTES, _BEHIND_VALUE)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(feed_key, pa.binary()), count),
            values,
            pc.binary_length(values),
            pa.array(np.frombuffer(keys, _KEY)["seq"].astype(np.int64)),
            pa.array(received_at).cast(TIMESTAMP),
            pc.binary_slice(data, U64.size, LOG_HEAD_BYTES),
        ],
        schema=_FILE_SCHEMA,
    )
    return Rows(batch, received_at // DAY)


def _bytes_of(column: pa.BinaryArray, length: int) -> memoryview:
    """The bytes of an array of equally long items, which lie together."""
    return memoryview(column.buffers()[2])[:length]


def whole_rows(rows: Rows, node: str) -> pa.RecordBatch:
    """Rows with their partition columns, in the order of the table's schema."""
    count = rows.batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            *rows.batch.columns,
            pa.repeat(pa.scalar(node), count),
            dates(rows),
        ],
        schema=TABLES["values"].schema,
    )


def dates(rows: Rows) -> pa.Array:
    """The column `date` of these rows."""
    return pa.array(rows.days.astype(np.int32)).cast(pa.date32())


def rows_by_node(batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
    """The inverse of `whole_rows`: of each node in a batch its rows, in their order.

    Columns may stand in any order; those that `values` has not are left out.
    """
    nodes = batch.column("node")
    columns = [batch.column(field.name).cast(field.type) for field in _FILE_SCHEMA]
    rows = pa.RecordBatch.from_arrays(columns, schema=_FILE_SCHEMA)
    days = batch.column("date").cast(pa.int32()).to_numpy().astype(np.int64)
    for node in pc.unique(nodes).to_pylist():
        mine = pc.equal(nodes, node)
        yield node, Rows(rows.filter(mine), days[mine.to_numpy(zero_copy_only=False)])


def read_log_rows(path: Path, feed_key: bytes, after_seq: int, last_seq: int) -> Iterator[Rows]:
    """A snapshot's rows with ``after_seq`` < seq <= ``last_seq``, in arrival order.

    The snapshot is mapped anew every 12 MiB: pages once read stay in the process's resident set as
    long as they are mapped, and would make it as large as the snapshot.
    """
    while after_seq < last_seq:
        lap = 0
        with closing(Store.open_readonly(path)) as store:
            for chunk in scan_log(store, feed_key, after_seq, last_seq):
                rows = decode(chunk, feed_key)
                lap += rows.batch.nbytes
                after_seq = _last_number(rows, after_seq)
                yield rows
                if lap >= _LAP_BYTES:
                    break
            else:
                return


def _last_number(rows: Rows, after_seq: int) -> int:
    """The last row's number; StoreCorrupt unless the numbers rise, or a scan might never end."""
    numbers = rows.batch.column("seq").to_numpy()
    if numbers[0] <= after_seq or (numbers[1:] <= numbers[:-1]).any():
        raise StoreCorrupt("the arrival log is out of order; use another snapshot")
    return int(numbers[-1])


def read_value_rows(path: Path, feed_key: bytes, start: bytes, end: bytes | None) -> Iterator[Rows]:
    """A snapshot's rows with ``start`` <= value < ``end`` (None: no end), in byte order."""
    with closing(Store.open_readonly(path)) as store:
        for chunk in scan_values(store, feed_key, start, end):
            yield decode(chunk, feed_key)

"""The reports without Spark: a shuffle through files, then sums, a part of the rows at a time.

Each row of `values` becomes the SHA-256 of its value and a few numbers, and goes into a bucket by
the hash. All rows of a value are in one bucket, so each bucket is added up alone, and no more than
one is in a worker's memory. The rows are those of spark_reports.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from hyperbloom.export.engines.engine import Files, TaskProgress
from hyperbloom.export.engines.tasks import answer, failure_answer, is_failure, write_report_rows
from hyperbloom.export.engines.unnamed import unnamed_files
from hyperbloom.export.engines.worker import Call
from hyperbloom.export.errors import ExportError
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.files import read_batches
from hyperbloom.export.tables.ranges import even_parts
from hyperbloom.export.tables.rows import DAY
from hyperbloom.export.tables.schema import TABLES, TIMESTAMP

if TYPE_CHECKING:
    from hyperbloom.export.tables.delta import ListedFile, OpenTable

__all__ = ["add_up_coverage", "add_up_provenance", "finish_provenance", "make_report", "shuffle"]

Runner = Callable[[Sequence[Call], Callable[[int], None]], list[str]]

_BUCKET_ROWS: Final = 100_000
_BUCKETS_A_TASK: Final = 10
_TASK_BYTES: Final = 128 * 1024 * 1024
_WAITING_BYTES: Final = 8 * 1024 * 1024
_HASH_BYTES: Final = 32
_READ: Final = ("origin", "feed", "size", "received_at", "value")
_ROWS: Final = pa.schema(
    [
        pa.field("origin", pa.binary()),
        pa.field("feed", pa.binary()),
        pa.field("size", pa.int32()),
        pa.field("received_at", TIMESTAMP),
        pa.field("value_hash", pa.binary(_HASH_BYTES)),
    ]
)
_DAYS: Final = pa.schema([pa.field("origin", pa.binary()), pa.field("day", pa.int64())])
_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_SEEN: Final = [("received_at", "min"), ("received_at", "max")]
_SUMMED: Final = ("arrivals", "bytes", "first_seen", "last_seen")
_SUMS: Final = [("arrivals", "sum"), ("bytes", "sum"), ("first_seen", "min"), ("last_seen", "max")]


def make_report(
    name: str,
    source: OpenTable,
    files: Files,
    run: Runner,
    progress: TaskProgress,
    *,
    cores: int,
) -> list[str]:
    """Make a report from `values` by calls that ``run`` has done; the answers of all tasks."""
    listed = source.files()
    buckets = max(1, math.ceil(sum(file.rows for file in listed) / _BUCKET_ROWS))
    parts = _cut([_source_of(file) for file in listed], cores)
    tasks = max(min(cores, buckets), math.ceil(buckets / _BUCKETS_A_TASK))
    ranges = [range(buckets * n // tasks, buckets * (n + 1) // tasks) for n in range(tasks)]
    total = len(parts) + tasks
    with unnamed_files() as new_file:
        spills = [Spill(new_file(), new_file()) for _ in parts]
        calls: list[Call] = [
            (shuffle, (source.place, part, buckets, spill))
            for part, spill in zip(parts, spills, strict=True)
        ]
        answers = run(calls, lambda done: progress(done, total))
        if any(map(is_failure, answers)):
            return answers
        sums = [new_file() for _ in ranges]
        shuffled = Shuffled([spill.rows for spill in spills], buckets)
        if name == "coverage":
            calls = [(add_up_coverage, (each, shuffled, files)) for each in ranges]
        else:
            calls = [
                (add_up_provenance, (each, shuffled, path))
                for each, path in zip(ranges, sums, strict=True)
            ]
        answers += run(calls, lambda done: progress(len(parts) + done, total))
        if name == "coverage" or any(map(is_failure, answers)):
            return answers
        days = [spill.days for spill in spills]
        return answers + run([(finish_provenance, (sums, days, files))], lambda _: None)


class Spill(NamedTuple):
    """Files for what a task shuffles: rows, and the days of each origin."""

    rows: Path
    days: Path


class Shuffled(NamedTuple):
    """Rows in buckets: in each file, batch number n is of bucket n modulo ``buckets``."""

    spills: list[Path]
    buckets: int

    def bucket(self, number: int) -> pa.Table:
        """All rows of one."""
        _give_back()
        batches = []
        for spill in self.spills:
            with pa.OSFile(str(spill)) as file:
                found = pa.ipc.open_file(file)
                count = found.num_record_batches
                batches += [found.get_batch(n) for n in range(number, count, self.buckets)]
        return pa.Table.from_batches(batches, schema=_ROWS)


class Source(NamedTuple):
    """A file of `values`, by its path in the table."""

    path: str
    size: int


def _source_of(file: ListedFile) -> Source:
    return Source(file.path, file.size)


def _cut(sources: Sequence[Source], cores: int) -> list[list[Source]]:
    """Spread files over tasks, at least one for each core if there are as many."""
    whole = sum(source.size for source in sources)
    count = max(cores, math.ceil(whole / _TASK_BYTES))
    return even_parts(sources, count, weight=lambda source: source.size)


# Tasks


def shuffle(place: Place, sources: Sequence[Source], buckets: int, spill: Spill) -> str:
    """Sort the rows of files into buckets: in ``spill`` as many batches as there are, repeatedly.

    Beside them are the days on which something came from each origin.
    """
    days: set[tuple[bytes, int]] = set()
    try:
        with (
            pa.OSFile(str(spill.rows), "wb") as file,
            pa.ipc.new_file(file, _ROWS, options=_LZ4) as out,
        ):
            waiting: list[pa.RecordBatch] = []
            for source in sources:
                for batch in read_batches(place, source.path, _READ):
                    days.update(_origins_and_days(batch))
                    waiting.append(_hashed(batch))
                    if sum(each.nbytes for each in waiting) >= _WAITING_BYTES:
                        _spill(waiting, buckets, out)
                        waiting = []
            if waiting:
                _spill(waiting, buckets, out)
        _write(spill.days, pa.Table.from_arrays(_columns(days), schema=_DAYS))
    except (ExportError, OSError) as error:
        return failure_answer(error, Folder(Path(gettempdir())))
    return answer([], [])


def _columns(days: set[tuple[bytes, int]]) -> list[pa.Array]:
    found = sorted(days)
    return [
        pa.array([origin for origin, _ in found], pa.binary()),
        pa.array([day for _, day in found], pa.int64()),
    ]


def _origins_and_days(batch: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
    """Which origins there are, and on which days since 1970."""
    origins = batch.column("origin")
    days = batch.column("received_at").cast(pa.int64()).to_numpy() // DAY
    for day in np.unique(days).tolist():
        for origin in pc.unique(origins.filter(pa.array(days == day))).to_pylist():
            yield origin, day


def _hashed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the SHA-256 of the value in its place, which Arrow cannot compute."""
    values = batch.column("value")
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    view = memoryview(data) if data is not None else memoryview(b"")
    digests = b"".join(sha256(view[a:b]).digest() for a, b in pairwise(ends.tolist()))
    hashes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_HASH_BYTES), len(values), [None, pa.py_buffer(digests)]
    )
    return pa.RecordBatch.from_arrays([*batch.columns[:-1], hashes], schema=_ROWS)


def _spill(waiting: Sequence[pa.RecordBatch], buckets: int, out: Any) -> None:
    """Write one batch a bucket, also where it is empty: so a batch's number tells its bucket."""
    rows = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
    hashes = rows.column("value_hash").buffers()[1]
    words = _HASH_BYTES // 4
    heads = np.frombuffer(hashes, ">u4")[: len(rows) * words : words].astype(np.uint64)
    numbers = heads * np.uint64(buckets) >> np.uint64(32)
    order = np.argsort(numbers, kind="stable")
    rows = rows.take(pa.array(order))
    starts = np.searchsorted(numbers[order], np.arange(buckets + 1))
    for start, end in pairwise(starts.tolist()):
        out.write_batch(rows.slice(start, end - start))
    _give_back()


def _give_back() -> None:
    """Have the system take what was freed: pieces of it would add up as long as a task lasts."""
    pa.default_memory_pool().release_unused()


def add_up_coverage(numbers: Sequence[int], shuffled: Shuffled, files: Files) -> str:
    """Write the report's rows of these buckets."""
    return write_report_rows(_coverage(numbers, shuffled), "coverage", files)


def _coverage(numbers: Sequence[int], shuffled: Shuffled) -> Iterator[pa.RecordBatch]:
    for number in numbers:
        rows = shuffled.bucket(number).group_by(["feed", "value_hash"], use_threads=False)
        # A node has a value of a feed once, so its rows are its nodes.
        sums = rows.aggregate([("size", "max"), ([], "count_all"), *_SEEN])
        yield from sums.rename_columns(TABLES["coverage"].schema.names).to_batches()


def add_up_provenance(numbers: Sequence[int], shuffled: Shuffled, sums: Path) -> str:
    """Write down, for these buckets, the sums of each origin and feed."""
    try:
        _write(sums, pa.concat_tables(_provenance(shuffled.bucket(n)) for n in numbers))
    except OSError as error:
        return failure_answer(error, Folder(Path(gettempdir())))
    return answer([], [])


def _provenance(rows: pa.Table) -> pa.Table:
    by_value = rows.group_by(["origin", "feed", "value_hash"], use_threads=False).aggregate(
        [([], "count_all"), ("size", "max"), *_SEEN]
    )
    by_value = by_value.rename_columns(["origin", "feed", "value_hash", *_SUMMED])
    by_feed = by_value.group_by(["origin", "feed"], use_threads=False).aggregate(
        [([], "count_all"), *_SUMS]
    )
    return by_feed.rename_columns(["origin", "feed", "values", *_SUMMED])


def finish_provenance(sums: Sequence[Path], days: Sequence[Path], files: Files) -> str:
    """Add up what the buckets came to, and write the report."""
    try:
        parts = pa.concat_tables(map(_read_back, sums))
        dates = pa.concat_tables(map(_read_back, days))
    except OSError as error:
        return failure_answer(error, Folder(Path(gettempdir())))
    total = [("values", "sum"), *_SUMS]
    by_feed = parts.group_by(["origin", "feed"], use_threads=False).aggregate(total)
    by_feed = by_feed.rename_columns(["origin", "feed", "values", *_SUMMED])
    found = by_feed.group_by("origin", use_threads=False).aggregate([*total, ([], "count_all")])
    found = found.rename_columns(["origin", "values", *_SUMMED, "feeds"])
    each_day = dates.group_by(["origin", "day"], use_threads=False).aggregate([])
    counted = each_day.group_by("origin", use_threads=False).aggregate([([], "count_all")])
    at = pc.index_in(found.column("origin"), counted.column("origin").combine_chunks())
    found = found.append_column("days", counted.column("count_all").take(at))
    names = TABLES["provenance"].schema.names
    return write_report_rows(found.select(names).to_batches(), "provenance", files)


def _write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def _read_back(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()

"""What runs in the workers of both engines: ranges in, files written, facts out.

A task answers with one line of JSON. What it may rightly fail of (a damaged snapshot, a full disk)
is an answer too and no exception: Spark would try again, and show a traceback in the end.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from hyperbloom.export.engines.counter import RowCounter
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.errors import (
    ExportError,
    ExportFull,
    SnapshotUnusable,
    StoreUnreachable,
    TableUnusable,
)
from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.files import FileFact, PartWriter, ValueWriter
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.rows import read_log_rows, rows_by_node
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.store import StoreError

__all__ = [
    "Answers",
    "answer",
    "failure_answer",
    "is_failure",
    "write_report_rows",
    "write_value_ranges",
    "write_value_rows",
]

_FAILURES: Final = {
    kind.__name__: kind
    for kind in (ExportError, ExportFull, SnapshotUnusable, StoreUnreachable, TableUnusable)
}


class Answers:
    """The answers of all tasks, read back; raises the first failure among them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.facts: list[FileFact] = []
        self.rows: dict[tuple[str, bytes], int] = {}
        self.peak_bytes = 0
        for line in lines:
            self._take(json.loads(line))

    def _take(self, answer: dict[str, Any]) -> None:
        if "failure" in answer:
            raise _FAILURES.get(answer["failure"], ExportError)(answer["sentence"])
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        self.facts += [FileFact(**fact) for fact in map(json.loads, answer["files"])]
        for node, feed, count in answer["rows"]:
            key = node, bytes.fromhex(feed)
            self.rows[key] = self.rows.get(key, 0) + count


def write_value_ranges(ranges: Sequence[SeqRange], files: Files, number: int) -> str:
    """Write the ranges of the task with this number into files of `values`; the answer."""
    writer = ValueWriter(
        TABLES["values"].cut_by(files.cut_by),
        files.place,
        name=f"{files.name}-{number}",
        target_bytes=files.target_bytes,
    )
    written: Counter[tuple[str, bytes]] = Counter()
    counter = RowCounter(files.counter, number)
    try:
        # The worker's process was started by Java, or by a cluster's executor.
        _check_place(files)
        with files.place.shared(files.share_with):
            for piece in ranges:
                for rows in read_log_rows(piece.path, piece.feed, piece.after_seq, piece.last_seq):
                    writer.add(rows, piece.node)
                    written[piece.node, piece.feed] += rows.batch.num_rows
                    counter.add(rows.batch.num_rows)
            facts = writer.close()
    except (ExportError, StoreError, OSError) as error:
        writer.abandon()
        return failure_answer(error, files.place)
    finally:
        counter.close()
    return answer(facts, [(node, feed.hex(), n) for (node, feed), n in written.items()])


def write_value_rows(batches: Iterable[pa.RecordBatch], files: Files) -> str:
    """Write rows with all columns of `values` into files of it; the answer."""
    writer = ValueWriter(
        TABLES["values"].cut_by(files.cut_by),
        files.place,
        name=files.name,
        target_bytes=files.target_bytes,
    )
    try:
        _check_place(files)
        with files.place.shared(files.share_with):
            for batch in batches:
                for node, rows in rows_by_node(batch):
                    writer.add(rows, node)
            return answer(writer.close(), [])
    except (ExportError, OSError) as error:
        writer.abandon()
        return failure_answer(error, files.place)


def write_report_rows(batches: Iterable[pa.RecordBatch], table: str, files: Files) -> str:
    """Write a report's rows as they are; the answer."""
    spec = TABLES[table]
    writer = PartWriter(
        table=spec,
        place=files.place,
        partition={},
        name=files.name,
        target_bytes=files.target_bytes,
    )
    try:
        _check_place(files)
        with files.place.shared(files.share_with):
            for batch in batches:
                columns = [batch.column(field.name).cast(field.type) for field in spec.schema]
                writer.add(pa.RecordBatch.from_arrays(columns, schema=spec.schema))
            return answer(writer.close(), [])
    except (ExportError, OSError) as error:
        writer.abandon()
        return failure_answer(error, files.place)


def _check_place(files: Files) -> None:
    """Before anything is written: a folder of this name may be made on any machine."""
    if files.sign is not None:
        files.place.parent.check_seen(files.sign)


def answer(facts: Sequence[FileFact], rows: Sequence[tuple[str, str, int]]) -> str:
    """What a task answers: files, rows by node and feed, and the memory its worker took."""
    files = [fact.to_json() for fact in facts]
    return json.dumps({"files": files, "rows": list(rows), "peak_bytes": _peak_bytes()})


def _peak_bytes() -> int:
    """The largest resident set of this process."""
    try:
        # Beside this, getrusage counts what its parent held when the process was started.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def failure_answer(error: Exception, place: Place) -> str:
    """What a task answers that could not read its snapshot, or not write or read at ``place``."""
    if isinstance(error, ExportError):
        reason = error
    elif isinstance(error, StoreError):
        reason = SnapshotUnusable(str(error))
    else:
        reason = place.failed(error)
    return json.dumps({"failure": type(reason).__name__, "sentence": str(reason)})


def is_failure(answer: str) -> bool:
    """Whether a task answered that it failed."""
    return "failure" in json.loads(answer)

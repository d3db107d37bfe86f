"""What runs in Spark's Python workers: ranges in, files written, facts out.

A task answers with one line of JSON. What it may rightly fail of (a damaged snapshot, a full disk)
is an answer too and no exception: Spark would try again, and show a traceback in the end.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from hyperbloom.export.errors import ExportError, ExportFull, SnapshotUnusable
from hyperbloom.export.sharing import MASKS, ShareWith
from hyperbloom.export.tables.delta import translated
from hyperbloom.export.tables.files import FileFact, PartWriter, ValueWriter
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.rows import read_log_rows
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.store import StoreError

__all__ = ["ANSWER_SCHEMA", "Answers", "write_report", "write_value_ranges", "write_values"]

ANSWER_SCHEMA: Final = "answer string"
_FAILURES = {kind.__name__: kind for kind in (ExportError, ExportFull, SnapshotUnusable)}


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
            raise _FAILURES[answer["failure"]](answer["sentence"])
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        self.facts += [FileFact(**fact) for fact in map(json.loads, answer["files"])]
        for node, feed, count in answer["rows"]:
            key = node, bytes.fromhex(feed)
            self.rows[key] = self.rows.get(key, 0) + count


def write_values(
    batches: Iterable[pa.RecordBatch],
    *,
    tasks: Sequence[Sequence[SeqRange]],
    folder: Path,
    name: str,
    target_bytes: int,
    share_with: ShareWith,
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow over the tasks' numbers: write each one's ranges into files of `values`."""
    _close_to_others(share_with)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _as_batch(
                write_value_ranges(
                    tasks[number], folder=folder, name=f"{name}-{number}", target_bytes=target_bytes
                )
            )


def write_value_ranges(
    ranges: Sequence[SeqRange], *, folder: Path, name: str, target_bytes: int
) -> str:
    """Write ranges into files; the answer."""
    writer = ValueWriter(TABLES["values"], folder, name=name, target_bytes=target_bytes)
    try:
        for piece in ranges:
            for rows in read_log_rows(piece.path, piece.feed, piece.after_seq, piece.last_seq):
                writer.add(rows, piece.node, piece.feed)
        facts = writer.close()
    except (StoreError, OSError) as error:
        writer.abandon()
        return _failure(error, folder)
    return _answer(facts, [(node, feed.hex(), n) for (node, feed), n in writer.rows.items()])


def _close_to_others(share_with: ShareWith) -> None:
    """Set the worker's own umask: its process was started by Java, or by a cluster's executor."""
    os.umask(MASKS[share_with])


def write_report(
    batches: Iterable[pa.RecordBatch],
    *,
    table: str,
    folder: Path,
    name: str,
    target_bytes: int,
    share_with: ShareWith,
) -> Iterator[pa.RecordBatch]:
    """For mapInArrow over a report's rows: write them as they are."""
    _close_to_others(share_with)
    spec = TABLES[table]
    writer = PartWriter(
        table=spec, folder=folder, partition={}, name=name, target_bytes=target_bytes
    )
    try:
        for batch in batches:
            columns = [batch.column(field.name).cast(field.type) for field in spec.schema]
            writer.add(pa.RecordBatch.from_arrays(columns, schema=spec.schema))
        answer = _answer(writer.close(), [])
    except OSError as error:
        writer.abandon()
        answer = _failure(error, folder)
    yield _as_batch(answer)


def _as_batch(answer: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": [answer]})


def _answer(facts: Sequence[FileFact], rows: Sequence[tuple[str, str, int]]) -> str:
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    files = [fact.to_json() for fact in facts]
    return json.dumps({"files": files, "rows": list(rows), "peak_bytes": peak})


def _failure(error: Exception, folder: Path) -> str:
    reason = (
        SnapshotUnusable(str(error)) if isinstance(error, StoreError) else translated(error, folder)
    )
    return json.dumps({"failure": type(reason).__name__, "sentence": str(reason)})

"""What runs in the workers of both engines: ranges in, files written, facts out.

A task answers with one line of JSON. What it may rightly fail of (a damaged snapshot, a full disk)
is an answer too and no exception: Spark would try again, and show a traceback in the end.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from hyperbloom.export.engines.counter import RowCounter
from hyperbloom.export.engines.engine import Files, Task
from hyperbloom.export.engines.works import Changing, Rewriting
from hyperbloom.export.errors import (
    ExportError,
    ExportFull,
    SnapshotUnusable,
    StoreUnreachable,
    TableUnusable,
)
from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.changes import (
    ChangeWriter,
    SeqsUpTo,
    added_rows,
    balance_of,
    forgotten_rows,
    unlike_snapshot,
)
from hyperbloom.export.tables.files import FileFact, PartWriter, ValueWriter
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.rewriting import Numbers, Rewritten, rewrite, rows_of_feeds
from hyperbloom.export.tables.rows import read_log_rows, rows_by_node
from hyperbloom.export.tables.schema import ADDED, FORGOTTEN, TABLES, Table
from hyperbloom.store import Store, StoreError
from hyperbloom.store.values.scan import missing_seqs

__all__ = [
    "Answers",
    "add_changes",
    "answer",
    "failure_answer",
    "find_changes",
    "is_failure",
    "memory_settings",
    "rewrite_files",
    "snapshots_of",
    "write_report_rows",
    "write_value_ranges",
    "write_value_rows",
]

_FAILURES: Final = {
    kind.__name__: kind
    for kind in (ExportError, ExportFull, SnapshotUnusable, StoreUnreachable, TableUnusable)
}


def memory_settings() -> dict[str, str]:
    """The environment of a worker, by which it takes no more memory than it needs.

    Arrow's default pool keeps up to 60 MB of what it freed, malloc's arenas do the same. jemalloc
    gives it back, and is as fast; where Arrow was built without it, malloc is the next best.
    """
    pool = "jemalloc" if "jemalloc" in pa.supported_memory_backends() else "system"
    return {"ARROW_DEFAULT_MEMORY_POOL": pool, "MALLOC_ARENA_MAX": "1"}


class Answers:
    """The answers of all tasks, read back; raises the first failure among them.

    ``facts`` are the files written. ``rows`` are those read or compared, by node and feed,
    ``gone`` those found to be forgotten; ``rewritten`` the files that they were taken out of.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.facts: list[FileFact] = []
        self.rows: Counter[tuple[str, bytes]] = Counter()
        self.gone: Counter[tuple[str, bytes]] = Counter()
        self.rewritten: set[str] = set()
        self.peak_bytes = 0
        for line in lines:
            self._take(json.loads(line))

    def take_in(self, others: Answers) -> None:
        """Count those of another round, too."""
        self.facts += others.facts
        self.rows += others.rows
        self.gone += others.gone
        self.rewritten |= others.rewritten
        self.peak_bytes = max(self.peak_bytes, others.peak_bytes)

    def leave_out(self, nodes: Collection[str]) -> None:
        """Forget what was written of these nodes."""
        self.facts = [fact for fact in self.facts if fact.partition["node"] not in nodes]
        for counts in (self.rows, self.gone):
            for key in [key for key in counts if key[0] in nodes]:
                del counts[key]

    def _take(self, answer: dict[str, Any]) -> None:
        if "failure" in answer:
            raise _FAILURES.get(answer["failure"], ExportError)(answer["sentence"])
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        self.facts += [FileFact(**fact) for fact in map(json.loads, answer["files"])]
        for node, feed, count in answer["rows"]:
            self.rows[node, bytes.fromhex(feed)] += count
        for node, feed, count in answer["gone"]:
            self.gone[node, bytes.fromhex(feed)] += count
        self.rewritten.update(answer["rewritten"])


def snapshots_of(task: Task) -> set[Path]:
    """The snapshots that a task reads."""
    _, works = task
    return {work.path if isinstance(work, SeqRange) else work.snapshot for work in works}


def write_value_ranges(ranges: Sequence[SeqRange], files: Files, number: int) -> str:
    """Write the ranges of the task with this number into files of `values`; the answer."""

    def write(counter: RowCounter) -> str:
        written: Counter[tuple[str, bytes]] = Counter()
        with _value_writer(files, f"{files.name}-{number}") as writer:
            for piece in ranges:
                for rows in read_log_rows(piece.path, piece.feed, piece.after_seq, piece.last_seq):
                    writer.add(rows, piece.node)
                    written[piece.node, piece.feed] += rows.batch.num_rows
                    counter.add(rows.batch.num_rows)
            return answer(writer.close(), _by_hex(written))

    return _answer_of(write, files, number)


def write_value_rows(batches: Iterable[pa.RecordBatch], files: Files) -> str:
    """Write rows with all columns of `values` into files of it; the answer."""

    def write(_: RowCounter) -> str:
        with _value_writer(files, files.name) as writer:
            for batch in batches:
                for node, rows in rows_by_node(batch):
                    writer.add(rows, node)
            return answer(writer.close(), [])

    return _answer_of(write, files)


def write_report_rows(batches: Iterable[pa.RecordBatch], table: str, files: Files) -> str:
    """Write a report's rows as they are; the answer."""
    spec = TABLES[table]

    def write(_: RowCounter) -> str:
        with _part_writer(files, spec, files.name, {}) as writer:
            for batch in batches:
                columns = [batch.column(field.name).cast(field.type) for field in spec.schema]
                writer.add(pa.RecordBatch.from_arrays(columns, schema=spec.schema))
            return answer(writer.close(), [])

    return _answer_of(write, files)


def rewrite_files(works: Sequence[Rewriting], files: Files, number: int) -> str:
    """Write files of `values` anew without the rows that are gone; the answer.

    Rows that stay of feeds that are compared count as read. A file that cannot be read stays as it
    is, and its rows are missing in what is counted.
    """

    def write(counter: RowCounter) -> str:
        facts: list[FileFact] = []
        rows: Counter[tuple[str, bytes]] = Counter()
        gone: Counter[tuple[str, bytes]] = Counter()
        rewritten = []
        for work in works:
            done = _rewritten(work, files, number)
            facts += done.facts
            gone += Counter({(work.node, feed): n for feed, n in done.gone.items()})
            rows += Counter({(work.node, feed): done.stay[feed] for feed in work.compared})
            if done.gone.total():
                rewritten.append(work.path)
            counter.add(work.rows)
        return answer(facts, _by_hex(rows), _by_hex(gone), rewritten)

    return _answer_of(write, files, number)


def _rewritten(work: Rewriting, files: Files, number: int) -> Rewritten:
    table = TABLES["values"].cut_by(files.cut_by)

    def gone_among(feed: bytes, seqs: Numbers) -> Collection[int]:
        if feed in work.compared:
            with closing(Store.open_readonly(work.snapshot)) as store:
                return missing_seqs(store, feed, seqs)
        return work.gone.get(feed, ())

    with _part_writer(files, table, f"{files.name}-{number}", work.partition) as writer:
        try:
            return rewrite(files.place, work.path, writer, work.columns, gone_among)
        except (FileNotFoundError, pa.ArrowInvalid):
            return Rewritten(facts=[], stay=Counter(), gone=Counter())


def add_changes(ranges: Sequence[SeqRange], files: Files, number: int) -> str:
    """Write ranges into files of `changes`, as added; the answer."""

    def write(counter: RowCounter) -> str:
        rows: Counter[tuple[str, bytes]] = Counter()

        def add(piece: SeqRange, writer: ChangeWriter) -> None:
            for found in read_log_rows(piece.path, piece.feed, piece.after_seq, piece.last_seq):
                writer.add(ADDED, added_rows(found))
                rows[piece.node, piece.feed] += found.batch.num_rows
                counter.add(found.batch.num_rows)

        adds = [(piece.node, partial(add, piece)) for piece in ranges]
        return answer(_write_changes(adds, files, number), _by_hex(rows))

    return _answer_of(write, files, number)


def find_changes(works: Sequence[Changing], files: Files, number: int) -> str:
    """Write what is gone, and what came where that has to be compared; the answer."""

    def write(_: RowCounter) -> str:
        rows: Counter[tuple[str, bytes]] = Counter()
        gone: Counter[tuple[str, bytes]] = Counter()

        def find(work: Changing, writer: ChangeWriter) -> None:
            balance = balance_of(files.place, work.files, work.choice)
            if isinstance(work.choice, SeqsUpTo):
                seen: Counter[bytes] = Counter()
                for batch in unlike_snapshot(work.snapshot, work.feeds, work.choice, balance, seen):
                    writer.add(ADDED, batch)
                rows.update({(work.node, feed): count for feed, count in seen.items()})
            for batch in forgotten_rows(files.place, work.files, work.choice, balance, work.times):
                writer.add(FORGOTTEN, batch)
                for feed, where in rows_of_feeds(batch):
                    gone[work.node, feed] += int(where.sum())

        finds = [(work.node, partial(find, work)) for work in works]
        return answer(_write_changes(finds, files, number), _by_hex(rows), _by_hex(gone))

    return _answer_of(write, files, number)


def _write_changes(
    writes: Sequence[tuple[str, Callable[[ChangeWriter], None]]], files: Files, number: int
) -> list[FileFact]:
    """Have each write its node's rows."""
    writers: dict[str, ChangeWriter] = {}
    try:
        for node, write in writes:
            if node not in writers:
                writers[node] = ChangeWriter(
                    files.place,
                    node,
                    name=f"{files.name}-{number}",
                    target_bytes=files.target_bytes,
                )
            write(writers[node])
        return [fact for writer in writers.values() for fact in writer.close()]
    finally:
        for writer in writers.values():
            writer.abandon()


def _answer_of(write: Callable[[RowCounter], str], files: Files, number: int = 0) -> str:
    """What ``write`` answers that does a task's work; or why it could not, which is an answer, too.

    ``number`` is the task's, whose rows are counted.
    """
    with closing(RowCounter(files.counter, number)) as counter:
        try:
            if files.sign is not None:
                # A folder of this name may be made on any machine: before anything is written.
                files.place.parent.check_seen(files.sign)
            # The worker's process was started by Java, or by a cluster's executor.
            with files.place.shared(files.share_with):
                return write(counter)
        except (ExportError, StoreError, OSError) as error:
            return failure_answer(error, files.place)


@contextmanager
def _value_writer(files: Files, name: str) -> Iterator[ValueWriter]:
    """Writes files of `values`; what it left open at the block's end is part of nothing."""
    table = TABLES["values"].cut_by(files.cut_by)
    writer = ValueWriter(table, files.place, name=name, target_bytes=files.target_bytes)
    try:
        yield writer
    finally:
        writer.abandon()


@contextmanager
def _part_writer(
    files: Files, table: Table, name: str, partition: Mapping[str, str]
) -> Iterator[PartWriter]:
    """The same for the files of one partition."""
    writer = PartWriter(
        table=table,
        place=files.place,
        partition=partition,
        name=name,
        target_bytes=files.target_bytes,
    )
    try:
        yield writer
    finally:
        writer.abandon()


def _by_hex(rows: Counter[tuple[str, bytes]]) -> list[tuple[str, str, int]]:
    return [(node, feed.hex(), count) for (node, feed), count in rows.items()]


def answer(
    facts: Sequence[FileFact],
    rows: Sequence[tuple[str, str, int]],
    gone: Sequence[tuple[str, str, int]] = (),
    rewritten: Sequence[str] = (),
) -> str:
    """What a task answers: files, rows by node and feed, and the memory its worker took."""
    return json.dumps(
        {
            "files": [fact.to_json() for fact in facts],
            "rows": list(rows),
            "gone": list(gone),
            "rewritten": list(rewritten),
            "peak_bytes": _peak_bytes(),
        }
    )


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

"""The export: from snapshots to tables, so that a value is there once, whatever happens on the way.

What of a snapshot goes into `values` is planned from what the table's log says of earlier ones
(plans.py), and committed at once. So an export that was killed is finished by running it again, and
running it twice changes nothing.

`links` and `objects` hold each node's newest, `feeds` a row for every feed of every snapshot. They
are small, and written by the process that runs the export. Reports are made by Spark from
`values`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyperbloom.export.errors import ExportError
from hyperbloom.export.plans import Mode, check_rows, numbers_of, plan_of
from hyperbloom.export.reports import REPORT_FRAMES
from hyperbloom.export.sharing import ShareWith, masked, open_folder, settle_modes
from hyperbloom.export.snapshots import (
    Snapshot,
    find_snapshots,
    newest_of_each_node,
    open_snapshot,
)
from hyperbloom.export.spark import collect_answers, cores_of
from hyperbloom.export.tables.delta import ListedFile, OpenTable, translated
from hyperbloom.export.tables.files import FileFact, sync_path
from hyperbloom.export.tables.lock import folder_lock
from hyperbloom.export.tables.ranges import TARGET_FILE_BYTES, SeqRange, cut_by_seq
from hyperbloom.export.tables.reading import read
from hyperbloom.export.tables.schema import OBJECTS, REPORTS, TABLES
from hyperbloom.export.tables.small_tables import (
    has_objects,
    write_feeds,
    write_links,
    write_objects,
)
from hyperbloom.export.tasks import ANSWER_SCHEMA, Answers, write_report, write_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_TABLES",
    "ExportProgress",
    "ExportReport",
    "Mode",
    "TableReport",
    "export_snapshots",
]

ExportProgress = Callable[[str, float], None]
"""Called with what is done now and how much of it is, from 0 to 1."""
SessionSource = Callable[[], AbstractContextManager["SparkSession"]]

DEFAULT_TABLES: Final = ("values", "links", "feeds")
"""And `objects`, where a snapshot holds any, or the table is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What an export did to one table; ``version`` is the commit it left, ``changed`` if it did.

    ``rows``, ``files`` and ``bytes`` are those written; ``replaced`` the rows taken out for them.
    """

    table: str
    version: int
    changed: bool
    rows: int = 0
    files: int = 0
    bytes: int = 0
    replaced: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export did. ``session_seconds`` is Spark's start, 0 if it was not needed.

    ``worker_peak_bytes`` is the largest resident set of a Python worker that wrote values.
    ``settled`` counts the files and folders of earlier exports whose modes were changed.
    """

    snapshots: tuple[str, ...]
    tables: tuple[TableReport, ...]
    session_seconds: float
    worker_peak_bytes: int
    settled: int = 0


def export_snapshots(
    patterns: Iterable[str | Path],
    target: Path,
    *,
    sessions: SessionSource,
    mode: Mode = "incremental",
    tables: Sequence[str] = DEFAULT_TABLES,
    target_bytes: int = TARGET_FILE_BYTES,
    share_with: ShareWith = "owner",
    progress: ExportProgress | None = None,
) -> ExportReport:
    """Export the newest snapshot of each node into the tables below ``target``.

    ``sessions`` gives a Spark session, and is asked only if there is something for it to do. In the
    mode ``full`` all rows of these nodes are written anew; other nodes' rows stay in both modes.
    The tables are closed to all but those of ``share_with``, those of earlier exports too: the
    process's umask is set meanwhile.
    Raises ExportError and its kinds; a table is then as it was, or wholly done.
    """
    unknown = set(tables) - set(TABLES)
    if unknown:
        raise ExportError(f"no table {min(unknown)!r}; there are {', '.join(TABLES)}")
    if "%" in str(target.absolute()):
        raise ExportError(f"{target}: deltalake cannot have % in a folder's name; name another one")
    snapshots = [open_snapshot(path) for path in find_snapshots(patterns)]
    target = target.absolute()
    with masked(share_with), folder_lock(target), ExitStack() as stack:
        settled = _settle(target, share_with)
        export = _Export(
            target, snapshots, mode, target_bytes, share_with, progress, sessions, stack
        )
        done = [export.run(name) for name in TABLES if name in export.wanted(tables)]
        return ExportReport(
            snapshots=tuple(snapshot.id for snapshot in export.newest),
            tables=tuple(done),
            session_seconds=export.session_seconds,
            worker_peak_bytes=export.worker_peak_bytes,
            settled=settled,
        )


def _settle(target: Path, share_with: ShareWith) -> int:
    """Bring the tables that are there to who may read them; how much that changed."""
    try:
        open_folder(target, share_with)
        return sum(settle_modes(target / name, share_with) for name in TABLES)
    except OSError as error:
        raise translated(error, target) from error


class _Export:
    """One run over one folder, which it has to itself."""

    def __init__(
        self,
        target: Path,
        snapshots: Sequence[Snapshot],
        mode: Mode,
        target_bytes: int,
        share_with: ShareWith,
        progress: ExportProgress | None,
        sessions: SessionSource,
        stack: ExitStack,
    ) -> None:
        self.target = target
        self.snapshots = snapshots
        self.newest = newest_of_each_node(snapshots)
        self.session_seconds = 0.0
        self.worker_peak_bytes = 0
        self._mode = mode
        self._target_bytes = target_bytes
        self._share_with = share_with
        self._progress = progress
        self._sessions = sessions
        self._stack = stack
        self._session: SparkSession | None = None
        self._run_name = f"part-{uuid.uuid4().hex[:8]}"
        self._metadata = {
            "mode": mode,
            "snapshots": [_described(snapshot) for snapshot in self.newest],
        }

    def wanted(self, tables: Sequence[str]) -> Sequence[str]:
        """The tables to export: what is said, or by default `objects` where there are some."""
        if tuple(tables) != DEFAULT_TABLES:
            return tables
        if (self.target / OBJECTS.name).is_dir() or has_objects(self.newest):
            return (*tables, OBJECTS.name)
        return tables

    def run(self, name: str) -> TableReport:
        """Bring one table up to date."""
        started = self.session_seconds
        begun = time.perf_counter()
        try:
            if name in REPORTS:
                report = self._report(name)
            else:
                report = {
                    "values": self._values,
                    "links": self._links,
                    "feeds": self._feeds,
                    "objects": self._objects,
                }[name]()
        except BaseException:
            self._remove_unnamed(name)
            raise
        waited = self.session_seconds - started
        return replace(report, seconds=time.perf_counter() - begun - waited)

    # values

    def _values(self) -> TableReport:
        table = OpenTable.ensure(self.target, "values")
        found = (plan_of(snapshot, table, self._mode) for snapshot in self.newest)
        plans = [plan for plan in found if plan is not None]
        if not plans:
            return TableReport(table="values", version=table.version, changed=False)
        ranges = [piece for plan in plans for piece in plan.ranges]
        answers = self._write_values(table.folder, ranges) if ranges else Answers(())
        check_rows(ranges, answers)
        replaced_nodes = {plan.snapshot.node for plan in plans if plan.replaces}
        replaced = _files_of(table, replaced_nodes) if replaced_nodes else []
        return self._commit(table, answers.facts, replaced, numbers_of(plans))

    def _write_values(self, folder: Path, ranges: Sequence[SeqRange]) -> Answers:
        session = self._spark()
        tasks = cut_by_seq(ranges, cores=cores_of(session), target_bytes=self._target_bytes)
        write = partial(
            write_values,
            tasks=tasks,
            folder=folder,
            name=self._run_name,
            target_bytes=self._target_bytes,
            share_with=self._share_with,
        )
        frame = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(write, ANSWER_SCHEMA)
        answers = Answers(collect_answers(session, frame, self._task_progress("values")))
        self.worker_peak_bytes = max(self.worker_peak_bytes, answers.peak_bytes)
        return answers

    # The small tables

    def _links(self) -> TableReport:
        return self._of_newest("links", write_links)

    def _objects(self) -> TableReport:
        return self._of_newest("objects", write_objects)

    def _of_newest(
        self,
        name: str,
        write: Callable[[Sequence[Snapshot], Path, str], list[FileFact]],
    ) -> TableReport:
        """A table that holds what each node's newest snapshot does."""
        table = OpenTable.ensure(self.target, name)
        news = [
            snapshot
            for snapshot in self.newest
            if self._mode == "full" or snapshot.taken_at > (table.taken_at(snapshot.node) or -1)
        ]
        if not news:
            return TableReport(table=name, version=table.version, changed=False)
        nodes = {snapshot.node for snapshot in news}
        return self._commit(
            table,
            self._written(table, partial(write, news)),
            _files_of(table, nodes),
            {f"{snapshot.node}.taken_at": snapshot.taken_at for snapshot in news},
        )

    def _feeds(self) -> TableReport:
        table = OpenTable.ensure(self.target, "feeds")
        is_full = self._mode == "full"
        news = [
            snapshot
            for snapshot in {snapshot.id: snapshot for snapshot in self.snapshots}.values()
            if is_full or snapshot.taken_at > (table.taken_at(snapshot.node) or -1)
        ]
        if not news:
            return TableReport(table="feeds", version=table.version, changed=False)
        nodes = {snapshot.node for snapshot in news} if is_full else set()
        return self._commit(
            table,
            self._written(table, partial(write_feeds, news)),
            _files_of(table, nodes),
            {
                f"{snapshot.node}.taken_at": snapshot.taken_at
                for snapshot in newest_of_each_node(news)
            },
        )

    def _written(
        self, table: OpenTable, write: Callable[[Path, str], list[FileFact]]
    ) -> list[FileFact]:
        self._show(f"{table.table.name}: writing", 0.0)
        try:
            return write(table.folder, self._run_name)
        except OSError as error:
            raise translated(error, table.folder) from error

    # Reports

    def _report(self, name: str) -> TableReport:
        source = OpenTable.ensure(self.target, "values")
        table = OpenTable.ensure(self.target, name)
        if self._mode != "full" and table.source_version() == source.version:
            return TableReport(table=name, version=table.version, changed=False)
        session = self._spark()
        write = partial(
            write_report,
            table=name,
            folder=table.folder,
            name=self._run_name,
            target_bytes=self._target_bytes,
            share_with=self._share_with,
        )
        frame = REPORT_FRAMES[name](read(session, source.folder)).mapInArrow(write, ANSWER_SCHEMA)
        answers = Answers(collect_answers(session, frame, self._task_progress(name)))
        return self._commit(table, answers.facts, table.files(), {"source": source.version})

    # What they share

    def _commit(
        self,
        table: OpenTable,
        facts: Sequence[FileFact],
        replaced: Sequence[ListedFile],
        numbers: dict[str, int],
    ) -> TableReport:
        self._show(f"{table.table.name}: committing", 1.0)
        try:
            sync_path(table.folder)
        except OSError as error:
            raise translated(error, table.folder) from error
        version = table.commit(facts, replaced=replaced, numbers=numbers, metadata=self._metadata)
        return TableReport(
            table=table.table.name,
            version=version,
            changed=True,
            rows=sum(fact.rows for fact in facts),
            files=len(facts),
            bytes=sum(fact.size for fact in facts),
            replaced=sum(file.rows for file in replaced),
        )

    def _spark(self) -> SparkSession:
        if self._session is None:
            self._show("starting Spark", 0.0)
            begun = time.perf_counter()
            self._session = self._stack.enter_context(self._sessions())
            self.session_seconds = time.perf_counter() - begun
        return self._session

    def _show(self, text: str, part: float) -> None:
        if self._progress is not None:
            self._progress(text, part)

    def _task_progress(self, table: str) -> Callable[[int, int], None] | None:
        if self._progress is None:
            return None
        return lambda done, total: self._show(f"{table}: {done} of {total} ranges", done / total)

    def _remove_unnamed(self, name: str) -> None:
        """After a failure: the files of this run that no commit names. Others are vacuum's.

        The commit may be there all the same (a Ctrl-C that came meanwhile is raised behind it), so
        the log is asked anew. Where it cannot be read, every file stays.
        """
        try:
            table = OpenTable.find(self.target, name)
            named = {file.path for file in table.files()} if table is not None else set()
        except ExportError:
            return
        for path in (self.target / name).rglob(f"{self._run_name}-*.parquet"):
            if path.relative_to(self.target / name).as_posix() not in named:
                path.unlink(missing_ok=True)


def _files_of(table: OpenTable, nodes: Collection[str]) -> list[ListedFile]:
    return [file for file in table.files() if file.partition["node"] in nodes]


def _described(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "node": snapshot.node,
        "taken_at": snapshot.taken_at,
        "feeds": {
            feed.key.hex(): {"top_seq": feed.top_seq, "digest": (feed.digest or b"").hex()}
            for feed in snapshot.feeds
        },
    }

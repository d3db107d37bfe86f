"""The export: from snapshots to tables, so that a value is there once, whatever happens on the way.

What of a snapshot goes into `values` is planned from what the table's log says of earlier ones
(plans.py), and committed at once. So an export that was killed is finished by running it again, and
running it twice changes nothing.

`links` and `objects` hold each node's newest, `feeds` a row for every feed of every snapshot. They
are small, and written by the process that runs the export. `values`, and the reports that are made
from it, are written by the tasks of an engine (engines/).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from hyperbloom.export.engines.choice import Choice, Engines
from hyperbloom.export.engines.engine import Engine, EngineName, Files
from hyperbloom.export.engines.tasks import Answers
from hyperbloom.export.errors import ExportError
from hyperbloom.export.following import Changes, Values, check_rows, difference
from hyperbloom.export.places.place import Place
from hyperbloom.export.places.sharing import ShareWith
from hyperbloom.export.places.urls import Where, place_of
from hyperbloom.export.plans import Mode, NodePlan, numbers_of, plan_of
from hyperbloom.export.snapshots import (
    Snapshot,
    find_snapshots,
    newest_of_each_node,
    open_snapshot,
)
from hyperbloom.export.tables.delta import ListedFile, OpenTable
from hyperbloom.export.tables.files import FileFact
from hyperbloom.export.tables.ranges import TARGET_FILE_BYTES
from hyperbloom.export.tables.schema import CHANGES, OBJECTS, REPORTS, TABLES
from hyperbloom.export.tables.small_tables import (
    has_objects,
    write_feeds,
    write_links,
    write_objects,
)

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

DEFAULT_TABLES: Final = ("values", "links", "feeds")
"""And `objects`, where a snapshot holds any; it and `changes`, where the table is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What an export did to one table; ``version`` is the commit it left, ``changed`` if it did.

    ``rows``, ``files`` and ``bytes`` are those written; ``replaced`` the rows taken out for them.
    ``choice`` says which engine wrote them and why; None where none was needed.
    """

    table: str
    version: int
    changed: bool
    rows: int = 0
    files: int = 0
    bytes: int = 0
    replaced: int = 0
    seconds: float = 0.0
    choice: Choice | None = None

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export did. ``start_seconds`` is the start of engines, 0 if none was needed.

    ``worker_peak_bytes`` is the largest resident set of a worker process that wrote.
    ``settled`` counts the files and folders of earlier exports whose modes were changed.
    """

    snapshots: tuple[str, ...]
    tables: tuple[TableReport, ...]
    start_seconds: float
    worker_peak_bytes: int
    settled: int = 0


def export_snapshots(
    patterns: Iterable[str | Path],
    target: Where,
    *,
    engines: Engines | None = None,
    mode: Mode = "incremental",
    tables: Sequence[str] = DEFAULT_TABLES,
    target_bytes: int = TARGET_FILE_BYTES,
    share_with: ShareWith = "owner",
    progress: ExportProgress | None = None,
) -> ExportReport:
    """Export the newest snapshot of each node into the tables below ``target``, a folder or a URL.

    An engine of ``engines`` (by default the one that fits) is started only if there is something
    for it to do. In the mode ``full`` all rows of these nodes are written anew; other nodes' rows
    stay in both modes. The tables are closed to all but those of ``share_with``, those of earlier
    exports too: the process's umask is set meanwhile.
    Raises ExportError and its kinds; a table is then as it was, or wholly done.
    """
    unknown = set(tables) - set(TABLES)
    if unknown:
        raise ExportError(f"no table {min(unknown)!r}; there are {', '.join(TABLES)}")
    place = place_of(target)
    if "%" in str(place):
        raise ExportError(f"{place}: deltalake cannot have % in a folder's name; name another one")
    snapshots = [open_snapshot(path) for path in find_snapshots(patterns)]
    with place.shared(share_with), place.held() as sign, ExitStack() as stack:
        settled = place.settle(TABLES, share_with)
        started = _Started(engines or Engines(), stack, progress or (lambda text, part: None))
        files = Files(
            place=place,
            name=f"part-{uuid.uuid4().hex[:8]}",
            target_bytes=target_bytes,
            share_with=share_with,
            sign=sign,
        )
        export = _Export(place, snapshots, mode, files, started)
        # Called last, when no task of an engine writes any more.
        stack.push(export.remove_unnamed)
        done = [export.run(name) for name in TABLES if name in export.wanted(tables)]
        return ExportReport(
            snapshots=tuple(snapshot.id for snapshot in export.newest),
            tables=tuple(done),
            start_seconds=started.seconds,
            worker_peak_bytes=export.worker_peak_bytes,
            settled=settled,
        )


class _Started:
    """The engines that have been started, which end with the export, and what is shown of it."""

    def __init__(self, engines: Engines, stack: ExitStack, show: ExportProgress) -> None:
        self.show = show
        self.seconds = 0.0
        self._engines = engines
        self._stack = stack
        self._started: dict[EngineName, Engine] = {}

    def for_rows(self, rows: int) -> tuple[Choice, Engine]:
        """The engine for a table for which so many rows are read."""
        choice = self._engines.choose(rows)
        if choice.engine not in self._started:
            self.show(f"starting the engine {choice.engine}", 0.0)
            begun = time.perf_counter()
            engine = self._stack.enter_context(self._engines.start(choice.engine))
            self._started[choice.engine] = engine
            self.seconds += time.perf_counter() - begun
        return choice, self._started[choice.engine]


class _Export:
    """One run over one place."""

    def __init__(
        self,
        target: Place,
        snapshots: Sequence[Snapshot],
        mode: Mode,
        files: Files,
        started: _Started,
    ) -> None:
        self.target = target
        self.snapshots = snapshots
        self.newest = newest_of_each_node(snapshots)
        self.worker_peak_bytes = 0
        self._mode = mode
        self._files = files
        self._started = started
        #: Tables for which files may have been written that no commit names.
        self._unfinished: set[str] = set()
        self._paths: dict[str, list[str]] = {}
        self._metadata = {
            "mode": mode,
            "snapshots": [_described(snapshot) for snapshot in self.newest],
        }

    def wanted(self, tables: Sequence[str]) -> Sequence[str]:
        """The tables to export: what is said, or by default also those that are there already, and
        `objects` where there are some.
        """
        if tuple(tables) != DEFAULT_TABLES:
            return tables
        more = [CHANGES.name] if OpenTable.find(self.target, CHANGES.name) is not None else []
        if has_objects(self.newest) or OpenTable.find(self.target, OBJECTS.name) is not None:
            more.append(OBJECTS.name)
        return (*tables, *more)

    def run(self, name: str) -> TableReport:
        """Bring one table up to date."""
        started = self._started.seconds
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
                    "changes": self._changes,
                }[name]()
        except BaseException:
            self._unfinished.add(name)
            raise
        waited = self._started.seconds - started
        return replace(report, seconds=time.perf_counter() - begun - waited)

    # The tables that follow the snapshots' values

    def _values(self) -> TableReport:
        table = OpenTable.ensure(self.target, "values")
        if table.is_streamed:
            raise ExportError(
                f"a streaming query appends to {table.place}; name another folder, or rows would "
                "be there twice"
            )
        return self._follow(table, Values)

    def _changes(self) -> TableReport:
        return self._follow(OpenTable.ensure(self.target, "changes"), Changes)

    def _follow(self, table: OpenTable, kind: type[Values | Changes]) -> TableReport:
        following = kind(table)
        found = (plan_of(snapshot, table, self._mode, following) for snapshot in self.newest)
        plans = [plan for plan in found if plan is not None]
        if not plans:
            return TableReport(table=table.table.name, version=table.version, changed=False)
        choice, answers = self._do(table, following, plans)
        wrong = [plan for plan in plans if difference(plan, answers)]
        if wrong:
            # What was written for them no commit will name.
            self._unfinished.add(table.table.name)
            check_rows([plan for plan in wrong if plan.is_anew], answers)
            self._wrote(table, answers.facts)
            answers.leave_out({plan.node for plan in wrong})
            again = [plan.anew() for plan in wrong]
            choice, more = self._do(table, following, again)
            check_rows(again, more)
            answers.take_in(more)
            plans = [*(plan for plan in plans if plan not in wrong), *again]
        gone = following.taken_out(plans, answers)
        staying = [file for file in table.files() if file not in gone]
        numbers = numbers_of(plans, [*staying, *answers.facts])
        report = self._commit(table, answers.facts, gone, numbers)
        return replace(report, choice=choice)

    def _do(
        self, table: OpenTable, following: Values | Changes, plans: Sequence[NodePlan]
    ) -> tuple[Choice | None, Answers]:
        """Have an engine do what the plans ask for; none is needed where that is nothing."""
        rows, name = following.rows_to_read(plans), table.table.name
        if not following.has_work(plans):
            return None, Answers(())
        choice, engine = self._started.for_rows(rows)

        def progress(done: int) -> None:
            self._started.show(f"{name}: {done:,} of {rows:,} rows", done / max(1, rows))

        files = replace(self._files, place=table.place, cut_by=table.table.partition_by)
        tasks = following.tasks(plans, engine.cores, files.target_bytes)
        return choice, self._read_answers(engine.run(tasks, files, progress))

    def _read_answers(self, lines: Sequence[str]) -> Answers:
        answers = Answers(lines)
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
        write: Callable[[Sequence[Snapshot], Place, str], list[FileFact]],
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
        self, table: OpenTable, write: Callable[[Place, str], list[FileFact]]
    ) -> list[FileFact]:
        self._started.show(f"{table.table.name}: writing", 0.0)
        try:
            return write(table.place, self._files.name)
        except OSError as error:
            raise table.place.failed(error) from error

    # Reports

    def _report(self, name: str) -> TableReport:
        source = OpenTable.ensure(self.target, "values")
        table = OpenTable.ensure(self.target, name)
        if self._mode != "full" and table.source_version() == source.version:
            return TableReport(table=name, version=table.version, changed=False)
        choice, engine = self._started.for_rows(sum(file.rows for file in source.files()))

        def progress(done: int, total: int) -> None:
            self._started.show(f"{name}: {done} of {total} tasks", done / max(1, total))

        files = replace(self._files, place=table.place)
        answers = self._read_answers(engine.write_report(name, source, files, progress))
        report = self._commit(table, answers.facts, table.files(), {"source": source.version})
        return replace(report, choice=choice)

    # What they share

    def _commit(
        self,
        table: OpenTable,
        facts: Sequence[FileFact],
        replaced: Sequence[ListedFile],
        numbers: dict[str, int],
    ) -> TableReport:
        self._started.show(f"{table.table.name}: committing", 1.0)
        self._wrote(table, facts)
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

    def _wrote(self, table: OpenTable, facts: Sequence[FileFact]) -> None:
        """Remember files, for they may be ones that no commit names."""
        self._paths.setdefault(table.table.name, []).extend(fact.path for fact in facts)

    def remove_unnamed(self, *_: object) -> None:
        """After a failure: the files of this run that no commit names. Others are vacuum's.

        The commit may be there all the same (a Ctrl-C that came meanwhile is raised behind it), so
        the log is asked anew. Where it cannot be read, every file stays.
        """
        for name in self._unfinished:
            with suppress(ExportError):
                self._remove_unnamed_of(name)

    def _remove_unnamed_of(self, name: str) -> None:
        table = OpenTable.find(self.target, name)
        if table is not None:
            table.remove_unnamed(self._files.name, self._paths.get(name, ()))


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

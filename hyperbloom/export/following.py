"""How the two tables that follow the snapshots' values are brought up to date, and checked.

Plans (plans.py) become calls of tasks, and from the tasks' answers it is seen whether the table
then has what the snapshots have: each feed's rows known before, less those that are gone, with
those written, are as many as its snapshot counts. Where they are not, the node is replaced.

`values` loses rows by files that are written anew. `changes` loses none: it gets a row for each
that is gone. So where a node is replaced it is compared with the snapshot, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hyperbloom.export.engines.engine import Task
from hyperbloom.export.engines.tasks import (
    Answers,
    add_changes,
    find_changes,
    rewrite_files,
    write_value_ranges,
)
from hyperbloom.export.engines.works import Changing, Rewriting
from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.export.plans import FeedPlan, NodePlan
from hyperbloom.export.tables.changes import ChangeFile, SeqsOfFeeds, SeqsUpTo, balance_of, key_of
from hyperbloom.export.tables.delta import ListedFile, OpenTable
from hyperbloom.export.tables.files import read_rows
from hyperbloom.export.tables.ranges import cut_by_seq, even_parts
from hyperbloom.export.tables.rewriting import Numbers, may_hold
from hyperbloom.export.tables.rows import LATEST
from hyperbloom.store.records import LogRecord

__all__ = ["Changes", "Following", "Values", "check_rows", "difference"]

_LAP_ROWS: Final = 200_000
"""Rows of a node compared at a time: each takes some 200 bytes of a worker's memory."""
_GONE_ROWS: Final = 100_000
"""Rows a task says to be gone; the same, and it reads all that its numbers lie among."""
_TASK_BYTES: Final = 128 * 1024 * 1024


class Following(Protocol):
    """One table that follows the snapshots."""

    def holds(self, node: str, feed: bytes, record: LogRecord) -> bool:
        """Whether this record of an arrival log is among its rows."""

    def rows_to_read(self, plans: Sequence[NodePlan]) -> int:
        """How many rows its tasks read, about."""

    def has_work(self, plans: Sequence[NodePlan]) -> bool:
        """Whether a task is needed."""

    def tasks(self, plans: Sequence[NodePlan], cores: int, target_bytes: int) -> list[Task]:
        """What is to be done."""

    def taken_out(self, plans: Sequence[NodePlan], answers: Answers) -> list[ListedFile]:
        """The files that the commit takes out."""


class _Table:
    """What both have in common."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._files = table.files()

    def has_work(self, plans: Sequence[NodePlan]) -> bool:
        """Whether a task is needed."""
        return any(
            plan.takes_out or plan.replaces or next(plan.ranges(), None) is not None
            for plan in plans
        )

    def _of(self, node: str) -> list[ListedFile]:
        return [file for file in self._files if file.partition["node"] == node]


class Values(_Table):
    """The table `values`."""

    def holds(self, node: str, feed: bytes, record: LogRecord) -> bool:
        """Whether this record of an arrival log is among its rows."""
        numbers = np.array([record.seq], np.int64)
        columns = ("feed", "seq", "received_at", "origin", "value")
        received_at = min(record.received_at, LATEST)
        wanted = (feed, record.seq, received_at, record.origin, record.value)
        try:
            return any(
                wanted in _plain_rows(batch, columns, record.seq)
                for file in self._of(node)
                if may_hold(numbers, file.least_seq, file.most_seq)
                for batch in read_rows(
                    self._table.place,
                    file.path,
                    columns,
                    is_wanted=lambda least, most: may_hold(numbers, least, most),
                )
            )
        except (FileNotFoundError, pa.ArrowInvalid):
            return False

    def rows_to_read(self, plans: Sequence[NodePlan]) -> int:
        """How many rows its tasks read, about."""
        new = sum(piece.rows for plan in plans for piece in plan.ranges())
        return new + sum(work.rows for work in self._rewritings(plans))

    def tasks(self, plans: Sequence[NodePlan], cores: int, target_bytes: int) -> list[Task]:
        """What is to be done."""
        ranges = [piece for plan in plans for piece in plan.ranges()]
        cut = cut_by_seq(ranges, cores=cores, target_bytes=target_bytes)
        tasks: list[Task] = [(write_value_ranges, each) for each in cut]
        works = list(self._rewritings(plans))
        count = max(cores, math.ceil(sum(work.size for work in works) / _TASK_BYTES))
        parts = even_parts(works, count, weight=lambda work: work.size)
        return [*tasks, *((rewrite_files, part) for part in parts)]

    def _rewritings(self, plans: Sequence[NodePlan]) -> Iterator[Rewriting]:
        columns = self._table.next_columns
        for plan in plans:
            if not plan.takes_out:
                continue
            gone = _gone_numbers(plan.feeds)
            compared = frozenset(each.source.key for each in plan.feeds if each.gone is None)
            for file in self._of(plan.node):
                in_file = _within(gone, file)
                if in_file or compared:
                    yield Rewriting(
                        node=plan.node,
                        path=file.path,
                        partition=file.partition,
                        columns=columns,
                        gone=in_file,
                        compared=compared,
                        snapshot=plan.snapshot.path,
                        rows=file.rows,
                        size=file.size,
                    )

    def taken_out(self, plans: Sequence[NodePlan], answers: Answers) -> list[ListedFile]:
        """The files that the commit takes out."""
        replaced = {plan.node for plan in plans if plan.replaces}
        return [
            file
            for file in self._files
            if file.partition["node"] in replaced or file.path in answers.rewritten
        ]


class Changes(_Table):
    """The table `changes`."""

    def holds(self, node: str, feed: bytes, record: LogRecord) -> bool:
        """Whether this record of an arrival log was added, and not forgotten."""
        choice = SeqsOfFeeds({feed: np.array([record.seq], np.int64)})
        balance = balance_of(self._table.place, self._files_for(node, choice), choice)
        return balance[key_of(feed, record.seq, record.value)] > 0

    def rows_to_read(self, plans: Sequence[NodePlan]) -> int:
        """How many rows its tasks read, about."""
        new = sum(piece.rows for plan in plans for piece in plan.ranges())
        old = sum(
            file.rows
            for plan in plans
            if plan.replaces or plan.takes_out
            for file in self._of(plan.node)
        )
        return new + old

    def tasks(self, plans: Sequence[NodePlan], cores: int, target_bytes: int) -> list[Task]:
        """What is to be done."""
        # A node of which nothing is there has nothing to be compared with.
        plain = [plan for plan in plans if not plan.replaces or not self._of(plan.node)]
        ranges = [piece for plan in plain for piece in plan.ranges()]
        cut = cut_by_seq(ranges, cores=cores, target_bytes=target_bytes)
        tasks: list[Task] = [(add_changes, each) for each in cut]
        works = [work for plan in plans if self._of(plan.node) for work in self._works(plan)]
        return [*tasks, *((find_changes, [work]) for work in works)]

    def _works(self, plan: NodePlan) -> Iterator[Changing]:
        if plan.replaces:
            feeds = [(each.source.key, each.source.top_seq) for each in plan.feeds]
            rows = sum(file.rows for file in self._of(plan.node))
            rows += sum(each.source.count for each in plan.feeds)
            yield from self._compared(plan, feeds, rows, last=None, whole=True)
            return
        for each in plan.feeds:
            if each.gone is None and each.known is not None:
                top_seq = each.known.top_seq
                feeds = [(each.source.key, top_seq)]
                yield from self._compared(
                    plan, feeds, each.known.rows * 2, last=top_seq, whole=False
                )
        yield from self._noted(plan)

    def _compared(
        self,
        plan: NodePlan,
        feeds: Sequence[tuple[bytes, int]],
        rows: int,
        *,
        last: int | None,
        whole: bool,
    ) -> Iterator[Changing]:
        """The rows of these feeds, or of the node's all, some numbers at a time up to ``last``."""
        laps = max(1, math.ceil(rows / _LAP_ROWS))
        top_seq = max((top for _, top in feeds), default=0)
        cuts: list[int | None] = [top_seq * n // laps for n in range(laps)]
        named = None if whole else frozenset(feed for feed, _ in feeds)
        for after, end in pairwise([*cuts, last]):
            choice = SeqsUpTo(after or 0, end, named)
            yield self._changing(plan, choice, tuple(feeds))

    def _noted(self, plan: NodePlan) -> Iterator[Changing]:
        for each in plan.feeds:
            notes = sorted(each.gone or ())
            for start in range(0, len(notes), _GONE_ROWS):
                some = dict(notes[start : start + _GONE_ROWS])
                numbers = np.fromiter(some, np.int64, len(some))
                choice = SeqsOfFeeds({each.source.key: numbers})
                yield self._changing(plan, choice, (), {each.source.key: some})

    def _changing(
        self,
        plan: NodePlan,
        choice: SeqsOfFeeds | SeqsUpTo,
        feeds: tuple[tuple[bytes, int], ...],
        forgotten_at: dict[bytes, dict[int, int]] | None = None,
    ) -> Changing:
        return Changing(
            node=plan.node,
            snapshot=plan.snapshot.path,
            taken_at=plan.snapshot.taken_at,
            files=self._files_for(plan.node, choice),
            choice=choice,
            feeds=feeds,
            forgotten_at=forgotten_at or {},
        )

    def _files_for(self, node: str, choice: SeqsOfFeeds | SeqsUpTo) -> tuple[ChangeFile, ...]:
        return tuple(
            ChangeFile(file.path, file.partition["kind"])
            for file in self._of(node)
            if choice.may_hold(file.least_seq, file.most_seq)
        )

    def taken_out(self, plans: Sequence[NodePlan], answers: Answers) -> list[ListedFile]:
        """None: it is never rewritten."""
        return []


def difference(plan: NodePlan, answers: Answers) -> dict[bytes, int]:
    """By how many rows a table would then have more than the snapshot counts, by feed."""
    found = {}
    for each in plan.feeds:
        key = plan.node, each.source.key
        rows = answers.rows[key]
        if not plan.replaces and each.known is not None and each.gone is not None:
            # Of the known part nothing was read but what is gone.
            rows += each.known.rows - answers.gone[key]
        if rows != each.source.count:
            found[each.source.key] = rows - each.source.count
    return found


def check_rows(plans: Sequence[NodePlan], answers: Answers) -> None:
    """Raise SnapshotUnusable unless what was written is what the snapshots count."""
    for plan in plans:
        for feed, more in difference(plan, answers).items():
            counted = next(each.source.count for each in plan.feeds if each.source.key == feed)
            raise SnapshotUnusable(
                f"the snapshot {plan.snapshot.path} has {counted + more} values of feed "
                f"{feed.hex()} where it counts {counted}; nothing was committed, use another "
                "snapshot"
            )


def _gone_numbers(feeds: Iterable[FeedPlan]) -> dict[bytes, Numbers]:
    return {
        each.source.key: np.unique(np.array([note.seq for note in each.gone], np.int64))
        for each in feeds
        if each.gone
    }


def _within(gone: dict[bytes, Numbers], file: ListedFile) -> dict[bytes, Numbers]:
    """The numbers that may be in the file."""
    found = {}
    for feed, numbers in gone.items():
        if may_hold(numbers, file.least_seq, file.most_seq):
            start = 0 if file.least_seq is None else np.searchsorted(numbers, file.least_seq)
            end = None
            if file.most_seq is not None:
                end = np.searchsorted(numbers, file.most_seq, "right")
            found[feed] = numbers[start:end]
    return found


def _plain_rows(
    batch: pa.RecordBatch, columns: Sequence[str], seq: int
) -> list[tuple[object, ...]]:
    """The rows with this number; times are in µs."""
    found = batch.filter(pc.equal(batch.column("seq"), seq))
    at = found.schema.get_field_index("received_at")
    times = found.column(at).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found = found.set_column(at, "received_at", times)
    return list(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

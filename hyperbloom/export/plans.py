"""What of a snapshot goes into a table that follows it: `values`, or `changes`.

For each feed of each node the table remembers in its own log up to which number it holds the feed
(tables/delta.py). A later snapshot that goes on from there brings the rows above, and takes out
what was forgotten since. It goes on if the last record that it has up to that number is the one in
the table: a store that was put back to an older state and went on differently has another one
there, or none of the records behind that state. What was forgotten is said by the store's notes
(hyperbloom/store/values/gone.py). Where these do not say all, the numbers of table and snapshot are
compared.

All else (the feed was dropped and joined anew, the store was put back, rows are missing) replaces
what the table has of the node, in one commit. A snapshot no newer than the last one brings nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Protocol

from hyperbloom.export.snapshots import (
    FeedSource,
    Snapshot,
    anchor_at,
    forgotten_after,
    last_record_of,
    note_anchor,
)
from hyperbloom.export.tables.delta import FeedMark, ListedFile, OpenTable
from hyperbloom.export.tables.files import FileFact
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.schema import FORGOTTEN
from hyperbloom.store.records import LogRecord
from hyperbloom.store.values.gone import Note

__all__ = ["FeedPlan", "Mode", "NodePlan", "TableRows", "numbers_of", "plan_of", "rows_in"]

Mode = Literal["incremental", "full"]

_LIFE: int = (1 << 32) - 1
"""The bits of a generation that say which of a feed's lives it is (feed_generation)."""


class TableRows(Protocol):
    """Looks into the rows that a table holds."""

    def holds(self, node: str, feed: bytes, record: LogRecord) -> bool:
        """Whether this record of the arrival log is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPlan:
    """What of a feed is known, and what the table is to know of it then.

    ``gone`` are notes of what was forgotten of the known part; None where it has to be compared.
    """

    source: FeedSource
    known: FeedMark | None
    mark: FeedMark
    gone: Sequence[Note] | None = ()

    @property
    def after_seq(self) -> int:
        return self.known.top_seq if self.known else 0

    @property
    def new_rows(self) -> int:
        """How many rows are above the known part; at most so many where that is to be compared."""
        if self.known is None:
            return self.source.count
        if self.gone is None:
            return min(self.source.count, self.source.top_seq - self.known.top_seq)
        return max(0, self.source.count - self.known.rows + len(self.gone))


@dataclass(slots=True)
class NodePlan:
    """What of one snapshot goes into a table: each feed's part, or all in place of what is."""

    snapshot: Snapshot
    replaces: bool
    feeds: list[FeedPlan] = field(default_factory=list)

    @property
    def node(self) -> str:
        return self.snapshot.node

    @property
    def is_anew(self) -> bool:
        """Whether all of the snapshot is read for it."""
        return self.replaces or all(plan.known is None for plan in self.feeds)

    def anew(self) -> NodePlan:
        """The same in place of what is there."""
        return NodePlan(self.snapshot, replaces=True, feeds=self.feeds)

    @property
    def takes_out(self) -> bool:
        """Whether rows of known parts may have to go, the node's others staying."""
        return not self.replaces and any(plan.gone is None or plan.gone for plan in self.feeds)

    def ranges(self) -> Iterator[SeqRange]:
        """The rows to be read from the snapshot."""
        for plan in self.feeds:
            source = plan.source
            after, rows = (0, source.count) if self.replaces else (plan.after_seq, plan.new_rows)
            if source.top_seq > after:
                yield SeqRange(
                    path=self.snapshot.path,
                    node=self.node,
                    feed=source.key,
                    after_seq=after,
                    last_seq=source.top_seq,
                    rows=rows,
                    size=math.ceil(source.size * rows / max(1, source.count)),
                )


def plan_of(snapshot: Snapshot, table: OpenTable, mode: Mode, rows: TableRows) -> NodePlan | None:
    """What a snapshot brings to the table; None if it is no newer than what is there."""
    last_taken = table.taken_at(snapshot.node)
    if mode != "full" and last_taken is not None and snapshot.taken_at <= last_taken:
        return None
    plan = NodePlan(snapshot, replaces=mode == "full" or not _is_whole(table, snapshot.node))
    for feed in snapshot.feeds:
        known = table.mark(snapshot.node, feed.key)
        gone: Sequence[Note] | None = ()
        if known is not None and not plan.replaces:
            gone = _gone_since(snapshot, feed, known)
            plan.replaces = not _goes_on(snapshot, feed, known, rows)
        mark = _mark_of(snapshot, feed)
        plan.feeds.append(FeedPlan(source=feed, known=known, mark=mark, gone=gone))
    return plan


def _is_whole(table: OpenTable, node: str) -> bool:
    """Whether the node's files have as many rows as they were left with; so if that is unknown."""
    known = table.rows_of(node)
    return known is None or known == rows_in(table.files(), node)


def rows_in(files: Iterable[ListedFile | FileFact], node: str) -> int:
    """How many rows of the node there are, less those that say that one is forgotten."""
    return sum(
        -file.rows if file.partition.get("kind") == FORGOTTEN else file.rows
        for file in files
        if file.partition["node"] == node
    )


def _goes_on(snapshot: Snapshot, feed: FeedSource, known: FeedMark, rows: TableRows) -> bool:
    """Whether the known part of the feed is what the table has of it, or less."""
    if feed.generation & _LIFE != known.generation & _LIFE or feed.top_seq < known.top_seq:
        return False
    if anchor_at(snapshot.path, feed.key, known.top_seq) == known.anchor:
        return True
    last = last_record_of(snapshot.path, feed.key, known.top_seq)
    return last is None or rows.holds(snapshot.node, feed.key, last)


def _gone_since(snapshot: Snapshot, feed: FeedSource, known: FeedMark) -> Sequence[Note] | None:
    """Notes of what is gone of the known part; None if that has to be compared."""
    if _checked(snapshot, feed, known).note_anchor != known.note_anchor:
        return None
    _, notes = forgotten_after(snapshot.path, feed.key, known.forgotten)
    return None if notes is None else [note for note in notes if note.seq <= known.top_seq]


def _checked(snapshot: Snapshot, feed: FeedSource, mark: FeedMark) -> FeedMark:
    """A mark with the anchor of the note that it names, which stands for all that it says."""
    numbers = (mark.top_seq, mark.rows, mark.generation, mark.anchor, mark.forgotten)
    anchor = note_anchor(snapshot.path, feed.key, mark.forgotten, numbers)
    return replace(mark, note_anchor=anchor)


def _mark_of(snapshot: Snapshot, feed: FeedSource) -> FeedMark:
    last, _ = forgotten_after(snapshot.path, feed.key, (1 << 63) - 1)
    mark = FeedMark(
        top_seq=feed.top_seq,
        rows=feed.count,
        generation=feed.generation,
        anchor=anchor_at(snapshot.path, feed.key, feed.top_seq),
        forgotten=last,
    )
    return _checked(snapshot, feed, mark)


def numbers_of(plans: Sequence[NodePlan], files: Sequence[ListedFile | FileFact]) -> dict[str, int]:
    """What the table's log is to remember of these plans, by name, with ``files`` then in it."""
    numbers = {}
    for plan in plans:
        node = plan.node
        numbers[f"{node}.taken_at"] = plan.snapshot.taken_at
        numbers[f"{node}.rows"] = rows_in(files, node)
        numbers[f"{node}.rows_at"] = plan.snapshot.taken_at
        for feed in plan.feeds:
            for part, number in asdict(feed.mark).items():
                numbers[f"{node}.{feed.source.key.hex()}.{part}"] = number
    return numbers

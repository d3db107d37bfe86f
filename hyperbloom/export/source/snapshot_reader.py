"""Questions to a snapshot without exporting it.

What is read is narrowed by options, each exact:

    path        the snapshot's folder
    feed        one feed, its key in hex
    after_seq   only higher arrival numbers
    up_to_seq   only arrival numbers up to this one
    prefix      only values that begin with these bytes, in hex
    parts       the most tasks a feed is cut into (8)
    pushdown    `true`: `where` narrows it, too, for a frame that one query uses once

Numbers go along the arrival log, values along the index; with both, Spark looks at the numbers.
With `pushdown`, so do bounds on `feed`, `seq` and `value`, and a filter is claimed only where the
range is exactly what it asks for; Spark looks at all others itself, row by row.

`pushdown` is off unless asked for, because Spark (4.1 to 4.3) keeps one plan for each load(): of
two filters on the same frame, in a join, a union or one query after another, both may get the rows
of one, or the second those of the first, and nothing says so. Load once for each query then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from hyperbloom.export.errors import ExportError
from hyperbloom.export.snapshots import FeedSource, Snapshot, open_snapshot
from hyperbloom.export.tables.ranges import SeqRange, ValueRange, cut_by_seq, cut_by_value
from hyperbloom.export.tables.rows import read_log_rows, read_value_rows, whole_rows
from hyperbloom.export.tables.schema import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Narrowing", "SnapshotReader"]

_DEFAULT_PARTS: Final = 8
_LAST_SEQ: Final = (1 << 63) - 1
_SCHEMA: Final = TABLES["values"].schema


@dataclass(slots=True)
class Narrowing:
    """What filters leave of a snapshot: feeds, numbers ``after`` < seq <= ``last``, and values.

    Values are ``start`` <= value < ``end``, or no end. With ``by_value`` the values are ranged
    over, and numbers are looked at row by row.
    """

    feeds: frozenset[bytes] | None = None
    after: int = 0
    last: int = _LAST_SEQ
    start: bytes = b""
    end: bytes | None = None
    by_value: bool = False

    def take_feeds(self, feeds: Iterable[bytes]) -> None:
        """Only these."""
        found = frozenset(map(bytes, feeds))
        self.feeds = found if self.feeds is None else self.feeds & found

    def take_values(self, start: bytes, end: bytes | None) -> None:
        """Only those in this range, too."""
        self.by_value = True
        self.start = max(self.start, start)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)


@dataclass(frozen=True, slots=True)
class _Part(InputPartition):
    """One task of a read."""

    ranges: tuple[SeqRange | ValueRange, ...]


class SnapshotReader(DataSourceReader):
    """Reads one snapshot: narrowed by options and filters, cut into ranges, in Arrow batches.

    ExportError for an option that cannot be understood.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        path = options.get("path")
        if not path:
            raise ExportError('name the snapshot: .option("path", FOLDER)')
        self.path = Path(path.removeprefix("file://")).absolute()
        self._pushdown = options.get("pushdown", "false").lower() == "true"
        self._narrowing = Narrowing()
        try:
            self._parts = int(options.get("parts", _DEFAULT_PARTS))
            self._narrow_by(options)
        except ValueError as error:
            raise ExportError(f"an option of the data source is wrong: {error}") from error

    def _narrow_by(self, options: MutableMapping[str, str]) -> None:
        narrowing = self._narrowing
        if "feed" in options:
            narrowing.take_feeds([bytes.fromhex(options["feed"])])
        if options.get("prefix"):
            prefix = bytes.fromhex(options["prefix"])
            narrowing.take_values(prefix, _behind_prefix(prefix))
        narrowing.after = max(0, int(options.get("after_seq", 0)))
        narrowing.last = int(options.get("up_to_seq", _LAST_SEQ))

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Called by Spark: takes the filters that a range answers exactly, yields the others."""
        if not self._pushdown:
            yield from filters
            return
        self._narrowing.by_value |= self._goes_by_value(filters)
        for item in filters:
            if not self._take(item):
                yield item

    def _goes_by_value(self, filters: Sequence[Filter]) -> bool:
        """Numbers before values, for the log is read faster; but one value before all."""
        columns = [_column(item) for item in filters if _bounds(item)]
        one_value = any(isinstance(item, EqualTo) and _column(item) == "value" for item in filters)
        return one_value or ("value" in columns and "seq" not in columns)

    def _take(self, item: Filter) -> bool:
        column, narrowing = _column(item), self._narrowing
        if isinstance(item, IsNotNull):
            return column in _SCHEMA.names
        if column == "feed" and isinstance(item, EqualTo | EqualNullSafe):
            narrowing.take_feeds([item.value])
            return True
        if column == "feed" and isinstance(item, In):
            narrowing.take_feeds(item.value)
            return True
        if column == "seq" and not narrowing.by_value:
            return self._take_seq(item)
        if column == "value" and narrowing.by_value:
            return self._take_value(item)
        return False

    def _take_seq(self, item: Filter) -> bool:
        narrowing = self._narrowing
        if isinstance(item, EqualTo | GreaterThanOrEqual):
            narrowing.after = max(narrowing.after, item.value - 1)
        if isinstance(item, EqualTo | LessThanOrEqual):
            narrowing.last = min(narrowing.last, item.value)
        if isinstance(item, GreaterThan):
            narrowing.after = max(narrowing.after, item.value)
        if isinstance(item, LessThan):
            narrowing.last = min(narrowing.last, item.value - 1)
        return _bounds(item)

    def _take_value(self, item: Filter) -> bool:
        if not _bounds(item):
            return False
        bound = bytes(item.value)  # type: ignore[attr-defined]
        # Directly behind a byte string comes the same one with a zero byte.
        behind = bound + b"\x00"
        if isinstance(item, EqualTo):
            self._narrowing.take_values(bound, behind)
        elif isinstance(item, GreaterThanOrEqual):
            self._narrowing.take_values(bound, None)
        elif isinstance(item, GreaterThan):
            self._narrowing.take_values(behind, None)
        elif isinstance(item, LessThan):
            self._narrowing.take_values(b"", bound)
        else:
            self._narrowing.take_values(b"", behind)
        return True

    def partitions(self) -> Sequence[InputPartition]:
        """Called by Spark: one part for each range; SnapshotUnusable if there is no snapshot."""
        snapshot = open_snapshot(self.path)
        narrowing = self._narrowing
        feeds = [
            feed
            for feed in snapshot.feeds
            if narrowing.feeds is None or feed.key in narrowing.feeds
        ]
        if narrowing.by_value:
            parts = [part for feed in feeds for part in self._value_parts(snapshot, feed)]
        else:
            ranges = [_seq_range(snapshot, feed, narrowing) for feed in feeds]
            cut = cut_by_seq(ranges, cores=self._parts)
            parts = [_Part(tuple(task)) for task in cut]
        # Spark makes one task of no parts, without a part to read; this one is empty.
        return parts or [_Part(())]

    def _value_parts(self, snapshot: Snapshot, feed: FeedSource) -> list[_Part]:
        narrowing = self._narrowing
        if narrowing.end is not None and narrowing.end <= narrowing.start:
            return []
        whole = ValueRange(
            path=self.path,
            node=snapshot.node,
            feed=feed.key,
            start=narrowing.start,
            end=narrowing.end,
        )
        cut = cut_by_value(whole, rows=feed.count, top_seq=feed.top_seq, parts=self._parts)
        return [_Part((piece,)) for piece in cut]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by Spark, in a worker."""
        if not isinstance(partition, _Part):
            return
        for piece in partition.ranges:
            if isinstance(piece, SeqRange):
                found = read_log_rows(piece.path, piece.feed, piece.after_seq, piece.last_seq)
            else:
                found = read_value_rows(piece.path, piece.feed, piece.start, piece.end)
            for rows in found:
                batch = whole_rows(rows, piece.node)
                if isinstance(piece, ValueRange):
                    batch = self._with_numbers(batch)
                yield batch

    def _with_numbers(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        narrowing = self._narrowing
        seq = pc.field("seq")
        if narrowing.after == 0 and narrowing.last == _LAST_SEQ:
            return batch
        return batch.filter((seq > narrowing.after) & (seq <= narrowing.last))


def _column(item: Filter) -> str | None:
    attribute = getattr(item, "attribute", None)
    return attribute[0] if attribute is not None and len(attribute) == 1 else None


def _bounds(item: Filter) -> bool:
    """Whether a filter is a bound that a range can be cut at."""
    return isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual)


def _behind_prefix(prefix: bytes) -> bytes | None:
    """The first byte string behind all that begin so; None if there is none."""
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes([shortened[-1] + 1]) if shortened else None


def _seq_range(snapshot: Snapshot, feed: FeedSource, narrowing: Narrowing) -> SeqRange:
    after, last = narrowing.after, min(narrowing.last, feed.top_seq)
    part = max(0, last - after) / max(1, feed.top_seq)
    return SeqRange(
        path=snapshot.path,
        node=snapshot.node,
        feed=feed.key,
        after_seq=after,
        last_seq=last,
        rows=int(feed.count * part),
        size=int(feed.size * part),
    )

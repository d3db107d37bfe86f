"""Appending the batches of a streaming query to a table, each of them once.

    rows.writeStream.foreachBatch(append_batch("live/values", query="live"))

Spark keeps in its checkpoint which batch a query is at, but foreachBatch tells it of a batch after
it was done: one that was under way at a crash comes again, and one that had been done comes again
if the crash was before the checkpoint. So each batch is one commit (tables/delta.py), and in it
stands the batch's number, under the query's name. A batch whose number is there is left out.

The rows go from the tasks into files; what comes back to the driver is what these are called.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.tasks import Answers
from hyperbloom.export.errors import ExportBusy, ExportConflict, ExportError, StreamBroken
from hyperbloom.export.places.place import Place
from hyperbloom.export.places.sharing import ShareWith
from hyperbloom.export.places.urls import Where, place_of
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.files import FileFact
from hyperbloom.export.tables.ranges import TARGET_FILE_BYTES
from hyperbloom.export.tables.schema import VALUES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchAppender", "append_batch"]

_QUERY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUERY_ID: Final = "sql.streaming.queryId"
"""Under this name Spark tells a batch of which checkpoint it is."""
_BUSY_SECONDS: Final = 600.0
"""A compaction of the same tables is waited for."""
_PAUSE_SECONDS: Final = 0.2
_COMMITS: Final = 5
"""Where there is no lock, others may commit first; so often a batch is committed behind them."""


def append_batch(
    path: Where,
    *,
    query: str,
    share_with: ShareWith = "owner",
    target_bytes: int = TARGET_FILE_BYTES,
) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` is to call to append to the table `path`, such as DIR/values, or a URL.

    The table is made if it is not there, with the columns of `values`, which the batches must have.
    ``query`` is the query's name in the table, letters and digits: the same for as long as its
    checkpoint lives, and no other query's. Raises ExportError here for a path or name that cannot
    be; at a batch ExportError and its kinds, with the table as it was.
    """
    place = place_of(path)
    if place.name != VALUES.name:
        raise ExportError(f"{path} is no table of values; name one, as DIR/{VALUES.name}")
    if "%" in str(place):
        raise ExportError(f"{place}: deltalake cannot have % in a folder's name; name another one")
    if _QUERY.fullmatch(query) is None:
        raise ExportError(f"{query!r} is no query's name: up to 64 letters, digits, - and _")
    return BatchAppender(place.parent, query, share_with, target_bytes)


@dataclass(frozen=True, slots=True)
class BatchAppender:
    """Appends the batches of one query to `values` in a folder of tables."""

    target: Place
    query: str
    share_with: ShareWith
    target_bytes: int

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark, maybe again for the same batch."""
        missing = [name for name in VALUES.schema.names if name not in frame.columns]
        if missing:
            raise ExportError(f"the batch has no column {missing[0]!r}; give it those of values")
        checkpoint = _checkpoint_of(frame)
        with self.target.shared(self.share_with), _held(self.target) as sign:
            self.target.settle((), self.share_with)
            facts: list[FileFact] | None = None
            for turn in range(_COMMITS):
                table = OpenTable.ensure(self.target, VALUES.name)
                if self._is_done(table, batch, checkpoint):
                    return
                if facts is None:
                    facts = self._write(table, frame, sign)
                try:
                    self._commit(table, facts, batch, checkpoint)
                except ExportConflict:
                    if turn == _COMMITS - 1:
                        raise
                else:
                    return

    def _is_done(self, table: OpenTable, batch: int, checkpoint: int | None) -> bool:
        """Whether the batch is in the table; raises where it cannot be told, or must not be."""
        if not table.is_streamed and table.files():
            raise ExportError(
                f"{table.place} holds rows of exports; name a folder for streaming queries alone, "
                "or rows would be there twice"
            )
        last = table.number(f"stream.{self.query}")
        known = table.number(f"stream.{self.query}.checkpoint")
        if last is None:
            return False
        if batch < last or (None not in (checkpoint, known) and checkpoint != known):
            raise StreamBroken(
                f"{table.place} has batches up to {last} of a query {self.query!r}, and batch "
                f"{batch} is not of its checkpoint, or of an older state of it; go on with that "
                "checkpoint, or name another folder or query"
            )
        return batch == last

    def _write(self, table: OpenTable, frame: DataFrame, sign: str) -> list[FileFact]:
        from hyperbloom.export.engines.spark import write_frame

        files = Files(
            place=table.place,
            name=f"part-{uuid.uuid4().hex[:8]}",
            target_bytes=self.target_bytes,
            share_with=self.share_with,
            cut_by=table.table.partition_by,
            sign=sign,
        )
        return Answers(write_frame(frame.select(*VALUES.schema.names), files)).facts

    def _commit(
        self, table: OpenTable, facts: list[FileFact], batch: int, checkpoint: int | None
    ) -> None:
        """Nothing for a batch without rows: it may come again, and is none then either."""
        if not facts:
            return
        numbers = {"stream": 1, f"stream.{self.query}": batch}
        if checkpoint is not None:
            numbers[f"stream.{self.query}.checkpoint"] = checkpoint
        told = {"mode": "stream", "snapshots": [], "query": self.query, "batch": batch}
        table.commit(facts, numbers=numbers, metadata=told)


@contextmanager
def _held(target: Place) -> Iterator[str]:
    """Hold the folder of tables; wait while a compaction or another query does. ExportBusy."""
    end = time.monotonic() + _BUSY_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                sign = stack.enter_context(target.held())
                break
            except ExportBusy:
                if time.monotonic() >= end:
                    raise
            time.sleep(_PAUSE_SECONDS)
        yield sign


def _checkpoint_of(frame: DataFrame) -> int | None:
    """63 bits of the id that Spark keeps in a checkpoint; None where it does not tell (Connect)."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    text = None if context is None else context.getLocalProperty(_QUERY_ID)
    return None if text is None else uuid.UUID(text).int >> 65

"""Reading files of a table back, a few rows at a time, and writing one anew without some of them.

What is held in memory does not grow with a file: rows come in batches of some megabytes, and what
is kept of all of them is a byte a row that says whether it stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.files import FileFact, PartWriter, read_rows

__all__ = [
    "Numbers",
    "Rewritten",
    "may_hold",
    "rewrite",
    "rows_of_feeds",
    "shaped",
]

Numbers = npt.NDArray[np.int64]
"""Arrival numbers of one feed, rising."""


def may_hold(numbers: Numbers, least: int | None, most: int | None) -> bool:
    """Whether one of the numbers is within these bounds; None is no bound."""
    start = 0 if least is None else int(np.searchsorted(numbers, least))
    end = len(numbers) if most is None else int(np.searchsorted(numbers, most, "right"))
    return start < end


def shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of ``schema``; those that they lack are null."""
    names = set(batch.schema.names)
    columns = [
        batch.column(column.name).cast(column.type)
        if column.name in names
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of_feeds(batch: pa.RecordBatch) -> Iterator[tuple[bytes, npt.NDArray[np.bool_]]]:
    """The feeds in a batch with a column `feed`, each with where its rows are."""
    feeds = batch.column("feed")
    for feed in pc.unique(feeds).to_pylist():
        yield feed, pc.equal(feeds, pa.scalar(feed, feeds.type)).to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What has come of a file: how many rows of each feed stay and how many are gone.

    ``facts`` are the files in its place, if any are gone.
    """

    facts: list[FileFact]
    stay: Counter[bytes]
    gone: Counter[bytes]


def rewrite(
    place: Place,
    path: str,
    writer: PartWriter,
    columns: pa.Schema,
    gone_among: Callable[[bytes, Numbers], Collection[int]],
) -> Rewritten:
    """Write a file's rows anew, in their order, without those that are gone.

    ``gone_among`` says of numbers of a feed, as they rise, which are gone. ``columns`` are those of
    the table. Nothing is written where no row is gone, or none stays. Raises as `read_rows` does.
    """
    done = Rewritten(facts=[], stay=Counter(), gone=Counter())
    stays = [_staying(batch, gone_among, done) for batch in read_rows(place, path, ["feed", "seq"])]
    if not done.gone.total() or not done.stay.total():
        return done
    kept = np.concatenate(stays)
    writer.table = replace(writer.table, schema=columns)
    schema = writer.table.file_schema
    at = 0
    for batch in read_rows(place, path, schema.names):
        mask = kept[at : at + batch.num_rows]
        at += batch.num_rows
        writer.add(shaped(batch.filter(pa.array(mask)), schema))
    return replace(done, facts=writer.close())


def _staying(
    batch: pa.RecordBatch,
    gone_among: Callable[[bytes, Numbers], Collection[int]],
    done: Rewritten,
) -> npt.NDArray[np.bool_]:
    """Whether each row stays; they are counted."""
    stays = np.ones(batch.num_rows, np.bool_)
    seqs = batch.column("seq").to_numpy().astype(np.int64)
    for feed, where in rows_of_feeds(batch):
        gone = np.asarray(gone_among(feed, np.unique(seqs[where])), np.int64)
        lost = where & np.isin(seqs, gone)
        done.gone[feed] += int(lost.sum())
        done.stay[feed] += int(where.sum()) - int(lost.sum())
        stays &= ~lost
    return stays

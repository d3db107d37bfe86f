"""Joining the files of `values`: a small node's days into months, and back.

Where a table is cut by day, a day of a node is a folder, and no compaction joins the files of two.
Where it is cut by month, those of a node's month are joined, and no more: a month that is over is
then not written again. Between the two a table goes by having all its files written anew.

The files of a month are read one after the other in the order of their days, some 8 MiB of rows at
a time, which are put in the order of their feeds and numbers, and written. That much is in memory,
and what waits in the files that are being written (files.py).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.tables.delta import Compaction, ListedFile, OpenTable
from hyperbloom.export.tables.files import FileFact, ValueWriter, read_batches
from hyperbloom.export.tables.rows import Rows
from hyperbloom.export.tables.schema import CUTS, Cut, Table

__all__ = ["join_months", "recut"]

_CHUNK_ROWS: Final = 65_536
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_ORDER: Final = [("feed", "ascending"), ("seq", "ascending")]


def join_months(table: OpenTable, target_bytes: int) -> Compaction:
    """Join small files of each node and month up to ``target_bytes``, by one commit.

    For a table that is cut by month. Raises ExportError and its kinds; the table is then as it was.
    """
    months = _months(table.files()).values()
    found = (group for month in months for group in _small(month, target_bytes))
    groups = [group for group in found if len(group) > 1]
    if not groups:
        return Compaction(removed=0, added=0)
    replaced = [file for group in groups for file in group]
    with table.new_files() as name:
        facts = _rewritten(table, table.table, groups, name, target_bytes)
        table.commit(facts, replaced=replaced, rearranges=True)
    return Compaction(removed=len(replaced), added=len(facts))


def recut(table: OpenTable, cut: Cut, target_bytes: int) -> Compaction:
    """Write all files of a table anew, so that it is cut by day or by month; one commit.

    Rows, columns, marks and settings stay. Raises as `join_months`.
    """
    wanted, months = table.table.cut_by(CUTS[cut]), _months(table.files()).values()
    with table.new_files() as name:
        removed, added = table.recut(
            wanted.partition_by, lambda: _rewritten(table, wanted, months, name, target_bytes)
        )
    return Compaction(removed=removed, added=added)


def _months(files: Iterable[ListedFile]) -> dict[tuple[str, int, int], list[ListedFile]]:
    """Files by the node and the month in which their rows begin, each month's by their days."""
    found = defaultdict(list)
    for file in sorted(files, key=lambda file: (*_days(file), file.path)):
        first, _ = _days(file)
        found[file.partition["node"], first.year, first.month].append(file)
    return found


def _days(file: ListedFile) -> tuple[dt.date, dt.date]:
    """The first and the last day; without a statistic, which no file of ours is, any."""
    return file.days or (dt.date.min, dt.date.max)


def _small(month: Sequence[ListedFile], target_bytes: int) -> Iterator[list[ListedFile]]:
    """Neighbouring files of one month that together are about as large as one should be.

    A file of several months, which somebody else has joined, stays as it is.
    """
    group: list[ListedFile] = []
    for file in month:
        first, last = _days(file)
        if file.size >= target_bytes or (first.year, first.month) != (last.year, last.month):
            continue
        if sum(each.size for each in group) + file.size > target_bytes:
            yield group
            group = []
        group.append(file)
    yield group


def _rewritten(
    table: OpenTable,
    wanted: Table,
    groups: Iterable[Sequence[ListedFile]],
    name: str,
    target_bytes: int,
) -> list[FileFact]:
    """New files with the rows of each group, cut as ``wanted`` is."""
    # Columns that only a later release knows stay, too.
    wanted = replace(wanted, schema=table.columns)
    facts: list[FileFact] = []
    for group in groups:
        writer = ValueWriter(wanted, table.place, name=name, target_bytes=target_bytes)
        try:
            for node, rows in _sorted_rows(group, table):
                writer.add(rows, node)
            facts += writer.close()
        except OSError as error:
            raise table.place.failed(error) from error
        finally:
            writer.abandon()
    before = sum(file.rows for group in groups for file in group)
    if sum(fact.rows for fact in facts) != before:
        raise TableUnusable(f"{table.place} has other rows than its log counts; it is as it was")
    return facts


def _sorted_rows(group: Sequence[ListedFile], table: OpenTable) -> Iterator[tuple[str, Rows]]:
    """All rows of one node, in pieces that are sorted by feed and number."""
    waiting: list[pa.RecordBatch] = []
    for file in group:
        for batch in read_batches(table.place, file.path):
            waiting.append(_completed(batch, table.columns, file))
            if sum(each.num_rows for each in waiting) >= _CHUNK_ROWS or (
                sum(each.nbytes for each in waiting) >= _CHUNK_BYTES
            ):
                yield file.partition["node"], _taken_sorted(waiting)
    if waiting:
        yield file.partition["node"], _taken_sorted(waiting)


def _completed(batch: pa.RecordBatch, columns: pa.Schema, file: ListedFile) -> pa.RecordBatch:
    """Rows of a file with all columns of the table, but for `node`."""
    fields = [field for field in columns if field.name != "node"]
    arrays = []
    for field in fields:
        if field.name in batch.schema.names:
            arrays.append(batch.column(field.name).cast(field.type))
        elif field.name in file.partition:
            date = dt.date.fromisoformat(file.partition[field.name])
            arrays.append(pa.repeat(pa.scalar(date, field.type), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _taken_sorted(batches: list[pa.RecordBatch]) -> Rows:
    """The rows of these batches; the list is empty then, or two copies would be held."""
    whole = pa.concat_batches(batches)
    batches.clear()
    batch = whole.take(pc.sort_indices(whole, _ORDER))
    del whole
    # Pieces of what was freed would add up.
    pa.default_memory_pool().release_unused()
    days = batch.column("date").cast(pa.int32()).to_numpy().astype(np.int64)
    return Rows(batch.drop_columns(["date"]), days)

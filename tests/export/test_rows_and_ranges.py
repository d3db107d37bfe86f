"""From a snapshot to Arrow: scanning, decoding, cutting into ranges, files. Without Spark."""

from __future__ import annotations

import datetime as dt
import json
import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_nodes import FEED, HOUR, MONDAY, NODE, ODD_VALUES, ORIGINS, OTHER_FEED, random_values

from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.files import PartWriter, ValueWriter
from hyperbloom.export.tables.ranges import SeqRange, ValueRange, cut_by_seq, cut_by_value
from hyperbloom.export.tables.rows import decode, read_log_rows, read_value_rows, whole_rows
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.store import DropFeed, NoSuchFeed, Store, StoreCorrupt
from hyperbloom.store.values.scan import (
    CHUNK_RECORDS,
    LogChunk,
    feed_generation,
    last_record,
    scan_log,
    scan_values,
)

VALUES = TABLES["values"]


def rows_of(chunks):
    """The rows as Python has them: (seq, µs, origin, value)."""
    return [
        (
            row["seq"],
            int(row["received_at"].timestamp() * 1_000_000),
            row["origin"],
            row["value"],
        )
        for rows in chunks
        for row in rows.batch.to_pylist()
    ]


@pytest.fixture
def snapshot(node):
    node.append(random_values(CHUNK_RECORDS + 500), at=MONDAY)
    node.append(ODD_VALUES, origin=ORIGINS[1], at=MONDAY + 25 * HOUR)
    node.append([b"of another feed"], feed=OTHER_FEED)
    return node.snapshot()


@pytest.fixture
def logged(snapshot):
    with closing(Store.open_readonly(snapshot)) as store:
        return store.log_slice(FEED, 0, limit=100_000, max_bytes=1 << 30).records


def as_rows(records):
    return [(r.seq, r.received_at, r.origin, r.value) for r in records]


def test_every_record_becomes_a_row_with_its_bytes(snapshot, logged):
    top = logged[-1].seq
    assert rows_of(read_log_rows(snapshot, FEED, 0, top)) == as_rows(logged)


def test_a_range_holds_what_is_above_its_start_up_to_its_end(snapshot, logged):
    for after, last in ((0, 1), (5, 9), (CHUNK_RECORDS - 1, CHUNK_RECORDS + 1), (7, 7), (9, 2)):
        wanted = [record for record in logged if after < record.seq <= last]
        assert rows_of(read_log_rows(snapshot, FEED, after, last)) == as_rows(wanted)


def test_a_range_beyond_the_log_ends_with_the_feed(snapshot, logged):
    behind = rows_of(read_log_rows(snapshot, FEED, logged[-3].seq, logged[-1].seq + 1000))
    assert behind == as_rows(logged[-2:])


def test_large_values_come_in_bounded_chunks(node):
    node.append([bytes([i]) * 260_000 for i in range(200)])
    snapshot = node.snapshot()
    with closing(Store.open_readonly(snapshot)) as store:
        sizes = [sum(map(len, chunk.data)) for chunk in scan_log(store, FEED, 0, 1000)]
    assert sum(sizes) == 200 * 260_040
    assert max(sizes) < 8 * 1024 * 1024 + 64 * 260_040


def test_a_mapping_is_left_for_a_new_one_and_nothing_is_lost(node, monkeypatch):
    monkeypatch.setattr("hyperbloom.export.tables.rows._LAP_BYTES", 300_000)
    values = random_values(30_000, longest=40)
    node.append(values)
    rows = rows_of(read_log_rows(node.snapshot(), FEED, 0, 1_000_000))
    assert [row[3] for row in rows] == values


def test_the_value_order_is_exact_and_nothing_outside_is_read(snapshot, logged):
    found = sorted(logged, key=lambda record: record.value)
    assert rows_of(read_value_rows(snapshot, FEED, b"", None)) == as_rows(found)
    for start, end in ((b"a", b"b"), (b"y" * 499, None), (b"\x80", b"\x90"), (b"b", b"a")):
        wanted = [r for r in found if r.value >= start and (end is None or r.value < end)]
        assert rows_of(read_value_rows(snapshot, FEED, start, end)) == as_rows(wanted)


def test_scans_name_a_feed_that_is_there(snapshot):
    with closing(Store.open_readonly(snapshot)) as store:
        for scan in (scan_log(store, b"0" * 32, 0, 9), scan_values(store, b"0" * 32, b"", None)):
            with pytest.raises(NoSuchFeed):
                next(scan)


def test_the_last_record_up_to_a_number(snapshot, logged):
    with closing(Store.open_readonly(snapshot)) as store:
        assert last_record(store, FEED, 0) is None
        assert last_record(store, FEED, 3) == logged[2]
        assert last_record(store, FEED, 1 << 60) == logged[-1]
        assert last_record(store, OTHER_FEED, (1 << 64) - 1).value == b"of another feed"


def test_a_feed_joined_anew_is_of_another_generation(node):
    node.append([b"1"])
    first = feed_generation(node.store, FEED)
    node.do(DropFeed(FEED))
    node.append([b"1"])
    assert feed_generation(node.store, FEED) != first


def test_a_malformed_record_is_a_sentence():
    with pytest.raises(StoreCorrupt, match="malformed"):
        decode(LogChunk([b"k" * 12], [b"short"]), FEED)


def test_days_are_utc_and_times_are_kept_to_the_microsecond(node):
    moments = [MONDAY - 1, MONDAY, MONDAY + 24 * HOUR - 1, 0, (1 << 64) - 1]
    for at in moments:
        node.append([b"at %d" % at], at=at)
    (rows,) = read_log_rows(node.snapshot(), FEED, 0, 99)
    batch = whole_rows(rows, NODE.hex())
    assert batch.schema.equals(VALUES.schema)
    monday = dt.date(2026, 11, 16)
    assert batch.column("date").to_pylist() == [
        monday - dt.timedelta(days=1),
        monday,
        monday,
        dt.date(1970, 1, 1),
        dt.date(9999, 12, 31),
    ]
    assert batch.column("received_at").cast(pa.int64()).to_pylist()[:4] == moments[:4]


def piece(last_seq, *, after_seq=0, rows=None, size=None, feed=FEED):
    rows = last_seq - after_seq if rows is None else rows
    return SeqRange(
        path=Path("s"),
        node="aa",
        feed=feed,
        after_seq=after_seq,
        last_seq=last_seq,
        rows=rows,
        size=rows * 100 if size is None else size,
    )


def covered(tasks):
    return {
        (part.feed, seq)
        for task in tasks
        for part in task
        for seq in range(part.after_seq + 1, part.last_seq + 1)
    }


def test_a_large_feed_is_cut_into_even_ranges_without_a_gap():
    tasks = cut_by_seq([piece(1_000_000)], cores=4)
    assert len(tasks) == 4
    ends = [(part.after_seq, part.last_seq) for task in tasks for part in task]
    assert ends[0][0] == 0
    assert ends[-1][1] == 1_000_000
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    lengths = [last - after for after, last in ends]
    assert max(lengths) - min(lengths) < 10


def test_few_rows_make_one_task_and_small_feeds_share_it():
    feeds = [piece(10, feed=bytes([n]) * 32) for n in range(50)]
    (task,) = cut_by_seq(feeds, cores=8)
    assert task == feeds


def test_small_and_large_feeds_together_are_covered_once():
    feeds = [piece(7, feed=b"1" * 32), piece(900, feed=b"2" * 32), piece(5, feed=b"3" * 32)]
    tasks = cut_by_seq(feeds, cores=4, target_bytes=2_000)
    assert len(tasks) > 5
    parts = [part for task in tasks for part in task]
    assert covered(tasks) == covered([feeds])
    assert sum(part.last_seq - part.after_seq for part in parts) == 912
    assert sum(part.rows for part in parts) == 912


@pytest.mark.parametrize(("cores", "count"), [(1, 11), (2, 12), (4, 12), (8, 16), (16, 16)])
def test_no_task_writes_more_than_four_files_and_every_core_has_one_in_each_round(cores, count):
    tasks = cut_by_seq([piece(1000, size=40_000_000)], cores=cores, target_bytes=1_000_000)
    assert len(tasks) == count


def test_nothing_new_is_no_task():
    assert cut_by_seq([piece(5, after_seq=5), piece(0)], cores=2) == []


def test_ranges_of_values_hold_about_as_many_each(node, monkeypatch):
    monkeypatch.setattr("hyperbloom.export.tables.ranges._ROWS_WORTH_A_TASK", 100)
    # Half of all values share a prefix, which interpolated cuts would give to one task.
    values = [b"prefix/" + v for v in random_values(2_000, seed=3)] + random_values(2_000, seed=4)
    node.append(values)
    snapshot = node.snapshot()
    whole = ValueRange(path=snapshot, node=NODE.hex(), feed=FEED, start=b"", end=None)
    parts = cut_by_value(whole, rows=4_000, top_seq=4_000, parts=8)
    counts = [len(rows_of(read_value_rows(snapshot, FEED, p.start, p.end))) for p in parts]
    assert len(parts) == 8
    assert sum(counts) == 4_000
    assert max(counts) < 1.2 * 4_000 / 8
    assert cut_by_value(whole, rows=50, top_seq=50, parts=8) == [whole]


def write(folder, snapshot, **settings):
    writer = ValueWriter(VALUES, Folder(folder), name="part", target_bytes=1 << 30)
    for rows in read_log_rows(snapshot, FEED, 0, 1_000_000):
        writer.add(rows, NODE.hex())
    return writer.close()


def test_files_hold_the_rows_of_their_day(tmp_path, snapshot, logged):
    facts = write(tmp_path, snapshot)
    assert sum(fact.rows for fact in facts) == len(logged)
    assert [fact.partition["date"] for fact in facts] == ["2026-11-16", "2026-11-17"]
    assert sorted(fact.path for fact in facts) == sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")
    )
    found = []
    for fact in facts:
        path = tmp_path / fact.path
        assert fact.path.startswith(f"node={NODE.hex()}/date={fact.partition['date']}/part-")
        assert fact.size == path.stat().st_size
        table = pq.ParquetFile(path).read()
        assert table.schema.equals(VALUES.file_schema)
        assert table.num_rows == fact.rows
        stats = json.loads(fact.stats)
        assert stats["numRecords"] == fact.rows
        assert stats["minValues"]["seq"] == min(table.column("seq").to_pylist())
        assert stats["maxValues"]["size"] == max(table.column("size").to_pylist())
        found += table.column("value").to_pylist()
    assert found == [record.value for record in logged]


def test_rows_of_many_days_in_any_order_find_their_files(tmp_path, node):
    days = [(7 * n) % 40 for n in range(200)]
    for n, day in enumerate(days):
        node.append([b"%d" % n], at=MONDAY + day * 24 * HOUR)
    facts = write(tmp_path, node.snapshot())
    found = {}
    for fact in facts:
        for value in pq.ParquetFile(tmp_path / fact.path).read().column("value").to_pylist():
            assert value not in found
            found[value] = fact.partition["date"]
    start = dt.date(2026, 11, 16)
    assert found == {
        b"%d" % n: (start + dt.timedelta(days=day)).isoformat() for n, day in enumerate(days)
    }


def test_a_file_ends_near_its_size(tmp_path, node, monkeypatch):
    monkeypatch.setattr("hyperbloom.export.tables.files._GROUP_ROWS", 1_000)
    node.append([os.urandom(100) for _ in range(20_000)])
    writer = ValueWriter(VALUES, Folder(tmp_path), name="part", target_bytes=500_000)
    for rows in read_log_rows(node.snapshot(), FEED, 0, 1_000_000):
        for at in range(0, rows.batch.num_rows, 1_000):
            part = type(rows)(rows.batch.slice(at, 1_000), rows.days[at : at + 1_000])
            writer.add(part, NODE.hex())
    facts = writer.close()
    assert len(facts) > 3
    assert max(fact.size for fact in facts) < 900_000
    assert sum(fact.rows for fact in facts) == 20_000


def test_a_file_is_never_written_over(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "hyperbloom.export.tables.files.uuid.uuid4", lambda: type("U", (), {"hex": "0" * 32})
    )
    spec = TABLES["provenance"]
    for _ in range(2):
        writer = PartWriter(table=spec, place=Folder(tmp_path), partition={}, name="part")
        batch = pa.RecordBatch.from_pylist(
            [{n: b"" if n == "origin" else 1 for n in spec.schema.names}], schema=spec.schema
        )
        try:
            writer.add(batch)
            writer.close()
        except FileExistsError:
            return
    pytest.fail("the second file took the first one's name")

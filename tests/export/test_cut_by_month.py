"""`values` cut by month: exports go on in the cut that a table has."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, NODE, OTHER_FEED, SourceNode, random_values
from pyarrow import dataset

from hyperbloom.export import Engines, current_files, export_snapshots, read
from hyperbloom.export.errors import ExportConflict, ExportError
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import Compaction, OpenTable
from hyperbloom.export.tables.files import PartWriter
from hyperbloom.export.tables.joining import recut
from hyperbloom.export.tables.schema import CUTS, TABLES
from hyperbloom.export.upkeep import compact_tables, vacuum_tables

LOCAL = Engines(wanted="local", processes=1)
DAY = 24 * HOUR
START = dt.date(2026, 11, 16)
MONTHLY = {**TABLES, "values": TABLES["values"].cut_by(CUTS["month"])}
REPORTS = ("values", "coverage", "provenance")


def rows(target, name="values"):
    found = DeltaTable(str(target / name)).to_pyarrow_dataset().to_table()
    return sorted(found.to_pylist(), key=repr)


def fill_days(node, days, *, seed=1, count=4):
    """Some values of two feeds on each of these days after Monday, 2026-11-16."""
    for day in days:
        values = random_values(count, seed=seed * 1_000 + day)
        node.append(values[1:], at=MONDAY + day * DAY)
        node.append(values[:1], feed=OTHER_FEED, at=MONDAY + day * DAY + HOUR)
    node.now = max(node.now, MONDAY + max(days) * DAY)


def test_exports_go_on_in_the_cut_of_the_table(node, tmp_path, engines):
    by_day, by_month = tmp_path / "by_day", tmp_path / "by_month"
    OpenTable.ensure(Folder(by_month), "values", tables=MONTHLY)
    fill_days(node, range(13, 16))
    for name, mode in [("one", "incremental"), ("two", "full")]:
        fill_days(node, range(16, 18), seed=len(name))
        snapshot = node.snapshot(name)
        for target in (by_day, by_month):
            export_snapshots([snapshot], target, engines=engines, mode=mode, tables=REPORTS)
        table = OpenTable.find(Folder(by_month), "values")
        assert (table.table.cut, table.table.partition_by) == ("month", ("node",))
        for file in table.files():
            first, last = file.days
            assert (first.year, first.month) == (last.year, last.month)
        for report in REPORTS:
            assert rows(by_month, report) == rows(by_day, report)
    assert len(OpenTable.find(Folder(by_day), "values").files()) >= 5
    assert len(table.files()) <= 4


@pytest.mark.parametrize("cut", CUTS)
def test_the_files_say_which_days_they_hold(node, tmp_path, engines, cut):
    tables = {**TABLES, "values": TABLES["values"].cut_by(CUTS[cut])}
    OpenTable.ensure(Folder(tmp_path), "values", tables=tables)
    fill_days(node, [13, 14, 15])
    export_snapshots([node.snapshot()], tmp_path, engines=engines)
    days = [dt.date(2026, 11, 29), dt.date(2026, 11, 30), dt.date(2026, 12, 1)]
    found = sorted(file.days for file in OpenTable.find(Folder(tmp_path), "values").files())
    if cut == "day":
        assert found == [(day, day) for day in days]
    else:
        assert found == [(days[0], days[1]), (days[2], days[2])]
    found = DeltaTable(str(tmp_path / "values")).to_pyarrow_dataset()
    december = found.to_table(filter=dataset.field("date") == days[2])
    assert december.num_rows == 4
    assert {FEED, OTHER_FEED} == set(december.column("feed").to_pylist())


DAYS = range(0, 100, 2)
"""From 2026-11-16 to 2027-02-22: 50 days in four months."""


def fill(node):
    fill_days(node, DAYS)
    return node.snapshot()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Tables of a small node, with a file for each day and feed."""
    folder = tmp_path_factory.mktemp("by_day")
    source = SourceNode(folder)
    export_snapshots([fill(source)], folder / "tables", engines=LOCAL, tables=REPORTS)
    source.close()
    return folder / "tables"


@pytest.fixture
def exported(template, tmp_path):
    shutil.copytree(template, tmp_path / "tables")
    return tmp_path / "tables"


def log(target, version, name="values"):
    text = (target / name / "_delta_log" / f"{version:020}.json").read_text()
    return [next(iter(json.loads(line).items())) for line in text.splitlines()]


def described(target):
    """All that the log says of the table, but its files and how it is cut."""
    table = DeltaTable(str(target / "values"))
    found = table.metadata()
    marks = [
        table.transaction_version(f"hyperbloom.{NODE.hex()}.{name}")
        for name in ("taken_at", f"{FEED.hex()}.top_seq", f"{OTHER_FEED.hex()}.anchor")
    ]
    assert None not in marks
    return (
        (found.id, found.name, found.description, found.configuration, found.created_time),
        (table.schema().to_json(), table.protocol(), marks),
    )


def test_days_become_files_of_months_and_days_again(exported, node):
    before, about = rows(exported), described(exported)
    table = OpenTable.find(Folder(exported), "values")
    version, was = table.version, table.files()
    assert {file.days[0] for file in was} == {START + dt.timedelta(n) for n in DAYS}
    done = dict(compact_tables(exported, by="month"))["values"]
    assert (done.removed, done.added) == (len(was), 4)
    assert (rows(exported), described(exported)) == (before, about)
    table = OpenTable.find(Folder(exported), "values")
    assert (table.version, table.table.cut) == (version + 1, "month")
    for file in table.files():
        assert file.path.startswith(f"node={NODE.hex()}/part-")
        found = pq.ParquetFile(table.place.location(file.path)).read()
        assert found.schema.equals(table.table.file_schema)
        order = [(row["feed"], row["seq"]) for row in found.to_pylist()]
        assert order == sorted(order)
        assert found.num_rows == file.rows
        months = {(date.year, date.month) for date in found.column("date").to_pylist()}
        assert months == {(file.days[0].year, file.days[0].month)}
    # Nothing was added or taken away, to who follows the table.
    changes = dict(log(exported, version + 1))
    assert set(changes) == {"commitInfo", "metaData", "remove", "add"}
    assert not changes["add"]["dataChange"]
    assert not changes["remove"]["dataChange"]
    # The old version is there until it is vacuumed.
    old = DeltaTable(str(exported / "values"), version=version)
    assert old.metadata().partition_columns == ["node", "date"]
    assert old.to_pyarrow_dataset().count_rows() == len(before)
    done = dict(compact_tables(exported, by="day"))["values"]
    assert (done.removed, done.added) == (4, len(DAYS))
    assert (rows(exported), described(exported)) == (before, about)
    assert OpenTable.find(Folder(exported), "values").table.cut == "day"


def test_exports_go_on_in_the_new_cut(exported, node, engines):
    before = rows(exported)
    compact_tables(exported, by="month")
    fill(node)
    fill_days(node, range(99, 102))
    report = export_snapshots([node.snapshot("next")], exported, engines=engines, tables=REPORTS)
    assert [(table.rows, table.files, table.replaced) for table in report.tables[:1]] == [
        (12, 1, 0)
    ]
    after = rows(exported)
    assert len(after) == len(before) + 12
    assert {row["node"] for row in after} == {NODE.hex()}
    # The last month has two files now, and one again.
    done = dict(compact_tables(exported))["values"]
    assert (done.removed, done.added) == (2, 1)
    assert dict(compact_tables(exported))["values"] == Compaction(removed=0, added=0)
    assert dict(compact_tables(exported, by="month"))["values"] == Compaction(removed=0, added=0)
    assert rows(exported) == after
    full = export_snapshots(
        [node.snapshot("full")], exported, engines=engines, mode="full", tables=REPORTS
    )
    assert full.tables[0].replaced == full.tables[0].rows == len(after)
    assert rows(exported) == after
    for report in ("coverage", "provenance"):
        assert len(rows(exported, report)) > 0
    assert OpenTable.find(Folder(exported), "values").table.cut == "month"


def test_readers_find_the_same(exported):
    folder = str(exported / "values")
    day = dt.date(2026, 12, 10)

    def asked():
        files = current_files(folder)
        one = duckdb.execute(
            "select * from read_parquet(?, hive_partitioning = true, union_by_name = true) "
            "where date >= ? order by feed, seq",
            [files, day],
        )
        names = [column[0] for column in one.description]
        by_duckdb = [dict(zip(names, row, strict=True)) for row in one.fetchall()]
        by_polars = polars.scan_delta(folder).filter(polars.col("date") >= day).collect()
        by_arrow = DeltaTable(folder).to_pyarrow_dataset()
        found = [
            [{name: row[name] for name in TABLES["values"].schema.names} for row in some]
            for some in (
                by_duckdb,
                by_polars.to_dicts(),
                by_arrow.to_table(filter=dataset.field("date") >= day).to_pylist(),
            )
        ]
        return [sorted(some, key=lambda row: (row["feed"], row["seq"])) for some in found]

    before = asked()
    assert all(some == before[0] and len(some) == 4 * 38 for some in before)
    compact_tables(exported, by="month")
    assert asked() == before


def test_spark_reads_the_same(spark, exported):
    def asked():
        frame = read(spark, exported / "values")
        assert frame.columns == TABLES["values"].schema.names
        return [
            sorted((tuple(row) for row in some.collect()), key=repr)
            for some in (frame, frame.where("date >= '2026-12-10'"))
        ]

    before = asked()
    assert [len(some) for some in before] == [4 * 50, 4 * 38]
    compact_tables(exported, by="month")
    assert asked() == before


def test_files_of_other_months_are_not_read(exported):
    compact_tables(exported, by="month")
    for file in OpenTable.find(Folder(exported), "values").files():
        if file.days[1] < dt.date(2027, 2, 1):
            (exported / "values" / file.path).unlink()
    found = DeltaTable(str(exported / "values")).to_pyarrow_dataset()
    assert found.to_table(filter=dataset.field("date") >= dt.date(2027, 2, 1)).num_rows == 4 * 11


def test_nodes_do_not_share_files(new_node, tmp_path):
    one, other = new_node(), new_node(b"\xbb" * 32)
    for source in (one, other):
        fill_days(source, [1, 2, 20], seed=source is one)
    export_snapshots([one.snapshot(), other.snapshot()], tmp_path / "t", engines=LOCAL)
    before = rows(tmp_path / "t")
    compact_tables(tmp_path / "t", by="month")
    files = OpenTable.find(Folder(tmp_path / "t"), "values").files()
    assert len(files) == 4
    assert rows(tmp_path / "t") == before
    done = dict(compact_tables(tmp_path / "t", target_bytes=1))["values"]
    assert done == Compaction(removed=0, added=0)


def test_columns_of_a_later_release_stay(exported):
    mark = pa.field("mark", pa.int64())
    later = TABLES["values"]
    later = replace(later, schema=pa.schema([*later.schema, mark]))
    table = OpenTable.ensure(Folder(exported), "values", tables={**TABLES, "values": later})
    place = {"node": NODE.hex(), "date": "2027-02-22"}
    row = {"feed": FEED, "value": b"v", "size": 1, "seq": 10**6, "received_at": MONDAY + 98 * DAY}
    with table.new_files() as name:
        writer = PartWriter(table=later, place=table.place, partition=place, name=name)
        row |= {"origin": FEED, "mark": 7}
        writer.add(pa.RecordBatch.from_pylist([row], schema=later.file_schema))
        table.commit(writer.close(), metadata={"snapshots": []})
    before = rows(exported)
    for by in ("month", "day"):
        compact_tables(exported, by=by)
        assert rows(exported) == before
    assert sorted({row["mark"] for row in before}, key=repr) == [7, None]


def test_large_months_are_joined_in_pieces(node, tmp_path, monkeypatch):
    monkeypatch.setattr("hyperbloom.export.tables.joining._CHUNK_ROWS", 100)
    monkeypatch.setattr("hyperbloom.export.tables.files._GROUP_ROWS", 100)
    target = tmp_path / "tables"
    fill_days(node, range(40), count=30)
    export_snapshots([node.snapshot()], target, engines=LOCAL)
    before = rows(target)
    compact_tables(target, by="month", target_bytes=10_000)
    files = OpenTable.find(Folder(target), "values").files()
    assert len(files) > 6
    assert rows(target) == before
    compact_tables(target, by="day")
    assert rows(target) == before


def test_a_commit_of_somebody_else_meanwhile_is_not_lost(exported, monkeypatch):
    table = OpenTable.find(Folder(exported), "values")
    other = OpenTable.find(Folder(exported), "values")
    before = rows(exported)
    other.commit([], numbers={"test": 1})
    with pytest.raises(ExportConflict, match="somebody else changed"):
        recut(table, "month", 1 << 20)
    assert rows(exported) == before
    assert DeltaTable(str(exported / "values")).version() == other.version
    assert not list((exported / "values" / f"node={NODE.hex()}").glob("part-*"))
    assert not list((exported / "values" / "_delta_log").glob(".*"))


def test_what_was_lost_on_disk_ends_it(exported):
    files = OpenTable.find(Folder(exported), "values").files()
    (exported / "values" / files[10].path).unlink()
    with pytest.raises(ExportError):
        compact_tables(exported, by="month")
    (exported / "values" / files[10].path).write_bytes(
        (exported / "values" / files[9].path).read_bytes()[:-9]
    )
    with pytest.raises(ExportError):
        compact_tables(exported, by="month")
    assert OpenTable.find(Folder(exported), "values").files() == files
    assert not list((exported / "values" / f"node={NODE.hex()}").glob("part-*"))


KILLED = """
import os, sys
from pathlib import Path
from hyperbloom.export.upkeep import compact_tables

def trace(name, arguments):
    is_file = name == "open" and str(arguments[0]).endswith(".parquet")
    if is_file or name in ("os.link", "os.remove"):
        print(name, flush=True)
        sys.stdin.readline()

sys.addaudithook(trace)
compact_tables(Path(sys.argv[1]), by="month")
"""


def test_killed_at_any_step_leaves_the_old_table_or_the_new_one(exported, tmp_path):
    """Real kills: when the second file is begun, before the link that is the commit, and after."""
    before = rows(exported)
    for step, cut in (("open", "day"), ("os.link", "day"), ("os.remove", "month")):
        target = tmp_path / step
        shutil.copytree(exported, target)
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(target)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            for number, line in enumerate(child.stdout):
                if number and line == f"{step}\n":
                    child.kill()
                    break
                print(file=child.stdin, flush=True)
        assert child.returncode == -signal.SIGKILL
        assert OpenTable.find(Folder(target), "values").table.cut == cut
        assert rows(target) == before
        assert list((target / "values").glob("node=*/part-*")), "it has written some"
        compact_tables(target, by="month")
        vacuum_tables(target, keep_hours=0)
        assert rows(target) == before
        assert len(OpenTable.find(Folder(target), "values").files()) == 4
        assert len(list((target / "values").rglob("*.parquet"))) == 4

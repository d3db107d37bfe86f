"""Tables whose columns are another release's: they are brought up to this one, or refused."""

from __future__ import annotations

import json
from dataclasses import replace

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from export_nodes import HOUR, MONDAY, NODE, random_values

from hyperbloom.export import Engines, current_files, export_snapshots, read
from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.files import PartWriter
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, table_statuses, vacuum_tables

LOCAL = Engines(wanted="local", processes=1)
PARTITION = {"node": "bb" * 32, "date": "2026-11-16"}
MARK = pa.field("mark", pa.int64(), metadata={"comment": "made up by a test"})


def release(name, *fields):
    """This release's tables, with other columns in one of them."""
    return {**TABLES, name: replace(TABLES[name], schema=pa.schema(fields))}


LATER = release("values", *TABLES["values"].schema, MARK)
"""A later release's: it has a column more."""


def without(name, column):
    return release(name, *(field for field in TABLES[name].schema if field.name != column))


def changed(name, column, /, **settings):
    def change(field):
        if field.name != column:
            return field
        return pa.field(
            settings.get("name", column),
            settings.get("type", field.type),
            nullable=settings.get("nullable", field.nullable),
            metadata=settings.get("metadata", field.metadata),
        )

    return release(name, *map(change, TABLES[name].schema))


def actions(target, name, version):
    text = (target / name / "_delta_log" / f"{version:020}.json").read_text()
    return [next(iter(json.loads(line).items())) for line in text.splitlines()]


def kinds(target, name, version):
    return {kind for kind, _ in actions(target, name, version)}


def write_marked(target, mark, *, replaced=()):
    """A row of another node, by the later release."""
    table = OpenTable.ensure(Folder(target), "values", tables=LATER)
    writer = PartWriter(table=LATER["values"], place=table.place, partition=PARTITION, name="later")
    row = {"feed": b"f", "value": b"v", "size": 1, "seq": mark, "received_at": MONDAY}
    row |= {"origin": b"o", "mark": mark}
    writer.add(pa.RecordBatch.from_pylist([row], schema=LATER["values"].file_schema))
    table.commit(
        writer.close(), replaced=replaced, numbers={"test.mark": mark}, metadata={"snapshots": []}
    )
    return table


def marks(target):
    """How often each mark is there."""
    found = DeltaTable(str(target / "values")).to_pyarrow_dataset().to_table()
    return sorted(found.column("mark").to_pylist(), key=repr)


@pytest.fixture
def exported(node, tmp_path):
    """Tables of this release, with 40 values."""
    node.append(random_values(40))
    target = tmp_path / "tables"
    export_snapshots([node.snapshot()], target, engines=LOCAL)
    return target


def test_a_column_comes_in_the_commit_of_its_rows(exported):
    before = OpenTable.find(Folder(exported), "values")
    table = write_marked(exported, 7)
    assert table.version == before.version + 1
    assert kinds(exported, "values", table.version) == {"commitInfo", "add", "metaData", "txn"}
    assert {file.path for file in before.files()} < {file.path for file in table.files()}
    assert table.columns.field("mark").equals(MARK, check_metadata=True)
    assert marks(exported) == [7] + [None] * 40
    write_marked(exported, 8)
    assert kinds(exported, "values", table.version + 1) == {"commitInfo", "add", "txn"}
    assert marks(exported) == [7, 8] + [None] * 40


def test_a_column_comes_with_the_replacement_of_nodes(exported):
    table = OpenTable.find(Folder(exported), "values")
    write_marked(exported, 7, replaced=table.files())
    assert kinds(exported, "values", table.version + 1) >= {"add", "remove", "metaData", "txn"}
    assert marks(exported) == [7]


def test_a_column_comes_before_a_replacement_of_single_files(node, exported):
    node.append(random_values(5, seed=2))
    export_snapshots([node.snapshot("second")], exported, engines=LOCAL)
    table = OpenTable.find(Folder(exported), "values")
    one, other = sorted(table.files(), key=lambda file: file.rows)
    write_marked(exported, 7, replaced=[one])
    assert kinds(exported, "values", table.version + 1) == {"commitInfo", "metaData"}
    assert kinds(exported, "values", table.version + 2) == {"commitInfo", "add", "remove", "txn"}
    assert marks(exported) == [7] + [None] * other.rows


def test_this_release_goes_on_with_a_later_ones_table(node, exported, engines):
    write_marked(exported, 7)
    columns = OpenTable.find(Folder(exported), "values").columns
    for mode in ("incremental", "full"):
        node.append(random_values(40, seed=len(mode)), at=MONDAY + HOUR)
        count = node.store.feeds()[0].count
        report = export_snapshots([node.snapshot(mode)], exported, engines=engines, mode=mode)
        assert report.tables[0].changed
        assert marks(exported) == [7] + [None] * count
        assert "metaData" not in kinds(exported, "values", report.tables[0].version)
    write_marked(exported, 8)
    compact_tables(exported)
    assert dict(vacuum_tables(exported, keep_hours=0))["values"]
    assert marks(exported) == [7, 8] + [None] * count
    assert OpenTable.find(Folder(exported), "values").columns.equals(columns, check_metadata=True)


def test_readers_read_old_and_new_rows(exported):
    write_marked(exported, 7)
    folder = str(exported / "values")
    query = "count(*), count(distinct value), sum(mark)"
    by_duckdb = duckdb.execute(
        f"select {query} from read_parquet(?, hive_partitioning = true, union_by_name = true)",
        [current_files(folder)],
    ).fetchone()
    assert by_duckdb == (41, 41, 7)
    by_polars = polars.read_delta(folder)
    assert (by_polars.height, by_polars["mark"].sum()) == (41, 7)
    assert by_polars.filter(polars.col("mark").is_null()).height == 40
    table = DeltaTable(folder).to_pyarrow_dataset().to_table()
    assert (table.num_rows, table.column("value").null_count) == (41, 0)


def test_spark_reads_old_and_new_rows(spark, exported):
    write_marked(exported, 7)
    frame = read(spark, exported / "values")
    assert frame.columns == [*TABLES["values"].schema.names, "mark"]
    found = [(row.mark, row.node) for row in frame.collect()]
    assert sorted(found, key=repr) == [(7, PARTITION["node"])] + [(None, NODE.hex())] * 40


def test_spark_reads_them_by_its_delta_package(spark, exported):
    write_marked(exported, 7)
    try:
        frame = spark.read.format("delta").load(str(exported / "values"))
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        pytest.skip("this Spark has no Delta package; Delta 4.4 has none for Spark 4.3")
    assert sorted((row.mark for row in frame.collect()), key=repr) == [7] + [None] * 40


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_an_export_adds_what_an_earlier_releases_table_lacks(node, tmp_path, mode):
    target = tmp_path / "tables"
    OpenTable.ensure(Folder(target), "feeds", tables=without("feeds", "alias"))
    OpenTable.ensure(Folder(target), "objects", tables=without("objects", "type"))
    node.append(random_values(3))
    report = export_snapshots([node.snapshot()], target, engines=LOCAL, mode=mode)
    for table in report.tables[2:]:
        assert table.version == 1
        assert "metaData" in kinds(target, table.table, 1)
        added = set(OpenTable.find(Folder(target), table.table).columns)
        assert added == set(TABLES[table.table].schema)
    feeds = DeltaTable(str(target / "feeds")).to_pyarrow_dataset().to_table().to_pylist()
    assert [(row["alias"], row["count"]) for row in feeds] == [("news", 3)]


def test_comments_come_with_the_next_commit(node, tmp_path):
    target = tmp_path / "tables"
    table = OpenTable.ensure(
        Folder(target), "feeds", tables=changed("feeds", "bytes", metadata={"a": "b"})
    )
    node.append(random_values(3))
    export_snapshots([node.snapshot()], target, engines=LOCAL)
    found = OpenTable.find(Folder(target), "feeds").columns
    assert found.field("bytes").metadata == {b"a": b"b", b"comment": b"bytes of its values"}
    assert found.names == table.columns.names
    shown = DeltaTable(str(target / "feeds")).schema().fields[4].metadata
    assert shown["comment"].startswith("equal for equal sets")


def test_a_column_may_become_one_that_may_be_null(node, tmp_path):
    target = tmp_path / "tables"
    OpenTable.ensure(Folder(target), "feeds", tables=changed("feeds", "alias", nullable=False))
    node.append(random_values(3))
    export_snapshots([node.snapshot()], target, engines=LOCAL)
    assert OpenTable.find(Folder(target), "feeds").columns.field("alias").nullable


@pytest.mark.parametrize(
    ("name", "tables", "why"),
    [
        ("values", changed("values", "size", type=pa.int64()), "`size` is int64, not int32"),
        ("values", changed("values", "size", type=pa.int16()), "`size` is int16, not int32"),
        ("values", without("values", "origin"), "`origin` is missing"),
        ("feeds", changed("feeds", "alias", name="nick"), "`alias` is missing"),
        ("feeds", changed("feeds", "bytes", name="octets"), "`bytes` is missing"),
        (
            "feeds",
            release("feeds", *TABLES["feeds"].schema, MARK.with_nullable(False)),
            "`mark` is not known and must not be null",
        ),
        (
            "feeds",
            {**TABLES, "feeds": replace(TABLES["feeds"], partition_by=())},
            "it is cut by none",
        ),
    ],
    ids=["wider", "narrower", "missing", "renamed", "renamed_key", "not_null", "cut"],
)
def test_other_columns_are_refused_and_nothing_is_written(node, tmp_path, name, tables, why):
    target = tmp_path / "tables"
    OpenTable.ensure(Folder(target), name, tables=tables)
    node.append(random_values(3))
    before = sorted((target / name).rglob("*"))
    for use in (
        lambda: export_snapshots([node.snapshot()], target, engines=LOCAL, tables=(name,)),
        lambda: table_statuses(target),
        lambda: current_files(target / name),
    ):
        with pytest.raises(TableUnusable, match="name another folder, or use the rel") as raised:
            use()
        assert why in str(raised.value)
    assert sorted((target / name).rglob("*")) == before

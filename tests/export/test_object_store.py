"""Tables in an object store: an S3 server on 127.0.0.1, for real, through the same code."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from export_nodes import DAY, FEED, MONDAY, NODE, ODD_VALUES, OTHER_FEED, random_values

from hyperbloom.cli.root import hyperbloom
from hyperbloom.export import Engines, current_files, export_snapshots, read
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.tasks import Answers, write_value_ranges
from hyperbloom.export.errors import (
    ExportConflict,
    ExportError,
    StoreUnreachable,
    TableUnusable,
)
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.places.lock import folder_lock
from hyperbloom.export.places.object_store import ObjectStore
from hyperbloom.export.places.store_errors import error_of_store
from hyperbloom.export.places.urls import place_of
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.files import PartWriter
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.reading import open_table, read_rows
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, table_statuses, vacuum_tables

#: One of each kind: by tasks, by the job itself, a report.
SOME = ("values", "feeds", "coverage")
LOCAL = Engines(wanted="local", processes=2)
ROWS = 2000 + len(ODD_VALUES)


@pytest.fixture
def nights(node):
    """Snapshots of two nights: two feeds, and days one after the other."""
    found = []
    for night in range(2):
        for number, feed in enumerate((FEED, OTHER_FEED)):
            values = random_values(500, seed=10 * night + number)
            node.append(values, feed=feed, at=MONDAY + night * DAY)
        node.append(ODD_VALUES if night else [], at=MONDAY + DAY)
        found.append(node.snapshot(f"night-{night}"))
    return found


@pytest.fixture
def objects(server, bucket):
    """The names in the bucket, asked for anew at each call."""
    client, name = server.client(), bucket.removeprefix("s3://")

    def find():
        return {found["Key"] for found in client.list_objects_v2(Bucket=name).get("Contents", ())}

    return find


def rows(table):
    """A table's rows, whichever way they come."""
    return sorted(map(repr, DeltaTable(str(table)).to_pyarrow_dataset().to_table().to_pylist()))


def named(target, table="values"):
    """The objects that a table's newest commit names."""
    return {
        url.removeprefix("s3://").partition("/")[2] for url in current_files(f"{target}/{table}")
    }


# URLs


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s3://b/x", "s3://b/x"),
        ("S3A://b/x/", "s3://b/x"),
        ("s3://b", "s3://b"),
        ("gs://b/x/y", "gs://b/x/y"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("az://c/x", "az://c/x"),
    ],
)
def test_a_url_is_an_object_store(text, found):
    place = place_of(text)
    assert isinstance(place, ObjectStore)
    assert (str(place), str(place / "values"), place.location("a")) == (
        found,
        f"{found}/values",
        f"{found}/a",
    )
    assert (place / "values").parent == place


def test_anything_else_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_of("tables") == place_of(Path("tables")) == Folder(tmp_path / "tables")
    assert place_of("./s3:/x") == Folder(tmp_path / "s3:" / "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "hdfs://host/x",
            r"no tables at hdfs://; name one of s3://, gs://, abfss:// .*or a folder",
        ),
        ("file:///x", "no tables at file://"),
        (Path("s3://b/x"), "is no URL; write s3://BUCKET/FOLDER"),
        ("gs:///x", "names no bucket"),
        ("s3://b/x?versionId=1", r"has \? in it"),
        ("s3://b//x", "has // in it"),
    ],
)
def test_other_urls_are_refused_before_anything_is_written(
    nights, tmp_path, monkeypatch, text, said
):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    for act in (export_snapshots, lambda _, where: table_statuses(where)):
        with pytest.raises(ExportError, match=said):
            act(nights[:1], text)
    for command in (["run", str(nights[0]), "--to"], ["status"], ["compact"], ["vacuum"]):
        done = CliRunner().invoke(hyperbloom, ["export", *command, str(text)])
        assert done.exit_code == 2
    assert set(tmp_path.rglob("*")) == before


# The same tables


def test_the_tables_are_those_of_a_folder(nights, engines, tmp_path, bucket, objects):
    for night in nights:
        for target in (tmp_path / "tables", f"{bucket}/tables"):
            export_snapshots([night], target, engines=engines, tables=SOME)
    for table in SOME:
        assert rows(f"{bucket}/tables/{table}") == rows(tmp_path / "tables" / table)
    data = {name for name in objects() if name.endswith(".parquet")}
    assert named(f"{bucket}/tables") <= data
    again = export_snapshots([nights[-1]], f"{bucket}/tables", engines=engines, tables=SOME)
    assert not any(table.changed for table in again.tables)


def test_spark_reads_them_without_a_jar(spark, nights, tmp_path, bucket):
    for target in (tmp_path, f"{bucket}/tables"):
        export_snapshots(nights[:1], target, engines=LOCAL, tables=SOME)
        export_snapshots(nights[1:], target, engines=LOCAL, tables=SOME)
    for table in ("values", "coverage"):
        ours, theirs = read(spark, f"{bucket}/tables/{table}"), read(spark, tmp_path / table)
        assert ours.columns == theirs.columns
        assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
    day = read(spark, f"{bucket}/tables/values").where("date = date'2026-11-17'")
    assert day.count() == ROWS - 1000


def test_a_column_that_a_file_lacks_is_null(nights, bucket):
    export_snapshots(nights[:1], f"{bucket}/tables", engines=LOCAL)
    table = open_table(f"{bucket}/tables/values")
    columns = table.columns.append(pa.field("later", pa.int64()))
    (batch,) = read_rows(table.place, table.files()[0], columns)
    found = batch.to_pylist()[0]
    assert (found["later"], found["node"], found["date"]) == (None, NODE.hex(), date(2026, 11, 16))


def test_status_compact_and_vacuum(nights, bucket, objects):
    target = f"{bucket}/tables"
    for night in nights:
        export_snapshots([night], target, engines=LOCAL, tables=("values", "feeds"))
    before = rows(f"{target}/feeds")
    status = {found.table: found for found in table_statuses(target)}
    assert (status["values"].rows, status["feeds"].files) == (ROWS, 2)
    assert (status["values"].cut, status["feeds"].cut) == ("day", None)
    joined = dict(compact_tables(target))
    assert (joined["feeds"].removed, joined["feeds"].added) == (2, 1)
    assert rows(f"{target}/feeds") == before
    assert len(dict(vacuum_tables(target, keep_hours=0))["feeds"]) == 2
    assert rows(f"{target}/feeds") == before
    data = {name for name in objects() if name.endswith(".parquet")}
    assert data == named(target) | named(target, "feeds")
    with pytest.raises(TableUnusable, match="no tables of an export in"):
        table_statuses(f"{bucket}/other")


def test_a_table_in_a_bucket_keeps_its_cut(nights, bucket, objects):
    target = f"{bucket}/tables"
    export_snapshots([nights[0]], target, engines=LOCAL, tables=("values",))
    before, there = rows(f"{target}/values"), objects()
    with pytest.raises(ExportError, match=r"is at an object store, where this cannot be done"):
        compact_tables(target, by="month")
    assert (rows(f"{target}/values"), objects()) == (before, there)
    assert table_statuses(target)[0].cut == "day"


# Two at once, and failures


class Meanwhile(Exception):
    pass


def test_of_two_exports_at_once_the_second_to_commit_refuses(nights, bucket, objects):
    target = f"{bucket}/tables"

    def progress(text, part):
        if text == "values: committing":
            export_snapshots(nights[1:], target, engines=LOCAL, tables=("values",))

    with pytest.raises(ExportConflict, match=r"somebody else changed s3://.*run it again"):
        export_snapshots(nights[:1], target, engines=LOCAL, tables=("values",), progress=progress)
    assert len(rows(f"{target}/values")) == ROWS
    # Its own files are gone; it could not know of a lock.
    assert {name for name in objects() if name.endswith(".parquet")} == named(target)
    again = export_snapshots(nights[1:], target, engines=LOCAL, tables=("values",))
    assert not again.tables[0].changed


def test_a_table_that_two_begin_at_once_is_made_once(bucket):
    at_once = threading.Barrier(2)

    def begin(number):
        at_once.wait(60)
        return OpenTable.ensure(place_of(f"{bucket}/{number}"), "values").version

    with ThreadPoolExecutor(2) as threads:
        for number in range(10):
            assert list(threads.map(begin, [number] * 2)) == [0, 0]
            assert DeltaTable(f"{bucket}/{number}/values").version() == 0


def test_two_commands_at_once(nights, bucket, objects):
    target = f"{bucket}/tables"
    command = [sys.executable, "-m", "hyperbloom.cli", "export", str(nights[1]), "--to", target]
    command += ["--tables", "values"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode in (0, 1)
        assert "Traceback" not in errors
        if process.returncode == 1:
            assert "somebody else" in errors
    assert sorted(process.returncode for process in both)[0] == 0
    export_snapshots(nights[1:], target, engines=LOCAL)
    assert len(rows(f"{target}/values")) == ROWS
    data = {name for name in objects() if name.startswith("tables/values/") and "part-" in name}
    assert data == named(target)


def test_an_export_that_ends_early_leaves_no_file(nights, bucket, objects):
    def progress(text, part):
        if text == "values: committing":
            raise Meanwhile

    with pytest.raises(Meanwhile):
        export_snapshots(nights[:1], f"{bucket}/tables", engines=LOCAL, progress=progress)
    assert not any(name.endswith(".parquet") for name in objects())


def test_a_file_that_is_not_finished_is_not_there(bucket, objects):
    """Neither one that is given up, with more than one part sent, nor one that nobody closes."""
    table, place = TABLES["values"], place_of(f"{bucket}/tables/values")
    row = {"feed": FEED, "size": 1, "seq": 1, "received_at": MONDAY, "origin": FEED}
    batch = pa.RecordBatch.from_pylist(
        [{**row, "value": value} for value in random_values(300, longest=100_000)],
        schema=table.file_schema,
    )

    def begin():
        writer = PartWriter(table=table, place=place, partition={"node": "aa"}, name="part")
        writer.add(batch)
        writer.flush()
        return writer

    given_up, forgotten, finished = begin(), begin(), begin()
    given_up.abandon()
    del given_up, forgotten
    gc.collect()
    assert objects() == set()
    (fact,) = finished.close()
    assert objects() == {f"tables/values/{fact.path}"}
    assert fact.size > 12_000_000


def test_a_worker_that_has_another_folder_before_it_writes_nothing(nights, tmp_path):
    piece = SeqRange(
        path=nights[0], node=NODE.hex(), feed=FEED, after_seq=0, last_seq=500, rows=500
    )
    for sign in ("1 another", "1"):
        files = Files(
            place=Folder(tmp_path / "tables" / "values"),
            name="part",
            target_bytes=1 << 20,
            share_with="owner",
            cut_by=("node", "date"),
            sign=sign,
        )
        with pytest.raises(
            TableUnusable, match=r"does not see the folder .*/tables, or sees another"
        ):
            Answers([write_value_ranges([piece], files, 0)])
        assert not (tmp_path / "tables" / "values").exists()
        with folder_lock(tmp_path / "tables"):
            pass


# What is wrong with a store


def refusal(arguments, **environment):
    """Exit code and message of the command, in a process of its own, which is a single line."""
    done = subprocess.run(
        [sys.executable, "-m", "hyperbloom.cli", "export", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (line,) = [line for line in done.stderr.splitlines() if "engine local" not in line]
    return done.returncode, line


def test_no_bucket_and_no_sharing(nights, bucket, objects):
    code, said = refusal([nights[0], "--to", "s3://no-such-bucket/tables"])
    assert (code, said) == (
        1,
        "hyperbloom: there is no bucket (or container) no-such-bucket; make it, "
        "or name another one than s3://no-such-bucket/tables",
    )
    code, said = refusal([nights[0], "--to", f"{bucket}/tables", "--share-with", "group"])
    assert code == 1
    assert "set at the object store" in said
    assert objects() == set()


def test_nothing_answers(nights, bucket):
    code, said = refusal([nights[0], "--to", bucket], AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert code == 4
    assert f"the object store of {bucket} does not answer (connection refused)" in said
    assert "AWS_ENDPOINT_URL (http://127.0.0.1:9)" in said


def test_no_credentials(nights, bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    code, said = refusal(["status", bucket])
    assert code == 1
    assert f"there are no credentials for {bucket}/values; set AWS_ACCESS_KEY_ID and" in said


def test_wrong_credentials_and_too_few_rights(nights, server, bucket):
    export_snapshots(nights[:1], bucket, engines=LOCAL)
    key = server.make_user("reader")
    server.check_access(True)
    try:
        code, said = refusal(["status", bucket])
        assert code == 1
        assert f"does not know the credentials for {bucket}" in said
        code, said = refusal([nights[1], "--to", bucket], **key)
        assert code == 1
        assert f"these credentials may not do this at {bucket}; let them list, read" in said
    finally:
        server.check_access(False)
    assert len(rows(f"{bucket}/values")) == 1000


#: What stores answer, as deltalake hands it on, and what becomes of it.
ANSWERS = [
    ("az://c/x", "409 Conflict <Code>ContainerNotFound</Code>", "no bucket (or container) c;"),
    ("gs://b/x", "The specified bucket does not exist.", "no bucket (or container) b;"),
    ("gs://b/x", "Error performing token request", "set GOOGLE_APPLICATION_CREDENTIALS"),
    ("az://c/x", "401 Unauthorized", "look at AZURE_STORAGE_ACCOUNT_NAME and"),
    ("abfss://c@a/x", "AuthenticationFailed", "look at AZURE_STORAGE_ACCOUNT_NAME and"),
    ("s3://b/x", "<Code>ExpiredToken</Code>", "does not know the credentials"),
    ("s3://b/x", "Received redirect without LOCATION", "b is in another region; set AWS_REGION"),
    ("s3://b/x", "URL scheme is not allowed", "set AWS_ALLOW_HTTP=true"),
    ("gs://b/x", "Server returned 403 Forbidden", "may not do this at gs://b/x"),
    ("s3://b/x", "\x1b[31m↳\x1b[0m 500 <Error>\n  <Code>Odd</Code>", "refused s3://b/x: 500 Odd"),
]


@pytest.mark.parametrize(("url", "text", "said"), ANSWERS)
def test_what_stores_answer_becomes_one_sentence(url, text, said):
    told = str(error_of_store(OSError(text), url))
    assert said in told
    assert "\n" not in told


@pytest.mark.parametrize("text", ["dns error", "operation timed out", "Connection reset by peer"])
def test_a_store_that_is_not_reached(text):
    error = error_of_store(OSError(text), "gs://b/x")
    assert isinstance(error, StoreUnreachable)
    assert "the object store of gs://b/x does not answer (" in str(error)

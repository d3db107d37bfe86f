"""Streaming queries in Spark: from nodes into a table, each row once whatever ends them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable
from export_nodes import FEED, NODE, OTHER_FEED, random_values
from nodes import real_nodes, wait_until
from pyspark.errors import StreamingQueryException

from hyperbloom.export import (
    Engines,
    ExportError,
    append_batch,
    current_files,
    export_snapshots,
    read,
    register,
)
from hyperbloom.export import append as append_module
from hyperbloom.export.errors import ExportBusy, StreamBroken
from hyperbloom.export.places.lock import folder_lock
from hyperbloom.export.places.urls import place_of
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, table_statuses

COLUMNS = TABLES["values"].schema.names


class Crash(Exception):
    """Ends a query as a crash would, in the middle of a batch."""


class Query:
    """A query with its checkpoint and its table, which may be started again and again."""

    def __init__(self, spark, folder, **options):
        self.spark, self.folder = spark, folder
        self.options = options
        self.table = folder / "live" / "values"
        self.append = append_batch(self.table, query="live")

    def start(self, sink=None, checkpoint="checkpoint", **trigger):
        source = self.spark.readStream.format("hyperbloom")
        for name, value in self.options.items():
            source = source.option(name, str(value))
        writer = source.load().writeStream.foreachBatch(sink or self.append)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return writer.trigger(**trigger or {"availableNow": True}).start()

    def run(self, sink=None, checkpoint="checkpoint"):
        """Bring the table up to what is there now; the rows of each batch."""
        query = self.start(sink, checkpoint)
        assert query.awaitTermination(240)
        return [progress["numInputRows"] for progress in query.recentProgress]

    def failing_run(self, sink=None, checkpoint="checkpoint"):
        with pytest.raises(StreamingQueryException) as failed:
            self.run(sink, checkpoint)
        return str(failed.value)

    def rows(self):
        """The table's rows: (node, feed, seq, value), sorted."""
        found = DeltaTable(str(self.table)).to_pyarrow_dataset().to_table().to_pylist()
        return sorted((row["node"], row["feed"], row["seq"], row["value"]) for row in found)


@pytest.fixture
def query(spark, tmp_path):
    register(spark)
    (tmp_path / "snapshots").mkdir()
    return Query(spark, tmp_path, path=tmp_path / "snapshots", maxRowsPerTrigger=1_000)


@pytest.fixture
def frame(query, node):
    """Ten rows, as a batch has them."""
    node.append(random_values(10))
    taken = snapshot(node, query, "frame")
    return query.spark.read.format("hyperbloom").load(str(taken))


def snapshot(node, query, name):
    return node.snapshot(f"../snapshots/{name}")


def records(node, *feeds):
    found = []
    for feed in feeds or (FEED,):
        log = node.store.log_slice(feed, 0, limit=1 << 30, max_bytes=1 << 40).records
        found += [(NODE.hex(), feed, record.seq, record.value) for record in log]
    return sorted(found)


def test_a_folder_of_snapshots_becomes_a_table(node, query, tmp_path):
    node.append(random_values(2_500))
    node.append([b"a", b"b"], feed=OTHER_FEED)
    snapshot(node, query, "a")
    assert query.run() == [1_000, 1_000, 502]
    assert query.rows() == records(node, FEED, OTHER_FEED)
    # As it does every night.
    node.append(random_values(300, seed=2))
    snapshot(node, query, "b")
    shutil.rmtree(tmp_path / "snapshots" / "a")
    assert query.run() == [300]
    assert query.rows() == records(node, FEED, OTHER_FEED)
    # It is the table that an export makes, to any reader and to `compact` and `status`.
    export_snapshots(
        [tmp_path / "snapshots" / "b"], tmp_path / "tables", engines=Engines(wanted="local")
    )
    tables = [
        DeltaTable(str(path)).to_pyarrow_dataset().to_table().select(COLUMNS)
        for path in (query.table, tmp_path / "tables" / "values")
    ]
    ordered = [table.sort_by([("feed", "ascending"), ("seq", "ascending")]) for table in tables]
    assert ordered[0].equals(ordered[1])
    assert len(current_files(query.table)) >= 4
    compact_tables(query.table.parent)
    assert len(current_files(query.table)) == 1
    (status,) = table_statuses(query.table.parent)
    assert (status.rows, status.snapshots) == (2_802, ())
    assert stat.S_IMODE(query.table.stat().st_mode) == 0o700
    assert {stat.S_IMODE(Path(path).stat().st_mode) for path in current_files(query.table)} == {
        0o600
    }


def test_crashes_on_both_sides_of_the_commit(node, query, monkeypatch):
    node.append(random_values(2_500))
    snapshot(node, query, "a")
    commit = OpenTable.commit

    def crash_before(table, facts, *, numbers, **more):
        if numbers["stream.live"] == 1:
            raise Crash("before the commit")
        return commit(table, facts, numbers=numbers, **more)

    def crash_behind(frame, batch):
        query.append(frame, batch)
        raise Crash("behind the commit, before the checkpoint")

    monkeypatch.setattr(OpenTable, "commit", crash_before)
    assert "before the commit" in query.failing_run()
    assert len(query.rows()) == 1_000
    monkeypatch.undo()
    assert "before the checkpoint" in query.failing_run(crash_behind)
    assert len(query.rows()) == 2_000
    # Batch 1 comes for the third time and is left out; then comes the rest.
    batches = []

    def noted(frame, batch):
        version = DeltaTable(str(query.table)).version()
        query.append(frame, batch)
        batches.append((batch, DeltaTable(str(query.table)).version() - version))

    query.run(noted)
    assert batches == [(1, 0), (2, 1)]
    assert query.rows() == records(node)
    # Spark tells a batch of which checkpoint it is, as the next test has it.
    table = OpenTable.find(place_of(query.table.parent), "values")
    assert table.number("stream.live.checkpoint") is not None


def test_another_checkpoint_must_have_another_name(node, query, frame, monkeypatch):
    monkeypatch.setattr(append_module, "_checkpoint_of", lambda frame: 1)
    query.append(frame, 0)
    query.append(frame, 3)
    query.append(frame, 3)
    assert len(query.rows()) == 20
    with pytest.raises(StreamBroken, match="has batches up to 3 of a query 'live', and batch 2 is"):
        query.append(frame, 2)
    # The same number, but another checkpoint: not taken for a batch that comes again.
    monkeypatch.setattr(append_module, "_checkpoint_of", lambda frame: 2)
    with pytest.raises(StreamBroken, match="batch 3 is not of its checkpoint"):
        query.append(frame, 3)
    append_batch(query.table, query="another")(frame, 3)
    assert len(query.rows()) == 30
    # Where Spark does not tell, as over Connect, the numbers are what there is.
    monkeypatch.setattr(append_module, "_checkpoint_of", lambda frame: None)
    query.append(frame, 3)
    assert len(query.rows()) == 30


def test_exports_and_queries_keep_apart(node, query, frame, tmp_path):
    taken = tmp_path / "snapshots" / "frame"
    engines = Engines(wanted="local", processes=1)
    export_snapshots([taken], tmp_path / "live", engines=engines, tables=["values"])
    with pytest.raises(ExportError, match="holds rows of exports"):
        query.append(frame, 0)
    shutil.rmtree(tmp_path / "live")
    query.append(frame, 0)
    with pytest.raises(ExportError, match="a streaming query appends to"):
        export_snapshots([taken], tmp_path / "live", engines=engines)
    assert query.rows() == records(node)


def test_what_breaks_a_query_is_a_sentence(new_node, query):
    before, after = new_node(), new_node()
    before.append(random_values(20))
    snapshot(before, query, "a")
    query.run()
    after.append(random_values(30, seed=2))
    after.now = before.now
    snapshot(after, query, "b")
    said = query.failing_run()
    assert "does not go on from arrival number 20: the node's store was put back" in said
    assert len(query.rows()) == 20


def test_a_running_node_is_followed_while_values_come(spark, tmp_path):
    register(spark)
    values = random_values(600, longest=40)
    with real_nodes(tmp_path) as nodes:
        node = nodes.make("node", feed="news").start()
        query = Query(
            spark, tmp_path, url=f"unix:{node.folder}/control.sock", startingOffsets="latest"
        )
        node.put(*random_values(50, seed=9))
        running = query.start(processingTime="100 milliseconds")
        # From the end of the first batch on, nothing is missed.
        wait_until((tmp_path / "checkpoint" / "commits" / "0").exists, 60, "the query has begun")
        for start in range(0, 300, 30):
            node.put(*values[start : start + 30])
        wait_until(lambda: len(found(query)) == 300, 60, "the rows are there")
        running.stop()
        # A snapshot goes on where the node was left, and the node where the snapshot was.
        node.put(*values[300:450])
        with node.client() as client:
            client.snapshot(tmp_path / "snapshot")
        followed, query.options = query.options, {"path": tmp_path / "snapshot"}
        assert query.run() == [150]
        node.put(*values[450:])
        query.options = followed
        assert query.run() == [150]
    assert [row[3] for row in query.rows()] == values
    assert len(set(query.rows())) == 600


def found(query):
    """The rows, none while there is no table yet."""
    return query.rows() if (query.table / "_delta_log" / f"{0:020}.json").exists() else []


# The parts, without a query


def test_names_of_tables_and_queries(tmp_path):
    with pytest.raises(ExportError, match="is no table of values; name one, as DIR/values"):
        append_batch(tmp_path / "live", query="live")
    for query in ("", "a.b", "x" * 65, "ü"):
        with pytest.raises(ExportError, match="is no query's name"):
            append_batch(tmp_path / "values", query=query)


def test_a_frame_without_the_columns(spark, tmp_path):
    with pytest.raises(ExportError, match="the batch has no column 'feed'"):
        append_batch(tmp_path / "values", query="live")(spark.range(1), 0)


def test_a_compaction_is_waited_for(query, frame, monkeypatch):
    monkeypatch.setattr(append_module, "_BUSY_SECONDS", 0)
    with ExitStack() as held:
        held.enter_context(folder_lock(query.table.parent))
        with pytest.raises(ExportBusy):
            query.append(frame, 0)
        monkeypatch.setattr(append_module, "_BUSY_SECONDS", 60)
        # It ends while the batch waits.
        monkeypatch.setattr(append_module.time, "sleep", lambda _: held.close())
        query.append(frame, 0)
    assert len(query.rows()) == 10


def test_somebody_commits_first_where_there_is_no_lock(query, frame, monkeypatch):
    commit, turns = OpenTable.commit, []

    def second(table, facts, *, numbers, **more):
        """The first turn is that of a query left over from before, which had the same batch."""
        turns.append(numbers)
        if len(turns) == 1:
            opened = OpenTable.find(query.append.target, "values")
            commit(opened, facts, numbers=numbers if same else {"stream": 1}, **more)
        return commit(table, facts, numbers=numbers, **more)

    monkeypatch.setattr(OpenTable, "commit", second)
    same = True
    query.append(frame, 0)
    assert (len(turns), len(query.rows())) == (1, 10)
    turns.clear()
    same = False
    query.append(frame, 1)
    assert [numbers["stream.live"] for numbers in turns] == [1, 1]
    assert OpenTable.find(query.append.target, "values").number("stream.live") == 1


def test_a_table_at_an_object_store(query, frame, bucket):
    append = append_batch(f"{bucket}/live/values", query="live")
    for batch in (0, 0, 1):
        append(frame, batch)
    rows = read(query.spark, f"{bucket}/live/values").collect()
    assert sorted(row.seq for row in rows) == sorted([*range(1, 11), *range(1, 11)])


# Killed


class Killable:
    """A query in a process of its own, with its Java, to be killed."""

    def __init__(self, folder, options):
        script = Path(__file__).with_name("streaming_query.py")
        self._log = (folder / "query.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(options)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self):
        assert self._process.poll() is None, Path(self._log.name).read_text()[-3_000:]
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["node", "snapshots"])
def test_killed_again_and_again_each_row_is_there_once(spark, tmp_path, kind):
    kills = int(os.environ.get("HYPERBLOOM_KILLS", "6"))
    values = random_values(20_000, longest=40)
    with real_nodes(tmp_path) as nodes:
        node = nodes.make("node", feed="news").start()
        (tmp_path / "snapshots").mkdir()
        query = Query(spark, tmp_path)
        options = {"checkpoint": str(tmp_path / "checkpoint"), "table": str(query.table)}
        if kind == "node":
            options["url"] = f"unix:{node.folder}/control.sock"
        else:
            options["path"] = str(tmp_path / "snapshots")
        put = 0
        for turn in range(kills + 1):
            running = Killable(tmp_path, {**options, "maxRowsPerTrigger": "300"})
            try:
                seen = len(found(query))
                end = time.monotonic() + 240
                # Until some batches of this life are in; then at any moment of the next ones.
                while len(found(query)) < seen + 600 or turn == kills:
                    assert time.monotonic() < end
                    if put < len(values) and turn < kills:
                        node.put(*values[put : put + 100])
                        put += 100
                    elif len(found(query)) == put:
                        break
                    if kind == "snapshots":
                        with node.client() as client:
                            client.snapshot(tmp_path / "snapshots" / f"{time.time_ns()}")
                        for old in sorted((tmp_path / "snapshots").iterdir())[:-2]:
                            shutil.rmtree(old)
                    time.sleep(0.1)
                time.sleep(turn * 0.13)
            finally:
                running.kill()
        assert [row[3] for row in query.rows()] == values[:put]

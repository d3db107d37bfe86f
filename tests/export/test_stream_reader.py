"""Following nodes, without Spark: how batches are cut, what they hold, and what breaks them."""

from __future__ import annotations

import json
import shutil

import pytest
from export_nodes import FEED, NODE, OTHER_FEED, random_values, spoil
from nodes import free_port, real_nodes
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from hyperbloom.api.problems import Problem
from hyperbloom.client import NodeUnreachable
from hyperbloom.errors import HyperbloomError
from hyperbloom.export.errors import ExportError, SnapshotUnusable, StreamBroken
from hyperbloom.export.source import node_arrivals, snapshot_arrivals, stream_reader
from hyperbloom.export.source.offsets import Mark, marks_form, read_form
from hyperbloom.export.source.stream_reader import StreamReader, shares
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.store import DropFeed, ForgetValues, RestoreValues

ONE, TWO = b"\x01" * 32, b"\x02" * 32
NAME = NODE.hex(), FEED.hex()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(stream_reader, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(node_arrivals, "_PAUSE_SECONDS", 0.02)


class Followed:
    """A query without Spark: it stands where it stands, and gets what has come."""

    def __init__(self, **options):
        self.options = {name: str(value) for name, value in options.items()}
        self.stand = None
        self.batches = []

    def reader(self):
        """As after a start anew, when nothing is left but the checkpoint."""
        return StreamReader(self.options)

    def plan(self, reader=None):
        """The next batch, as (start, end); None where nothing has come."""
        reader = reader or self.reader()
        if self.stand is None:
            self.stand = reader.initialOffset()
        # As Spark does it: through JSON.
        start = json.loads(json.dumps(self.stand))
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        return None if end == start else (start, end)

    def read(self, start, end):
        """The rows of a batch, each part by a reader of its own."""
        found = []
        for part in self.reader().partitions(start, end):
            for batch in self.reader().read(part):
                assert batch.schema.equals(TABLES["values"].schema)
                found += batch.to_pylist()
        return found

    def news(self):
        """Take in all that has come; the values with their feeds' numbers."""
        found = []
        while (batch := self.plan()) is not None:
            rows = self.read(*batch)
            self.batches.append(len(rows))
            self.stand = batch[1]
            found += rows
        return [(row["node"], row["feed"], row["seq"], row["value"]) for row in found]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


def snapshot(node, folder, name):
    return node.snapshot(f"../{folder.name}/{name}")


def in_log(node, feed=FEED, after=0):
    slice_ = node.store.log_slice(feed, after, limit=1 << 30, max_bytes=1 << 40)
    return [(NODE.hex(), feed, record.seq, record.value) for record in slice_.records]


def test_each_newer_snapshot_brings_what_is_new(node, folder):
    query = Followed(path=folder)
    assert query.news() == []
    node.append(random_values(300))
    snapshot(node, folder, "a")
    assert query.news() == in_log(node)
    assert query.news() == []
    node.append(random_values(50, seed=2))
    node.append([b"x", b"y"], feed=OTHER_FEED)
    assert query.news() == []
    snapshot(node, folder, "b")
    assert query.news() == in_log(node, after=300) + in_log(node, OTHER_FEED)
    snapshot(node, folder, "c")
    assert query.news() == []


def test_rows_are_those_of_the_table(node, folder):
    node.append([b"abc"], at=1_794_787_200_123_457)
    snapshot(node, folder, "a")
    query = Followed(path=folder)
    (row,) = query.read(*query.plan())
    assert (row["value"], row["size"], row["node"]) == (b"abc", 3, NODE.hex())
    assert row["received_at"].microsecond == 123_457
    assert (str(row["date"]), row["origin"]) == ("2026-11-16", b"p" * 32)


def test_several_nodes_in_one_folder_or_in_folders_of_their_own(new_node, tmp_path, folder):
    one, two = new_node(ONE), new_node(TWO)
    one.append([b"a", b"b"])
    two.append([b"b", b"c"])
    for name, node in (("one", one), ("two", two)):
        (tmp_path / "nodes" / name).mkdir(parents=True)
        node.store.snapshot(folder / name)
        node.store.snapshot(tmp_path / "nodes" / name / "a")
    wanted = [(ONE, 1, b"a"), (ONE, 2, b"b"), (TWO, 1, b"b"), (TWO, 2, b"c")]
    for path in (folder, folder / "*", tmp_path / "nodes" / "*", tmp_path / "nodes" / "*" / "*"):
        found = Followed(path=path).news()
        assert [(bytes.fromhex(node), seq, value) for node, _, seq, value in found] == wanted
    assert len(Followed(path=folder / "one").news()) == 2
    two.append([b"d"])
    query = Followed(path=tmp_path / "nodes" / "*")
    query.news()
    two.snapshot("../nodes/two/b")
    assert [value for *_, value in query.news()] == [b"d"]


def test_a_feed_alone(node, folder):
    node.append([b"a"])
    node.append([b"b"], feed=OTHER_FEED)
    snapshot(node, folder, "a")
    assert Followed(path=folder, feed=OTHER_FEED.hex()).news() == in_log(node, OTHER_FEED)


def test_a_batch_has_no_more_rows_than_asked_for(node, folder):
    node.append(random_values(1_000))
    node.append(random_values(30, seed=2), feed=OTHER_FEED)
    snapshot(node, folder, "a")
    query = Followed(path=folder, maxRowsPerTrigger=100)
    assert sorted(query.news()) == sorted(in_log(node) + in_log(node, OTHER_FEED))
    # The small feed is not held up by the large one.
    assert query.batches == [100] * 10 + [30]
    start = query.reader().initialOffset()
    end = query.reader().latestOffset(start, ReadAllAvailable())
    assert len(query.read(start, end)) == 1_030


def test_a_gap_costs_no_empty_batches(node, folder):
    node.append(random_values(1_000))
    for start in range(0, 900, 100):
        node.do(ForgetValues(FEED, random_values(1_000)[start : start + 100]))
    snapshot(node, folder, "a")
    query = Followed(path=folder, maxRowsPerTrigger=60)
    assert query.news() == in_log(node)
    assert query.batches == [60, 40]


@pytest.mark.parametrize(
    ("backlogs", "most", "wanted"),
    [
        ({"a": 5, "b": 3}, None, {"a": 5, "b": 3}),
        ({"a": 1_000, "b": 3}, 100, {"a": 97, "b": 3}),
        ({"a": 1_000, "b": 1_000}, 100, {"a": 50, "b": 50}),
        ({"a": 10, "b": 10, "c": 10}, 2, {"a": 1, "b": 1, "c": 0}),
        ({}, 5, {}),
    ],
)
def test_shares_of_a_batch(backlogs, most, wanted):
    names = {name: (name, name) for name in "abc"}
    found = shares({names[name]: count for name, count in backlogs.items()}, most)
    assert found == {names[name]: count for name, count in wanted.items()}


def test_a_large_batch_is_read_by_several_tasks(node, folder, monkeypatch):
    monkeypatch.setattr("hyperbloom.export.tables.ranges._ROWS_WORTH_A_TASK", 100)
    node.append(random_values(1_000))
    node.append([b"a"], feed=OTHER_FEED)
    snapshot(node, folder, "a")
    query = Followed(path=folder, parts=4)
    start, end = query.plan()
    assert len(query.reader().partitions(start, end)) == 4
    assert query.news() == in_log(node) + in_log(node, OTHER_FEED)


def test_the_latest_is_settled_by_the_first_batch(node, folder):
    node.append([b"a"])
    snapshot(node, folder, "a")
    query = Followed(path=folder, startingOffsets="latest")
    first = query.plan()
    assert query.read(*first) == []
    # A crash before this batch was done: Spark asks for the begin of it again.
    node.append([b"b"])
    snapshot(node, folder, "b")
    assert query.reader().initialOffset() == first[0]
    assert query.read(query.reader().initialOffset(), first[1]) == []
    query.stand = first[1]
    assert query.news() == in_log(node, after=1)


def test_the_latest_of_nothing_is_the_first_that_comes(node, folder):
    query = Followed(path=folder, startingOffsets="latest")
    assert query.news() == []
    node.append([b"a"])
    snapshot(node, folder, "a")
    assert query.news() == in_log(node)


def test_a_query_that_ends_where_it_is_now(node, folder):
    node.append(random_values(100))
    snapshot(node, folder, "a")
    query = Followed(path=folder, maxRowsPerTrigger=40)
    reader = query.reader()
    reader.prepareForTriggerAvailableNow()
    node.append(random_values(100, seed=2))
    node.append([b"a"], feed=OTHER_FEED)
    snapshot(node, folder, "b")
    counts = []
    while (batch := query.plan(reader)) is not None:
        counts.append(len(query.read(*batch)))
        query.stand = batch[1]
    assert counts == [40, 40, 20]
    assert len(query.news()) == 101


def test_a_batch_is_read_again_with_the_same_rows(node, folder):
    node.append(random_values(200))
    snapshot(node, folder, "a")
    query = Followed(path=folder, maxRowsPerTrigger=70)
    start, end = query.plan()
    rows = query.read(start, end)
    node.append(random_values(200, seed=2))
    snapshot(node, folder, "b")
    assert query.read(start, end) == rows
    shutil.rmtree(folder / "a")
    assert query.read(start, end) == rows
    assert [row["seq"] for row in rows] == list(range(1, 71))


def test_a_snapshot_that_goes_while_it_is_read(node, folder, monkeypatch):
    monkeypatch.setattr("hyperbloom.store.values.scan.CHUNK_RECORDS", 64)
    monkeypatch.setattr("hyperbloom.export.tables.rows._LAP_BYTES", 1)
    node.append(random_values(500))
    snapshot(node, folder, "a")
    query = Followed(path=folder)
    (part,) = query.reader().partitions(*query.plan())
    reading = query.reader().read(part)
    found = next(reading).column("seq").to_pylist()
    assert len(found) == 64
    node.append([b"later"])
    snapshot(node, folder, "b")
    # As the nightly rotation does it.
    (folder / "a").rename(folder / ".a.removed")
    shutil.rmtree(folder / ".a.removed")
    for batch in reading:
        found += batch.column("seq").to_pylist()
    assert found == list(range(1, 501))


def test_no_snapshot_is_left(node, folder):
    node.append(random_values(10))
    snapshot(node, folder, "a")
    query = Followed(path=folder)
    start, end = query.plan()
    shutil.rmtree(folder / "a")
    with pytest.raises(SnapshotUnusable, match="up to arrival number 10 any more; bring one back"):
        query.read(start, end)
    # Nothing is wrong with a query that has read all: a newer snapshot will come.
    query.stand = end
    assert query.news() == []
    node.append([b"x"])
    snapshot(node, folder, "b")
    assert query.news() == in_log(node, after=10)


def test_a_snapshot_that_vanishes_between_two_looks(node, folder, monkeypatch):
    node.append(random_values(10))
    snapshot(node, folder, "a")
    shutil.copytree(folder / "a", folder / "older")
    node.append(random_values(10, seed=2))
    snapshot(node, folder, "b")
    look = snapshot_arrivals._look
    gone = []

    def looks(path, name, seq):
        if path.name == "b" and not gone:
            gone.append(path)
            shutil.rmtree(path)
            snapshot(node, folder, "c")
        return look(path, name, seq)

    monkeypatch.setattr(snapshot_arrivals, "_look", looks)
    assert Followed(path=folder).news() == in_log(node)
    assert gone


def test_forgetting_is_not_told_of_and_does_no_harm(node, folder):
    values = random_values(20)
    node.append(values)
    snapshot(node, folder, "a")
    query = Followed(path=folder)
    assert len(query.news()) == 20
    # The record that the query stands at is one of them.
    node.do(ForgetValues(FEED, values[10:]))
    snapshot(node, folder, "b")
    assert query.news() == []
    node.append([b"new"])
    node.do(RestoreValues(FEED, values[10:12]))
    snapshot(node, folder, "c")
    assert [value for *_, value in query.news()] == [b"new", *values[10:12]]


def test_a_feed_joined_anew_is_noticed(node, folder):
    node.append([b"a", b"b"])
    snapshot(node, folder, "a")
    query = Followed(path=folder)
    query.news()
    node.do(DropFeed(FEED))
    snapshot(node, folder, "b")
    assert query.news() == []
    node.append([b"a", b"c", b"d"])
    snapshot(node, folder, "c")
    with pytest.raises(StreamBroken, match=r"left and joined anew.*new checkpoint and a new table"):
        query.news()


@pytest.mark.parametrize("others", [1, 2, 30])
def test_a_store_put_back_is_noticed(new_node, folder, others):
    before, after = new_node(), new_node()
    for node in (before, after):
        node.append(random_values(10))
    before.append(random_values(10, seed=2))
    snapshot(before, folder, "a")
    query = Followed(path=folder)
    query.news()
    after.append(random_values(others, seed=3))
    after.now = before.now
    snapshot(after, folder, "b")
    with pytest.raises(StreamBroken, match="put back to an older state"):
        query.news()


def test_a_batch_is_not_read_from_a_store_put_back(new_node, folder):
    before, after = new_node(), new_node()
    before.append(random_values(10))
    snapshot(before, folder, "a")
    query = Followed(path=folder)
    start, end = query.plan()
    after.append(random_values(20, seed=3))
    after.now = before.now
    snapshot(after, folder, "b")
    # The older one is still there.
    assert [row["value"] for row in query.read(start, end)] == random_values(10)
    shutil.rmtree(folder / "a")
    with pytest.raises(SnapshotUnusable, match="no snapshot in"):
        query.read(start, end)


def test_a_damaged_snapshot_is_a_sentence(node, folder):
    node.append(random_values(10))
    spoil(snapshot(node, folder, "a"), outside=lambda feed, seq: seq < 5)
    query = Followed(path=folder)
    with pytest.raises(HyperbloomError, match="a record that is none"):
        query.news()
    (folder / "a" / "data.mdb").write_bytes(b"no store")
    with pytest.raises(SnapshotUnusable):
        query.news()


def test_what_was_written_before_is_read():
    """A checkpoint of the first release: it must be understood for ever."""
    mark = {"seq": 7, "life": 1, "forgotten": 2, "anchor": "6f69bd1dcb1cf327"}
    form = {"version": 1, "feeds": {NODE.hex(): {FEED.hex(): mark}}}
    assert read_form(form) == {NAME: Mark(**mark)}
    assert marks_form({NAME: Mark(**mark)}) == form
    for start in ("earliest", "latest"):
        assert read_form({"version": 1, "start": start}) == start


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"version": 2, "feeds": {}},
        {"version": 1, "feeds": {"aa": {"bb": {"seq": 1}}}},
        {"version": 1, "feeds": []},
        {"version": 1, "start": "middle"},
        {"version": 1},
    ],
)
def test_a_foreign_checkpoint_is_a_sentence(form):
    with pytest.raises(ExportError, match="the checkpoint is not of this data source"):
        read_form(form)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "say what to follow"),
        ({"path": "a", "url": "unix:b"}, "say what to follow"),
        ({"path": "a", "startingOffset": "latest"}, "there is no option 'startingoffset'"),
        ({"path": "a", "startingOffsets": "newest"}, "earliest or latest, not 'newest'"),
        ({"path": "a", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is a whole number above 0"),
        ({"path": "a", "parts": "x"}, "parts is a whole number above 0"),
        ({"path": "a", "feed": "xyz"}, "feed is a key in hex"),
        ({"url": "http://127.0.0.1:1"}, "name the file of the node's token"),
        ({"url": "https://127.0.0.1:1"}, "is no node's"),
    ],
)
def test_wrong_options_are_sentences(options, said):
    with pytest.raises(ExportError, match=said):
        StreamReader(options)


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(SnapshotUnusable, match="there is no folder"):
        Followed(path=tmp_path / "none").plan()
    # Nothing has the pattern's form yet.
    assert Followed(path=tmp_path / "*").plan() is None


# A running node


@pytest.fixture
def running(tmp_path):
    """A real node, with a port beside its control socket."""
    with real_nodes(tmp_path) as nodes:
        yield nodes.make("node", feed="news")


def values_of(rows):
    return [value for *_, value in rows]


def test_a_running_node(running, monkeypatch, tmp_path):
    monkeypatch.setattr(node_arrivals, "_PAGE", 70)
    running.start()
    values = random_values(300)
    running.put(*values[:200])
    query = Followed(url=f"unix:{running.folder}/control.sock", maxRowsPerTrigger=150)
    found = query.news()
    assert values_of(found) == values[:200]
    assert {(node, feed) for node, feed, *_ in found} == {(running.key.hex(), running.feed_key)}
    assert query.batches == [150, 50]
    assert query.news() == []
    running.put(*values[100:300])
    start, end = query.plan()
    # While it is started anew it is waited for.
    running.stop()
    running.start()
    rows = query.read(start, end)
    assert [row["value"] for row in rows] == values[200:]
    assert rows == query.read(start, end)
    # A snapshot of the node has the same numbers and times, so a query may go on with it.
    with running.client() as client:
        client.snapshot(tmp_path / "snapshot")
    assert Followed(path=tmp_path / "snapshot").read(start, end) == rows
    query.options = {"path": str(tmp_path / "snapshot")}
    assert values_of(query.news()) == values[200:]


def test_what_a_running_node_forgets(running):
    running.start()
    values = random_values(30)
    running.put(*values)
    query = Followed(url=f"unix:{running.folder}/control.sock")
    assert len(query.news()) == 30
    with running.client() as client:
        list(client.forget({"values": [value.hex() for value in values[20:]]}))
    assert query.news() == []
    running.put(b"more")
    assert values_of(query.news()) == [b"more"]


def test_a_node_over_tcp_and_one_that_is_away(running, monkeypatch):
    config, address = running.config_path, f"127.0.0.1:{free_port()}"
    config.write_text(config.read_text() + f'[api]\nlisten = "{address}"\n')
    monkeypatch.setattr(node_arrivals, "_AWAY_SECONDS", 0)
    token = running.folder / "api.token"
    query = Followed(url=f"http://{address}", tokenFile=token)
    token.write_text("0" * 64)
    token.chmod(0o600)
    with pytest.raises(NodeUnreachable, match="no node answers"):
        query.plan()
    token.unlink()
    running.start()
    running.put(b"a", b"b")
    assert values_of(query.news()) == [b"a", b"b"]
    wrong = running.folder / "wrong.token"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    with pytest.raises(Problem, match="token"):
        Followed(url=f"http://{address}", tokenFile=wrong).plan()
    end = marks_form({("ab" * 32, FEED.hex()): Mark(seq=1, life=1, forgotten=0, anchor="")})
    with pytest.raises(ExportError, match="another node now"):
        query.read({"version": 1, "start": "earliest"}, end)


def test_limits_are_what_spark_is_told():
    assert StreamReader({"path": "a"}).getDefaultReadLimit() == ReadMaxRows(500_000)

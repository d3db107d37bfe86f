"""What an export takes out of `values` for what was forgotten, and what it leaves as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, NODE, ORIGINS, OTHER_FEED, SourceNode, random_values
from followed import held, paths, rows, stored
from inline_engine import InlineEngines
from make_released import fill, go_on

from hyperbloom.export import export_snapshots
from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import METADATA, OpenTable
from hyperbloom.export.tables.schema import CUTS, TABLES
from hyperbloom.export.upkeep import compact_tables, vacuum_tables
from hyperbloom.store import DropFeed, ForgetValues, RestoreValues
from hyperbloom.store.values import gone

DAY = 24 * HOUR
DAYS = 6
A_DAY = 40


def of_day(day, feed=FEED):
    return random_values(A_DAY, seed=100 * day + feed[0])


@pytest.fixture
def target(tmp_path):
    return tmp_path / "tables"


@pytest.fixture
def days(node):
    """A node with two feeds, and values of each on some days."""
    for day in range(DAYS):
        for feed in (FEED, OTHER_FEED):
            node.append(of_day(day, feed), feed=feed, at=MONDAY + day * DAY)
    return node


@pytest.fixture
def export(target):
    def run(snapshot, *, engines=None, **settings):
        settings = {"engines": engines or InlineEngines(), "tables": ("values",), **settings}
        return export_snapshots([snapshot], target, **settings).tables[0]

    return run


def files_by_day(target):
    return {
        file.partition["date"]: file for file in OpenTable.find(Folder(target), "values").files()
    }


def retold(target, numbers):
    """Commit other numbers into the table's log, as if they had always been there."""
    table = DeltaTable((target / "values").as_uri())
    table.create_write_transaction(
        [],
        mode="append",
        schema=table.schema(),
        partition_by=["node", "date"],
        commit_properties=deltalake.CommitProperties(
            app_transactions=[
                deltalake.Transaction(f"{METADATA}.{NODE.hex()}.{name}", number)
                for name, number in numbers.items()
            ]
        ),
    )


def test_only_the_files_that_hold_them_are_written_anew(days, export, target, engines):
    export(days.snapshot("first"), engines=engines)
    before, named = files_by_day(target), paths(target)
    days.do(ForgetValues(FEED, of_day(2)[:10]))
    days.do(ForgetValues(OTHER_FEED, of_day(4, OTHER_FEED)[5:]))
    days.append([b"new"], at=MONDAY + 9 * DAY)
    report = export(days.snapshot("second"), engines=engines)
    after = files_by_day(target)
    assert held(target) == stored((NODE, days))
    changed = {day for day in before if before[day] != after[day]}
    assert changed == {"2026-11-18", "2026-11-20"}
    assert len(named - paths(target)) == 2
    assert report.replaced == 4 * A_DAY
    assert report.rows == 4 * A_DAY - 10 - (A_DAY - 5) + 1
    # One commit: the night's new rows and what is gone. What follows is incremental again.
    assert DeltaTable((target / "values").as_uri()).version() == 2
    days.append([b"newer"], at=MONDAY + 9 * DAY)
    assert export(days.snapshot("third"), engines=engines).replaced == 0
    assert held(target) == stored((NODE, days))


def test_a_file_written_anew_is_like_those_written_first(days, export, target):
    export(days.snapshot("first"))
    before = files_by_day(target)["2026-11-17"]
    days.do(ForgetValues(FEED, of_day(1)[::3]))
    export(days.snapshot("second"))
    after = files_by_day(target)["2026-11-17"]
    old, new = (pq.ParquetFile(target / "values" / file.path) for file in (before, after))
    assert new.schema_arrow.equals(old.schema_arrow)
    for number in range(old.metadata.num_columns):
        one, other = (file.metadata.row_group(0).column(number) for file in (old, new))
        assert (one.compression, set(one.encodings)) == (other.compression, set(other.encodings))
        assert one.is_stats_set == other.is_stats_set
    kept = new.read(["feed", "seq"]).to_pylist()
    lost = set(of_day(1)[::3])
    assert kept == [
        {"feed": row["feed"], "seq": row["seq"]}
        for row in old.read(["feed", "seq", "value"]).to_pylist()
        if row["feed"] != FEED or row["value"] not in lost
    ]
    numbers = [row["seq"] for row in kept]
    assert (after.least_seq, after.most_seq) == (min(numbers), max(numbers))
    assert after.rows == len(numbers)


def test_a_file_of_which_nothing_stays_goes_without_another_one(days, export, target):
    export(days.snapshot("first"))
    for feed in (FEED, OTHER_FEED):
        days.do(ForgetValues(feed, of_day(3, feed), erase=True))
    report = export(days.snapshot("second"))
    assert (report.rows, report.files, report.replaced) == (0, 0, 2 * A_DAY)
    assert set(files_by_day(target)) == {f"2026-11-{16 + day}" for day in range(DAYS) if day != 3}
    assert held(target) == stored((NODE, days))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("first_compacted", [False, True])
def test_however_the_table_is_cut_and_joined(days, export, target, cut, first_compacted):
    tables = {**TABLES, "values": TABLES["values"].cut_by(CUTS[cut])}
    OpenTable.ensure(Folder(target), "values", tables=tables)
    for night in range(3):
        days.append([b"night %d" % night], at=MONDAY + 2 * DAY)
        export(days.snapshot(f"before-{night}"))
    if first_compacted:
        compact_tables(target)
    days.do(ForgetValues(FEED, [b"night 1", *of_day(0)[:3]]))
    export(days.snapshot("after"))
    assert held(target) == stored((NODE, days))
    compact_tables(target)
    vacuum_tables(target, keep_hours=0)
    assert held(target) == stored((NODE, days))


def test_without_notes_only_files_that_differ_are_written_anew(days, export, target, monkeypatch):
    export(days.snapshot("first"))
    named = paths(target)
    with monkeypatch.context() as older:
        older.setattr(gone.GoneNotes, "add", lambda *_: None)
        days.do(ForgetValues(FEED, of_day(2)[:10]))
    assert export(days.snapshot("second")).replaced == 2 * A_DAY
    assert len(named - paths(target)) == 1
    assert held(target) == stored((NODE, days))
    # Those that were let go since.
    monkeypatch.setattr(gone, "MAX_GONE_NOTES", 2)
    days.do(ForgetValues(FEED, of_day(4)[:3]))
    named = paths(target)
    assert export(days.snapshot("third")).replaced == 2 * A_DAY
    assert len(named - paths(target)) == 1
    assert held(target) == stored((NODE, days))
    days.do(ForgetValues(FEED, of_day(5)[:2]))
    assert export(days.snapshot("fourth")).replaced == 2 * A_DAY
    assert held(target) == stored((NODE, days))


def test_a_table_of_an_earlier_release_loses_only_what_is_gone(node, target):
    released = min((Path(__file__).parent / "released").glob("*/values"))
    shutil.copytree(released.parent, target)
    fill(node)
    go_on(node)
    named = paths(target)
    one = next(iter(stored((NODE, node))))
    node.now = MONDAY + 48 * HOUR
    node.do(ForgetValues(one[1], [one[3]]))
    export_snapshots([node.snapshot("later")], target, engines=InlineEngines())
    assert held(target) == stored((NODE, node))
    assert len(named) > 1
    assert len(named - paths(target)) == 1


def test_forgotten_and_back_in_between_and_again(days, export, target):
    export(days.snapshot("first"))
    some = of_day(1)[:5]
    days.do(ForgetValues(FEED, some))
    days.do(RestoreValues(FEED, some))
    export(days.snapshot("second"))
    assert held(target) == stored((NODE, days))
    days.append([b"came and went"])
    days.do(ForgetValues(FEED, [b"came and went", *some[:2]], erase=True))
    days.append([b"stays"])
    export(days.snapshot("third"))
    assert held(target) == stored((NODE, days))
    days.do(ForgetValues(FEED, [row[3] for row in stored((NODE, days)) if row[1] == FEED]))
    export(days.snapshot("nothing is left of one feed"))
    assert held(target) == stored((NODE, days))


def test_a_store_put_back_that_lost_as_many_as_it_has_again(new_node, export, target):
    """Counts and the last record are the same: only what is gone, and what is back, differ."""
    first = new_node()
    first.append(of_day(0))
    kept = first.snapshot("kept")
    first.do(ForgetValues(FEED, of_day(0)[:1]))
    export(first.snapshot("exported"))
    second = SourceNode.__new__(SourceNode)
    second.folder, second.now = first.folder, first.now
    first.close()
    shutil.rmtree(first.folder / "store")
    (first.folder / "store").mkdir()
    shutil.copy(kept / "data.mdb", first.folder / "store" / "data.mdb")
    SourceNode.__init__(second, first.folder)
    second.now = MONDAY + DAY
    second.do(ForgetValues(FEED, of_day(0)[1:2], at=second.now))
    export(second.snapshot("put back"))
    assert held(target) == stored((NODE, second))
    second.close()


@pytest.mark.parametrize(
    "lie",
    [
        {"rows": 7},
        {f"{FEED.hex()}.rows": 3},
        {f"{FEED.hex()}.top_seq": 5},
        {f"{FEED.hex()}.top_seq": 5, f"{FEED.hex()}.rows": 5},
        {f"{FEED.hex()}.note_anchor": 1},
        {f"{FEED.hex()}.forgotten": 90},
    ],
    ids=str,
)
def test_lies_in_the_log_end_in_a_right_table(days, export, target, lie):
    export(days.snapshot("first"))
    retold(target, lie)
    days.do(ForgetValues(FEED, of_day(1)[:1]))
    days.append([b"new"])
    export(days.snapshot("second"))
    assert held(target) == stored((NODE, days))
    assert {file.name for file in target.rglob("*.parquet")} >= {
        path.rpartition("/")[2] for path in paths(target)
    }


def test_wrong_bounds_of_a_file_end_in_a_right_table(days, export, target):
    export(days.snapshot("first"))
    log = target / "values" / "_delta_log" / f"{1:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            stats["minValues"]["seq"] = stats["maxValues"]["seq"] = 100_000
            line["add"]["stats"] = json.dumps(stats)
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    days.do(ForgetValues(FEED, of_day(1)[:1]))
    export(days.snapshot("second"))
    assert held(target) == stored((NODE, days))


@pytest.mark.parametrize("harm", ["missing", "damaged", "taken out of the log"])
def test_a_file_that_cannot_be_read_has_the_node_replaced(days, export, target, harm):
    export(days.snapshot("first"))
    file = files_by_day(target)["2026-11-17"]
    path = target / "values" / file.path
    if harm == "missing":
        path.unlink()
    elif harm == "damaged":
        path.write_bytes(b"PAR1 no more PAR1")
    else:
        table = DeltaTable((target / "values").as_uri())
        table.delete("date = '2026-11-17'")
    days.do(ForgetValues(FEED, of_day(1)[:1]))
    export(days.snapshot("second"))
    assert held(target) == stored((NODE, days))


def test_a_snapshot_that_does_not_hold_what_it_counts_is_refused(days, export, target, monkeypatch):
    export(days.snapshot("first"))
    days.do(ForgetValues(FEED, of_day(1)[:1]))
    days.append([b"new"])
    before = held(target)
    monkeypatch.setattr("hyperbloom.export.engines.tasks.read_log_rows", lambda *_: iter(()))
    with pytest.raises(SnapshotUnusable, match=r"values of feed .* where it counts"):
        export(days.snapshot("second"))
    assert held(target) == before
    assert {path.name for path in target.rglob("*.parquet")} == {
        path.rpartition("/")[2] for path in paths(target)
    }


def test_columns_of_another_release_stay_and_come_null(days, export, target):
    export(days.snapshot("first"))
    later = pa.field("mark", pa.int64(), metadata={"comment": "of a later release"})
    DeltaTable((target / "values").as_uri()).alter.add_columns(
        deltalake.Field("mark", "long", nullable=True)
    )
    file = files_by_day(target)["2026-11-17"]
    path = target / "values" / file.path
    written = pq.ParquetFile(path).read()
    marked = written.append_column(later, pa.array(range(written.num_rows)))
    pq.write_table(marked, path)
    days.do(ForgetValues(FEED, [*of_day(1)[:3], *of_day(2)[:3]]))
    export(days.snapshot("second"))
    assert held(target) == stored((NODE, days))
    marks = [row["mark"] for row in rows(target, "values") if str(row["date"]) == "2026-11-17"]
    assert sorted(marks) == list(range(3, 2 * A_DAY))
    others = [row["mark"] for row in rows(target, "values") if str(row["date"]) != "2026-11-17"]
    assert set(others) == {None}


def test_a_feed_that_was_left_keeps_its_rows_beside_what_goes(days, export, target):
    export(days.snapshot("first"))
    left = {row for row in held(target) if row[1] == OTHER_FEED}
    days.do(DropFeed(OTHER_FEED))
    days.do(ForgetValues(FEED, of_day(1)[:3]))
    export(days.snapshot("second"))
    assert set(held(target)) == left | set(stored((NODE, days)))
    export(days.snapshot("third"), mode="full")
    assert held(target) == stored((NODE, days))


def test_a_later_origin_of_the_same_value_is_the_one_in_the_table(node, export, target):
    node.append([b"one", b"two"])
    export(node.snapshot("first"))
    node.do(ForgetValues(FEED, [b"one"]))
    node.do(RestoreValues(FEED, [b"one"]))
    node.append([b"three"], origin=ORIGINS[1])
    export(node.snapshot("second"))
    found = sorted((row["seq"], row["value"]) for row in rows(target, "values"))
    assert found == [(2, b"two"), (3, b"one"), (4, b"three")]

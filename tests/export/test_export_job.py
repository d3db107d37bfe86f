"""Exports on a real Spark: every value once, whatever is exported after what."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import duckdb
import polars
import pytest
from deltalake import DeltaTable
from export_nodes import (
    FEED,
    HOUR,
    MONDAY,
    NODE,
    ODD_VALUES,
    ORIGINS,
    OTHER_FEED,
    random_values,
    spoil,
)

from hyperbloom.export import current_files, export_snapshots, read
from hyperbloom.export.errors import ExportBusy, ExportError, SnapshotUnusable
from hyperbloom.export.places.lock import folder_lock
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, table_statuses, vacuum_tables
from hyperbloom.store import DropFeed, ForgetValues, RestoreValues
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import PutLinks

DAY = 24 * HOUR
OTHER_NODE = b"\xbb" * 32


def table(target, name="values"):
    return DeltaTable((target / name).as_uri()).to_pyarrow_dataset().to_table()


def rows(target):
    """Every row of `values` as (node, feed, seq, value), with how often it is there."""
    found = table(target).select(["node", "feed", "seq", "value"]).to_pylist()
    return Counter(tuple(row.values()) for row in found)


def stored(*nodes):
    """What the stores themselves count."""
    return Counter(
        (key.hex(), feed.key, record.seq, record.value)
        for key, node in nodes
        for feed in node.store.feeds()
        for record in node.store.log_slice(feed.key, 0, limit=1 << 20, max_bytes=1 << 30).records
    )


@pytest.fixture
def target(tmp_path):
    return tmp_path / "tables"


@pytest.fixture
def export(engines, target):
    def run(*snapshots, **settings):
        return export_snapshots(snapshots, target, engines=engines, **settings)

    return run


def by_name(report):
    return {table.table: table for table in report.tables}


def test_all_readers_read_every_value_once_byte_for_byte(spark, node, export, target):
    node.append(random_values(3_000) + list(ODD_VALUES), origin=ORIGINS[1])
    node.append([b"tomorrow"], at=MONDAY + DAY + 1)
    node.append([b"elsewhere", b"a"], feed=OTHER_FEED)
    report = by_name(export(node.snapshot()))
    wanted = stored((NODE, node))
    assert report["values"].rows == len(wanted) == 3_000 + len(ODD_VALUES) + 3

    columns = ["node", "feed", "seq", "value", "received_at", "origin", "size", "date"]
    by_spark = read(spark, target / "values").select(*columns).collect()
    files = current_files(target / "values")
    by_files = duckdb.execute(
        f"select {', '.join(columns)} from read_parquet(?, hive_partitioning = true, "
        "hive_types = {'node': varchar, 'date': date})",
        [files],
    ).fetchall()
    by_polars = polars.read_delta(str(target / "values")).select(columns).rows()
    by_arrow = [tuple(row.values()) for row in table(target).select(columns).to_pylist()]
    dataset = DeltaTable(str(target / "values")).to_pyarrow_dataset()  # duckdb finds it by name
    by_dataset = duckdb.execute(f"select {', '.join(columns)} from dataset").fetchall()
    assert dataset is not None

    def plain(found):
        return Counter(
            (node, bytes(feed), seq, bytes(value), bytes(origin), size, date)
            for node, feed, seq, value, _, origin, size, date in found
        )

    assert Counter({key[:4]: n for key, n in plain(by_arrow).items()}) == wanted
    assert plain(by_spark) == plain(by_files) == plain(by_polars) == plain(by_arrow)
    assert plain(by_dataset) == plain(by_arrow)
    moments = {row[2]: row[4] for row in by_arrow if bytes(row[1]) == FEED}
    assert moments[3_008] == dt.datetime(2026, 11, 17, 0, 0, 0, 1, tzinfo=dt.UTC)
    assert {r.seq: r.received_at.astimezone(dt.UTC) for r in by_spark if r.feed == FEED} == moments


def test_the_same_snapshot_again_changes_nothing_and_needs_no_spark(
    node, export, target, no_engine
):
    node.append(random_values(100))
    snapshot = node.snapshot()
    export(snapshot)
    versions = [(s.table, s.version, s.rows) for s in table_statuses(target)]
    again = export_snapshots([snapshot], target, engines=no_engine)
    assert not any(table.changed for table in again.tables)
    assert [(s.table, s.version, s.rows) for s in table_statuses(target)] == versions


def test_a_later_snapshot_brings_only_what_is_new(node, export, target):
    node.append(random_values(500))
    export(node.snapshot("first"))
    node.append([b"new 1", b"new 2"], at=MONDAY + DAY)
    node.append([b"new feed"], feed=OTHER_FEED)
    report = by_name(export(node.snapshot("second")))
    assert (report["values"].rows, report["values"].replaced) == (3, 0)
    assert rows(target) == stored((NODE, node))
    assert report["feeds"].rows == 2
    assert table(target, "feeds").column("count").to_pylist().count(500) == 1


def test_what_was_exported_is_not_read_again(node, export, target):
    node.append(random_values(500))
    export(node.snapshot("first"))
    node.append([b"new 1", b"new 2"])
    snapshot = node.snapshot("second")
    # The last exported record tells that the snapshot goes on from there.
    assert spoil(snapshot, outside=lambda feed, seq: seq < 500) == 499
    assert by_name(export(snapshot))["values"].rows == 2
    assert rows(target) == stored((NODE, node))


def test_an_older_snapshot_after_a_newer_one_brings_nothing(node, export, target):
    node.append([b"1", b"2"])
    older = node.snapshot("older")
    node.append([b"3"])
    export(node.snapshot("newer"))
    assert not by_name(export(older))["values"].changed
    assert rows(target) == stored((NODE, node))


def test_of_several_snapshots_of_a_node_the_newest_counts(node, export, target):
    for n in range(3):
        node.append([b"value %d" % n])
        node.snapshot(f"snapshot-{n}")
    report = by_name(export(str(node.folder / "snapshot-*")))
    assert report["values"].rows == 3
    assert rows(target) == stored((NODE, node))
    assert sorted(table(target, "feeds").column("count").to_pylist()) == [1, 2, 3]


def test_a_feed_dropped_and_joined_anew_is_there_once(node, export, target):
    node.append(random_values(50))
    node.append([b"kept"], feed=OTHER_FEED)
    export(node.snapshot("first"))
    node.do(DropFeed(FEED))
    node.append(random_values(60, seed=2))
    report = by_name(export(node.snapshot("second")))
    assert (report["values"].rows, report["values"].replaced) == (61, 51)
    assert rows(target) == stored((NODE, node))


def test_a_store_put_back_to_an_older_state_is_there_as_it_went_on(new_node, export, target):
    first = new_node()
    first.append([b"1", b"2", b"lost"])
    export(first.snapshot())
    # The same node and feed, from a backup that had less, with other values since.
    second = new_node()
    second.now = first.now
    second.append([b"1", b"2", b"other", b"more"])
    assert by_name(export(second.snapshot()))["values"].replaced == 3
    assert rows(target) == stored((NODE, second))


def test_full_writes_this_node_anew_and_leaves_others(new_node, export, target):
    one, two = new_node(), new_node(OTHER_NODE)
    one.append([b"1", b"both"])
    two.append([b"2", b"both"])
    snapshots = one.snapshot(), two.snapshot()
    export(*snapshots)
    report = by_name(export(snapshots[0], mode="full"))
    assert (report["values"].rows, report["values"].replaced) == (2, 2)
    assert rows(target) == stored((NODE, one), (OTHER_NODE, two))
    assert table(target, "feeds").num_rows == 2


def test_many_nodes_are_kept_apart_and_one_is_replaced_alone(new_node, export, target):
    one, two = new_node(), new_node(OTHER_NODE)
    one.append(random_values(40))
    two.append(random_values(40))
    export(one.snapshot("1"), two.snapshot("1"))
    one.do(DropFeed(FEED))
    one.append([b"anew"])
    two.append([b"added"])
    report = by_name(export(one.snapshot("2"), two.snapshot("2")))
    assert (report["values"].rows, report["values"].replaced) == (2, 40)
    assert rows(target) == stored((NODE, one), (OTHER_NODE, two))


def test_spark_knows_what_columns_mean(spark, node, export, target):
    node.append([b"1"])
    export(node.snapshot())
    for name in ("values", "links"):  # with rows, and without
        found = read(spark, target / name).schema
        wanted = {field.name: field.metadata[b"comment"].decode() for field in TABLES[name].schema}
        assert {field.name: field.metadata["comment"] for field in found} == wanted


def test_an_empty_feed_and_an_empty_table_are_readable(spark, node, export, target):
    node.append([])
    report = by_name(export(node.snapshot()))
    assert report["values"].rows == 0
    assert read(spark, target / "values").count() == 0
    node.append([b"1"])
    export(node.snapshot("second"))
    assert rows(target) == stored((NODE, node))


def test_links_say_where_in_a_chain_they_are(node, export, target):
    expires = MONDAY / 1e6 + 1e6

    def link(issuer, trustee, expires=expires):
        return LinkRecord(
            issuer=issuer,
            trustee=trustee,
            expires=expires,
            first_seen=MONDAY,
            introduced_by=ORIGINS[0],
            raw=b"link" + issuer + trustee,
        )

    node.append([b"1"])
    keys = [bytes([n]) * 32 for n in range(5)]
    node.do(
        PutLinks(
            FEED,
            [
                link(FEED, keys[0]),
                link(keys[0], keys[1]),
                link(keys[1], keys[2], expires=float("inf")),
                link(FEED, keys[3], expires=MONDAY / 1e6 - 5),
                link(keys[3], keys[4]),
            ],
        )
    )
    export(node.snapshot())
    found = table(target, "links").to_pylist()
    assert {row["issuer"]: row["position"] for row in found} == {
        FEED: 1,
        keys[0]: 2,
        keys[1]: 3,
        keys[3]: None,
    }
    by_trustee = {row["trustee"]: row for row in found}
    assert by_trustee[keys[2]]["expires"] is None
    assert by_trustee[keys[0]]["expires"].timestamp() == expires
    assert by_trustee[keys[0]]["link"] == b"link" + FEED + keys[0]
    node.append([b"2"])
    export(node.snapshot("second"))
    assert table(target, "links").num_rows == 5


def test_two_at_once_the_second_says_who_works(node, export, target):
    node.append([b"1"])
    snapshot = node.snapshot()
    with folder_lock(target), pytest.raises(ExportBusy, match=r"process \d+ works on"):
        export(snapshot)
    assert by_name(export(snapshot))["values"].rows == 1


def test_compaction_and_vacuum_keep_every_row(node, export, target):
    for n in range(6):
        node.append([b"value %d" % n])
        export(node.snapshot(f"snapshot-{n}"))
    crumb = target / "values" / f"node={NODE.hex()}" / "date=2026-11-16" / "part-killed.parquet"
    crumb.write_bytes(b"left by a killed job")
    before = rows(target)
    done = dict(compact_tables(target))
    assert (done["values"].removed, done["values"].added) == (6, 1)
    assert rows(target) == before == stored((NODE, node))
    assert not any(paths for _, paths in vacuum_tables(target, keep_hours=1))
    assert crumb.exists()
    removed = dict(vacuum_tables(target, keep_hours=0))
    assert len(removed["values"]) == 7
    assert not crumb.exists()
    assert rows(target) == before
    node.append([b"after"])
    assert by_name(export(node.snapshot("last")))["values"].rows == 1
    assert rows(target) == stored((NODE, node))


def test_folders_may_have_any_name(spark, node, engines, tmp_path):
    node.append([b"1", b"2"])
    snapshot = node.snapshot("a [snap] 100% é")
    target = tmp_path / "my tables [é] #1?"
    for _ in range(2):
        export_snapshots([snapshot], target, engines=engines)
    assert rows(target) == stored((NODE, node))
    assert read(spark, target / "values").count() == 2
    node.append([b"3"])
    export_snapshots([node.snapshot("next")], target, engines=engines, mode="full")
    compact_tables(target)
    vacuum_tables(target, keep_hours=0)
    assert rows(target) == stored((NODE, node))


def test_a_percent_sign_is_refused_before_anything_is_done(node, no_engine, tmp_path):
    node.append([b"1"])
    with pytest.raises(ExportError, match="cannot have % in"):
        export_snapshots([node.snapshot()], tmp_path / "100%", engines=no_engine)
    assert not (tmp_path / "100%").exists()


def test_no_snapshot_and_no_such_table_are_sentences(export, tmp_path):
    with pytest.raises(SnapshotUnusable, match="no snapshot is there"):
        export(str(tmp_path / "none-*"))
    with pytest.raises(SnapshotUnusable, match="no whole snapshot"):
        export(tmp_path)
    with pytest.raises(ExportError, match="no table 'subjects'"):
        export(tmp_path, tables=("subjects",))


def test_forgotten_values_leave_the_table_and_new_ones_come(node, export, target):
    """Fewer rows below the mark, and as many above it: only the generation tells."""
    node.append(random_values(200))
    first = node.snapshot("first")
    export(first)
    gone = random_values(200)[:50]
    node.do(ForgetValues(FEED, gone))
    node.append([b"new %d" % number for number in range(60)])
    report = by_name(export(node.snapshot("second")))
    assert rows(target) == stored((NODE, node))
    assert report["values"].replaced == 200
    # What follows is incremental again.
    node.append([b"newer"])
    report = by_name(export(node.snapshot("third")))
    assert (report["values"].rows, report["values"].replaced) == (1, 0)
    # The last record of the log, the anchor, vanishes and comes back as a later one.
    node.do(ForgetValues(FEED, [b"newer"]))
    export(node.snapshot("fourth"))
    assert rows(target) == stored((NODE, node))
    node.do(RestoreValues(FEED, [b"newer", *gone]))
    export(node.snapshot("fifth"))
    assert rows(target) == stored((NODE, node))


def test_values_that_were_erased_leave_the_table_too(node, export, target):
    node.append([b"secret", b"other"])
    export(node.snapshot("first"))
    node.do(ForgetValues(FEED, [b"secret"], erase=True))
    export(node.snapshot("second"))
    assert [row["value"] for row in table(target).to_pylist()] == [b"other"]

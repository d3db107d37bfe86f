"""The table `changes`: what came and what went, once each, whatever happens on the way."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from export_nodes import FEED, HOUR, MONDAY, NODE, OTHER_FEED, SourceNode, random_values
from followed import folded, held, paths, rows, stored
from inline_engine import InlineEngines

from hyperbloom.export import export_snapshots
from hyperbloom.export import following as following_module
from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, vacuum_tables
from hyperbloom.store import DropFeed, ForgetValues, RestoreValues
from hyperbloom.store.values import gone

DAY = 24 * HOUR
ALL = ("values", "changes")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "tables"


@pytest.fixture
def export(target):
    def run(snapshot, *, engines=None, tables=ALL, **settings):
        report = export_snapshots(
            [snapshot], target, engines=engines or InlineEngines(), tables=tables, **settings
        )
        return {table.table: table for table in report.tables}

    return run


def of_kind(target, kind):
    return [row for row in rows(target, "changes") if row["kind"] == kind]


def at(moment):
    return dt.datetime.fromtimestamp(moment / 1e6, dt.UTC)


def check(target, *nodes):
    assert held(target) == folded(target) == stored(*nodes)


def test_the_first_export_holds_all_as_added_and_later_ones_what_changed(
    node, export, target, engines
):
    values = random_values(300)
    node.append(values, at=MONDAY + 5)
    node.append([b"elsewhere"], feed=OTHER_FEED, at=MONDAY + 6)
    export(node.snapshot("first"), engines=engines)
    assert [row["kind"] for row in rows(target, "changes")] == ["added"] * 301
    check(target, (NODE, node))
    node.do(ForgetValues(FEED, values[10:20], at=MONDAY + 2 * DAY))
    node.do(ForgetValues(FEED, values[30:31]))
    node.append([b"new"], at=MONDAY + DAY)
    node.now = MONDAY + 3 * DAY
    report = export(node.snapshot("second"), engines=engines)["changes"]
    assert (report.rows, report.replaced) == (12, 0)
    check(target, (NODE, node))
    lost = of_kind(target, "forgotten")
    assert Counter(row["value"] for row in lost) == Counter([*values[10:20], values[30]])
    times = {row["value"]: row["at"] for row in lost}
    # Not known of the one: then it is the snapshot's.
    assert times.pop(values[30]) == at(node.now)
    assert set(times.values()) == {at(MONDAY + 2 * DAY)}
    assert {row["at"] for row in of_kind(target, "added") if row["value"] == b"new"} == {
        at(MONDAY + DAY)
    }


def test_what_came_and_went_or_came_back(node, export, target):
    values = random_values(30)
    node.append(values)
    node.do(ForgetValues(FEED, values[10:20]))
    export(node.snapshot("first"))
    # Forgotten before it was ever exported: no change at all.
    node.append([b"came and went"])
    node.do(ForgetValues(FEED, [b"came and went"]))
    report = export(node.snapshot("third"))["changes"]
    assert (report.rows, report.changed) == (0, True)
    # Back again, under a new number.
    node.do(RestoreValues(FEED, values[10:12]))
    assert export(node.snapshot("fourth"))["changes"].rows == 2
    check(target, (NODE, node))
    node.do(ForgetValues(FEED, values[10:11], erase=True))
    assert export(node.snapshot("fifth"))["changes"].rows == 1
    check(target, (NODE, node))


def test_it_is_kept_up_to_date_once_it_is_there_and_begins_later(node, target):
    def export(snapshot, **settings):
        report = export_snapshots([snapshot], target, engines=InlineEngines(), **settings)
        return {table.table: table for table in report.tables}

    node.append([b"1", b"2"])
    assert "changes" not in export(node.snapshot("first"))
    assert not (target / "changes").exists()
    node.do(ForgetValues(FEED, [b"1"]))
    node.append([b"3"])
    assert export(node.snapshot("second"), tables=("changes",))["changes"].rows == 2
    # Not asked for this time, and made up for in the next.
    node.do(ForgetValues(FEED, [b"2"]))
    node.append([b"4"])
    assert "changes" not in export(node.snapshot("third"), tables=("values",))
    node.append([b"5"])
    assert export(node.snapshot("fourth"))["changes"].rows == 3
    check(target, (NODE, node))
    assert export(node.folder / "fourth")["changes"].changed is False


def test_it_is_only_ever_added_to(node, export, target):
    for night in range(4):
        node.append(random_values(20, seed=night))
        node.do(ForgetValues(FEED, random_values(20, seed=night)[:3]))
        export(node.snapshot(f"night-{night}"))
    table = DeltaTable((target / "changes").as_uri())
    assert {"delta.appendOnly": "true"}.items() <= table.metadata().configuration.items()
    with pytest.raises(DeltaError, match="append-only"):
        table.delete("kind = 'forgotten'")
    before = sorted(rows(target, "changes"), key=repr)
    one = table.version()
    done = dict(compact_tables(target))
    assert done["changes"].removed > done["changes"].added > 0
    assert sorted(rows(target, "changes"), key=repr) == before
    node.append([b"after"])
    node.do(ForgetValues(FEED, random_values(20, seed=2)[5:6]))
    export(node.snapshot("after"))
    vacuum_tables(target, keep_hours=0)
    check(target, (NODE, node))
    # Who follows by version is told of these alone: a compaction is no change.
    told = DeltaTable((target / "changes").as_uri()).load_cdf(starting_version=one + 1).read_all()
    found = sorted(zip(*(told.column(n).to_pylist() for n in ("kind", "value")), strict=True))
    assert found == [("added", b"after"), ("forgotten", random_values(20, seed=2)[5])]


def put_back(node, kept):
    """The same node with the store that a snapshot of it has kept."""
    now = node.now
    node.close()
    shutil.rmtree(node.folder / "store")
    (node.folder / "store").mkdir()
    shutil.copy(kept / "data.mdb", node.folder / "store" / "data.mdb")
    again = SourceNode(node.folder)
    again.now = now
    return again


def test_a_store_put_back_gives_the_pairs_that_make_the_difference(new_node, export, target):
    node = new_node()
    values = random_values(200)
    node.append(values[:100])
    kept = node.snapshot("kept")
    node.append(values[100:150], at=MONDAY + HOUR)
    node.do(ForgetValues(FEED, values[:10]))
    export(node.snapshot("exported"))
    again = put_back(node, kept)
    again.append(values[140:200], at=MONDAY + 2 * HOUR)
    report = export(again.snapshot("put back"))["changes"]
    check(target, (NODE, again))
    # 100 … 139 are gone, 0 … 9 are back, 140 … 149 have other numbers, 150 … 199 are new.
    found = Counter((row["kind"], row["value"]) for row in rows(target, "changes"))
    assert report.rows == 50 + 10 + 60
    assert {value for kind, value in found if kind == "forgotten"} == set(values[100:150])
    again.append([b"goes on"])
    assert export(again.snapshot("after"))["changes"].rows == 1
    check(target, (NODE, again))
    again.close()


def test_a_feed_joined_anew_and_one_that_was_left(node, export, target):
    node.append(random_values(30))
    node.append([b"kept"], feed=OTHER_FEED)
    export(node.snapshot("first"))
    node.do(DropFeed(FEED))
    node.append([random_values(30)[7], b"other"])
    report = export(node.snapshot("second"))["changes"]
    check(target, (NODE, node))
    assert report.rows == 30 + 2
    node.do(DropFeed(OTHER_FEED))
    node.append([b"more"])
    assert export(node.snapshot("third"))["changes"].rows == 1
    assert (
        held(target)
        == folded(target)
        == stored((NODE, node)) + Counter({(NODE.hex(), OTHER_FEED, 1, b"kept"): 1})
    )
    report = export(node.snapshot("fourth"), mode="full")
    assert report["changes"].rows == 1
    check(target, (NODE, node))
    assert export(node.snapshot("fifth"), mode="full")["changes"].rows == 0


def test_where_notes_lack_it_is_compared_in_parts(node, export, target, monkeypatch):
    monkeypatch.setattr(following_module, "_LAP_ROWS", 50)
    values = random_values(400)
    node.append(values[:300])
    node.append(values[:50], feed=OTHER_FEED)
    export(node.snapshot("first"))
    monkeypatch.setattr(gone, "MAX_GONE_NOTES", 3)
    node.do(ForgetValues(FEED, values[20:280:9]))
    node.do(ForgetValues(OTHER_FEED, values[:2]))
    node.append(values[300:])
    report = export(node.snapshot("second"))["changes"]
    assert report.rows == len(values[20:280:9]) + 2 + 100
    check(target, (NODE, node))


def test_many_that_are_gone_are_looked_for_in_parts(node, export, target, monkeypatch):
    monkeypatch.setattr(following_module, "_GONE_ROWS", 16)
    values = random_values(300)
    node.append(values)
    export(node.snapshot("first"))
    node.do(ForgetValues(FEED, values[::3]))
    export(node.snapshot("second"))
    check(target, (NODE, node))


def test_an_own_file_that_is_damaged_is_said_and_nothing_is_committed(node, export, target):
    node.append(random_values(20))
    export(node.snapshot("first"))
    (path,) = paths(target, "changes")
    (target / "changes" / path).write_bytes(b"PAR1 no more PAR1")
    node.do(ForgetValues(FEED, random_values(20)[:2]))
    with pytest.raises(TableUnusable, match=r"missing or damaged .* begins it anew"):
        export(node.snapshot("second"))
    assert OpenTable.find(Folder(target), "changes").version == 1
    shutil.rmtree(target / "changes")
    export(node.folder / "second")
    check(target, (NODE, node))


def test_large_values_and_other_nodes(new_node, export, target):
    one, two = new_node(), new_node(b"\xbb" * 32)
    large = [bytes([n]) * 200_000 for n in range(30)]
    one.append(large)
    two.append(large[:3])
    engines = InlineEngines()
    for name in ("1", "2"):
        snapshots = [one.snapshot(name), two.snapshot(name)]
        export_snapshots(snapshots, target, engines=engines, tables=ALL)
        check(target, (NODE, one), (b"\xbb" * 32, two))
        one.do(ForgetValues(FEED, large[5:25]))


def test_the_columns_say_what_they_are(node, export, target):
    node.append([b"1"])
    export(node.snapshot())
    columns = OpenTable.find(Folder(target), "changes").columns
    assert columns.names == ["feed", "value", "seq", "at", "node", "kind"]
    assert {field.name: field.metadata for field in columns} == {
        field.name: field.metadata for field in TABLES["changes"].schema
    }
    (path,) = paths(target, "changes")
    assert path.startswith(f"node={NODE.hex()}/kind=added/")

"""The table `objects`: the pool as the newest snapshot of each node has it."""

from __future__ import annotations

import json
import math

from deltalake import DeltaTable
from export_nodes import MONDAY, NODE

from hyperbloom.export import export_snapshots
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.rule import OfferObjects

MOST = 1_000_000


def offer(node, *offers, at=MONDAY):
    return node.do(OfferObjects(offers, at, MOST))


def rows(target):
    found = DeltaTable(str(target / "objects")).to_pyarrow_dataset().to_table().to_pylist()
    return sorted(found, key=lambda row: row["hash"])


def test_objects_of_the_newest_snapshot(node, no_engine, tmp_path):
    fields = {"name": "Ada", "raw": b"\x00\xff", "odd": math.nan, "many": [1, {"a": None}]}
    offer(node, OfferedObject(hash=-2, stamp=1, fields=fields, type_name="Person"))
    offer(node, OfferedObject(hash=5, stamp=1, fields={"n": 1}), at=MONDAY + 7)
    target = tmp_path / "tables"
    first = node.snapshot("first")
    export_snapshots([first], target, engines=no_engine, tables=("objects",))
    one, other = rows(target)
    assert one["hash"] == (5).to_bytes(8, "big")
    assert (one["type"], json.loads(one["fields"])) == (None, {"n": 1})
    assert other["hash"] == (-2).to_bytes(8, "big", signed=True)
    assert other["type"] == "Person"
    assert json.loads(other["fields"]) == {
        "name": "Ada",
        "raw": {"$bytes": "00ff"},
        "odd": {"$float": "nan"},
        "many": [1, {"a": None}],
    }
    assert int(one["created"].timestamp() * 1e6) == MONDAY + 7
    assert one["node"] == NODE.hex()

    offer(node, OfferedChange(old=5, hash=6, stamp=2, fields={"n": 2}), at=MONDAY + 9)
    offer(node, OfferedRemoval(hash=-2, stamp=2))
    second = node.snapshot("second")
    report = export_snapshots([second], target, engines=no_engine, tables=("objects",))
    (left,) = rows(target)
    assert (left["hash"], left["fields"]) == ((6).to_bytes(8, "big"), '{"n":2}')
    assert [int(left[k].timestamp() * 1e6) - MONDAY for k in ("created", "changed")] == [7, 9]
    assert (report.tables[0].rows, report.tables[0].replaced) == (1, 2)
    again = export_snapshots([second], target, engines=no_engine, tables=("objects",))
    assert not again.tables[0].changed


def test_objects_come_along_where_there_are_some(new_node, no_engine, tmp_path):
    without, having = new_node(b"\x01" * 32), new_node(b"\x02" * 32)
    target = tmp_path / "tables"
    report = export_snapshots([without.snapshot()], target, engines=no_engine)
    assert [table.table for table in report.tables] == ["values", "links", "feeds"]
    offer(having, *(OfferedObject(hash=n, stamp=1, fields={"n": n}) for n in range(4)))
    report = export_snapshots([having.snapshot()], target, engines=no_engine)
    assert [(t.table, t.rows) for t in report.tables][-1] == ("objects", 4)
    report = export_snapshots([without.snapshot("later")], target, engines=no_engine)
    assert [(t.table, t.rows) for t in report.tables][-1] == ("objects", 0)


def test_a_pool_larger_than_a_slice(node, no_engine, tmp_path):
    offers = [OfferedObject(hash=n, stamp=1, fields={"n": n}) for n in range(-5_000, 5_000)]
    offer(node, *offers)
    target = tmp_path / "tables"
    export_snapshots([node.snapshot()], target, engines=no_engine, tables=("objects",))
    found = rows(target)
    assert {json.loads(row["fields"])["n"] for row in found} == set(range(-5_000, 5_000))

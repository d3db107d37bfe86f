"""`values` cut by month: exports go on in the cut that a table has."""

from __future__ import annotations

import datetime as dt

import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, OTHER_FEED, random_values
from pyarrow import dataset

from hyperbloom.export import export_snapshots
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.schema import CUTS, TABLES

DAY = 24 * HOUR
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
    fill_days(node, range(20))
    for name, mode in [("one", "incremental"), ("two", "incremental"), ("three", "full")]:
        fill_days(node, range(20, 24), seed=len(name))
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
    assert len(OpenTable.find(Folder(by_day), "values").files()) >= 24
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

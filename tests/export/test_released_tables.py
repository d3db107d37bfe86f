"""Tables that earlier releases wrote (released/): this one reads them and goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from export_nodes import HOUR, MONDAY, random_values
from make_released import fill, go_on, make

from hyperbloom.export import export_snapshots
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.export.upkeep import compact_tables, vacuum_tables

RELEASED = sorted(path for path in (Path(__file__).parent / "released").iterdir() if path.is_dir())
assert RELEASED


@pytest.fixture(params=RELEASED, ids=lambda path: path.name)
def target(request, tmp_path):
    shutil.copytree(request.param, tmp_path / "tables")
    return tmp_path / "tables"


def rows(target, name):
    """A table's rows in one order, by the columns of the first release."""
    found = DeltaTable(str(target / name)).to_pyarrow_dataset().to_table().to_pylist()
    return sorted(found, key=repr)


def there(target):
    """The tables that the release knew."""
    return [name for name in TABLES if (target / name).is_dir()]


def test_they_hold_what_this_release_would_write(target, node, tmp_path):
    make(node, tmp_path / "new")
    for name in there(target):
        columns = DeltaTable(str(target / name)).schema().to_arrow().names
        now = [{column: row[column] for column in columns} for row in rows(tmp_path / "new", name)]
        assert sorted(now, key=repr) == rows(target, name), name


def test_an_export_goes_on_with_them(target, node, engines):
    before = {name: rows(target, name) for name in there(target)}
    fill(node)
    go_on(node)
    node.append(random_values(30, seed=4), at=MONDAY + 25 * HOUR)
    node.now = MONDAY + 48 * HOUR

    def export(mode):
        report = export_snapshots(
            [node.snapshot(mode)], target, engines=engines, mode=mode, tables=tuple(TABLES)
        )
        return {table.table: table for table in report.tables}

    report = export("incremental")
    assert (report["values"].rows, report["values"].replaced) == (30, 0)
    assert (len(before["feeds"]), report["feeds"].rows) == (4, 2)
    assert all(table.changed for table in report.values())
    after = {name: rows(target, name) for name in TABLES}
    assert len(after["values"]) == len(before["values"]) + 30
    assert len(after["coverage"]) == len(after["values"])
    compact_tables(target)
    removed = dict(vacuum_tables(target, keep_hours=0))
    assert removed["values"]
    assert {name: rows(target, name) for name in TABLES} == after
    report = export("full")
    assert report["values"].replaced == report["values"].rows == len(after["values"])
    assert rows(target, "values") == after["values"]
    for name, table in TABLES.items():
        columns = OpenTable.find(Folder(target), name).columns
        assert {field.name: field.metadata for field in columns} == {
            field.name: field.metadata for field in table.schema
        }

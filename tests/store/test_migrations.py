"""Steps from one schema to the next, injected, each whole or not at all."""

import pytest

from hyperbloom.store import PutMeta, SchemaMismatch, Store, WriterInline
from hyperbloom.store.migrations import MIGRATIONS, schema_version


def rename(transaction):
    transaction.put("meta", b"color", transaction.get("meta", b"colour"))
    transaction.delete("meta", b"colour")


def paint(transaction):
    transaction.put("meta", b"color", transaction.get("meta", b"color") + b", painted")


def fail(transaction):
    transaction.put("meta", b"color", b"half done")
    raise ZeroDivisionError("a step that fails")


@pytest.fixture
def path(tmp_path):
    store = Store.open(tmp_path / "store", durable=False, migrations=[])
    WriterInline(store).submit(PutMeta("colour", b"red"), lambda result: None)
    store.close()
    return tmp_path / "store"


def look(path, migrations) -> tuple[int, bytes | None]:
    store = Store.open(path, durable=False, migrations=migrations)
    try:
        return schema_version(store.environment), store.get_meta("color")
    finally:
        store.close()


def test_all_steps_are_taken_in_order_and_once(path):
    assert look(path, [rename, paint]) == (3, b"red, painted")
    assert look(path, [fail, fail]) == (3, b"red, painted")


def test_steps_may_be_taken_one_at_a_time(path):
    assert look(path, [rename]) == (2, b"red")
    assert look(path, [fail, paint]) == (3, b"red, painted")


def test_a_failing_step_changes_nothing_and_the_ones_before_stay(path):
    with pytest.raises(ZeroDivisionError):
        look(path, [rename, fail])
    assert look(path, [fail]) == (2, b"red")


def test_a_step_may_need_a_larger_map(path):
    def grow(transaction):
        for number in range(2_000):
            transaction.put("objects", b"%06d" % number, bytes(4_000))

    store = Store.open(path, durable=False, migrations=[grow], map_bytes=1)
    with store.environment.read() as txn:
        assert txn.stat(store.environment.databases["objects"])["entries"] == 2_000
    store.close()


def test_a_new_store_has_the_newest_schema_and_takes_no_step(tmp_path):
    assert look(tmp_path / "new", [fail, fail]) == (3, None)


def test_a_store_of_schema_1_gets_the_figures_of_an_empty_pool(path):
    store = Store.open(path, durable=False)
    assert schema_version(store.environment) == len(MIGRATIONS) + 1
    figures = store.object_figures()
    report = store.verify()
    store.close()
    assert (figures.count, figures.bytes, figures.digest, figures.past) == (0, 0, bytes(32), 0)
    assert report.problems == []


def test_a_newer_store_is_refused_and_stays(path):
    look(path, [rename])
    with pytest.raises(SchemaMismatch, match="install the newer"):
        look(path, [])
    assert look(path, [rename]) == (2, b"red")


def test_an_older_snapshot_is_refused_and_not_changed_by_reading(path):
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(SchemaMismatch, match="open it once"):
        Store.open_readonly(path)
    assert (path / "data.mdb").read_bytes() == before

"""A folder in which a store was: its mark, its lost file, and what a refused one leaves open."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from hyperbloom.store import PutMeta, SchemaMismatch, Store, StoreCorrupt, StoreGone, WriterInline
from hyperbloom.store.lmdb.environment import LMDB_LOCK_FILE
from hyperbloom.store.migrations import MIGRATIONS
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.store import USED_FILE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(Store.open(tmp_path / "store")) as store:
        WriterInline(store).submit(PutMeta("name", b"kept"), lambda result: None)
        store.snapshot(tmp_path / "snapshot")
    return tmp_path / "store"


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("left", [USED_FILE, LMDB_LOCK_FILE])
def test_no_store_is_begun_where_one_has_lost_its_file(path, left, create):
    for name in ("data.mdb", USED_FILE, LMDB_LOCK_FILE):
        if name != left:
            (path / name).unlink()
    with pytest.raises(StoreGone, match=r"has lost its data file, data\.mdb; restore a snapshot"):
        Store.open(path, create=create)
    assert not (path / "data.mdb").exists()
    restore_store(path.with_name("snapshot"), path, node_key=None)
    with closing(Store.open(path, create=create)) as store:
        assert store.get_meta("name") == b"kept"


def test_the_mark_says_what_it_is_for_and_is_made_once(path):
    assert "does\nnot begin a new, empty store" in (path / USED_FILE).read_text()
    (path / USED_FILE).write_text("of the operator")
    Store.open(path).close()
    assert (path / USED_FILE).read_text() == "of the operator"
    (path / USED_FILE).unlink()
    Store.open(path).close()
    assert (path / USED_FILE).exists()


def test_a_store_opens_where_no_mark_can_be_left(path):
    (path / USED_FILE).unlink()
    (path / USED_FILE).mkdir()
    with closing(Store.open(path)) as store:
        assert store.get_meta("name") == b"kept"


def test_a_refused_store_leaves_nothing_open(path, open_files):
    newer = [*MIGRATIONS, lambda transaction: None]
    Store.open(path, migrations=newer).close()
    before = open_files()
    for opener in (Store.open, Store.open_readonly):
        with pytest.raises(SchemaMismatch) as refused:
            opener(path)
        assert open_files() == before, refused
    Store.open(path, migrations=newer).close()


def test_a_closed_store_leaves_nothing_open(path, open_files):
    before = open_files()
    for opener in (Store.open, Store.open_readonly):
        store = opener(path)
        assert open_files() > before
        store.close()
        store.close()
        assert open_files() == before


def test_a_snapshots_file_is_no_link_and_a_stores_own_may_be_one(path):
    folder = path.with_name("linked")
    folder.mkdir()
    (folder / "data.mdb").symlink_to(path.with_name("snapshot") / "data.mdb")
    with closing(Store.open_readonly(folder)) as store:
        assert store.get_meta("name") == b"kept"
    shutil.copy(path.with_name("snapshot") / "snapshot.json", folder)
    with pytest.raises(StoreCorrupt, match="is a symbolic link and no plain file"):
        Store.open_readonly(folder)


@pytest.mark.parametrize("durable", [True, False])
def test_commits_are_synced_unless_it_is_said_otherwise(tmp_path, durable):
    choice = {} if durable else {"durable": False}
    with closing(Store.open(tmp_path / "store", **choice)) as store:
        flags = store.environment._env.flags()
    assert (flags["sync"], flags["metasync"], flags["readonly"]) == (durable, durable, False)


def test_a_snapshot_is_taken_at_its_moment_in_microseconds(tmp_path):
    store = Store.open(tmp_path / "store", durable=False, clock=lambda: 1.5)
    assert store.snapshot(tmp_path / "snapshot").taken_at == 1_500_000
    store.close()

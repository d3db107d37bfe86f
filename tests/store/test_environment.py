"""What LMDB's environment tells of itself, the files it needs, and the locks around it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutMeta,
    Store,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    WriterInline,
)
from hyperbloom.store.condition import Condition
from hyperbloom.store.limits import ROOM_BYTES, ROOM_SHARE
from hyperbloom.store.lmdb import environment as environments
from hyperbloom.store.lmdb.environment import LMDB_LOCK_FILE, Environment
from hyperbloom.store.lmdb.folder_lock import LOCK_FILE, FolderLock
from hyperbloom.store.lmdb.fsync import read_plain, require_plain
from hyperbloom.store.lmdb.layout import META_SCHEMA
from hyperbloom.store.lmdb.map_lock import MapLock
from hyperbloom.store.lmdb.transaction import read, write

PAGE = 4_096
ORIGIN = b"o" * 32


def test_what_is_free_is_what_a_compact_copy_leaves_out(store, run, feed, tmp_path):
    values = [b"%05d" % number + b"x" * (number % 900) for number in range(1_500)]
    run(AppendValues(feed, values, ORIGIN, 1))
    run(AppendValues(feed, [b"long" + bytes(50_000)], ORIGIN, 1))
    run(ForgetValues(feed, values[:900], erase=True))
    size = store.size()
    assert size.file_bytes == (store.path / "data.mdb").stat().st_size
    assert size.free_bytes > 0
    (tmp_path / "copy").mkdir()
    store.environment.copy(tmp_path / "copy")
    copied = (tmp_path / "copy" / "data.mdb").stat().st_size
    assert size.used_bytes - size.free_bytes == copied
    copy = Environment(tmp_path / "copy", map_bytes=0, readonly=True)
    assert (copy.size().used_bytes, copy.size().free_bytes) == (copied, 0)
    copy.close()
    (store.path / "data.mdb").unlink()
    assert store.size().file_bytes == size.used_bytes, "a file without a name"


def test_the_map_has_the_room_asked_for_and_is_whole_pages(store):
    before = store.size()
    free = before.map_bytes - before.used_bytes
    store.environment.reserve(free)
    assert store.size().map_bytes == before.map_bytes
    store.environment.reserve(free + 1)
    assert store.size().map_bytes == before.map_bytes + PAGE
    store.environment.reserve(free + 3 * PAGE)
    assert store.size().map_bytes == before.map_bytes + 3 * PAGE


def test_the_map_doubles_up_to_a_step(store, monkeypatch):
    before = store.size().map_bytes
    store.environment.grow()
    assert store.size().map_bytes == 2 * before
    monkeypatch.setattr(environments, "MAX_MAP_STEP_BYTES", 5 * PAGE)
    store.environment.grow()
    assert store.size().map_bytes == 2 * before + 5 * PAGE


def test_the_table_of_readers_has_room_for_all_and_no_holes(tmp_path, monkeypatch):
    written, pwrite = [], os.pwrite

    def noted(descriptor, data, at):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        if name == LMDB_LOCK_FILE:
            written.append((at, len(data)))
        return pwrite(descriptor, data, at)

    Store.open(tmp_path / "store").close()
    table = tmp_path / "store" / LMDB_LOCK_FILE
    monkeypatch.setattr(os, "pwrite", noted)
    size = table.stat().st_size
    assert size >= 64 * environments.MAX_READERS
    for length in (size, 1_000, 0):
        os.truncate(table, length)
        Store.open(tmp_path / "store").close()
        assert written.pop() == (length, size - length)
        assert table.stat().st_size == size


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_table_of_readers_without_room_is_a_full_disk(store, monkeypatch, number):
    path = store.path
    store.close()
    (path / LMDB_LOCK_FILE).unlink()

    def fails(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        with pytest.raises(StoreFull, match="make room and try again"):
            Environment(path, map_bytes=0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda descriptor, data, at: len(data) - 1)
        with pytest.raises(StoreFull, match="make room and try again"):
            Environment(path, map_bytes=0)
    Environment(path, map_bytes=0).close()


def test_a_table_of_readers_that_cannot_be_opened_is_left_to_lmdb(store, open_files):
    path = store.path
    store.close()
    (path / LMDB_LOCK_FILE).unlink()
    (path / LMDB_LOCK_FILE).mkdir()
    before = open_files()
    with pytest.raises(StoreError, match=r"see the disk"):
        Environment(path, map_bytes=0)
    assert open_files() == before


def test_what_was_opened_for_a_store_that_is_refused_is_closed(tmp_path, open_files):
    lmdb.open(str(tmp_path)).close()
    before = open_files()
    with pytest.raises(StoreCorrupt) as refused:
        Environment(tmp_path, map_bytes=0)
    assert open_files() == before, refused


def test_what_was_opened_for_a_damaged_store_is_closed(store, open_files):
    path = store.path
    store.close()
    content = bytearray((path / "data.mdb").read_bytes())
    for page in range(2 * PAGE, len(content), PAGE):
        content[page + 10] = 4  # no page of a tree
    (path / "data.mdb").write_bytes(content)
    before = open_files()
    with pytest.raises(StoreCorrupt, match=r"is damaged .*restore a snapshot") as refused:
        Environment(path, map_bytes=0)
    assert open_files() == before, refused


def told(condition: Condition) -> list[object]:
    problems: list[object] = []
    condition.listener = lambda: problems.append(condition.problem)
    return problems


def test_a_listener_is_told_of_failed_writes_and_of_the_commit_that_ends_them(store, run):
    problems = told(store.condition)

    class Fails(PutMeta):
        def apply(self, transaction):
            raise lmdb.Error("on purpose")

    run(PutMeta("a", b"1"))
    assert problems == []
    for failures in (1, 2):
        with pytest.raises(StoreError, match="on purpose"):
            run(Fails("a", b"2"))
        assert store.condition.failures == failures
        assert problems[-1] is store.condition.trouble
    assert len(problems) == 2
    write(store.environment, lambda transaction: None)
    assert len(problems) == 2, "a commit of nothing tells nothing of the disk"
    run(PutMeta("a", b"3"))
    run(PutMeta("a", b"4"))
    assert problems[2:] == [None]
    assert (store.condition.failures, store.condition.damage) == (0, None)


def test_damage_is_told_once_and_does_not_heal(store, run, feed):
    problems = told(store.condition)

    def spoil(transaction):
        transaction.put("feeds", b"h" * 32, b"short")

    write(store.environment, spoil)
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            store.feed(b"h" * 32)
    first = store.condition.damage
    assert problems == [first]
    with pytest.raises(StoreCorrupt):
        run(AppendValues(b"h" * 32, [b"a"], ORIGIN, 1))
    assert store.condition.trouble is not None
    assert problems[1:] == [store.condition.trouble]
    run(PutMeta("a", b"1"))
    assert store.condition.problem is store.condition.damage is first


def test_a_full_disk_is_one_until_there_is_room():
    """A small write that finds a free page is no sign of room."""
    rooms = [False, False, True]
    told = []
    condition = Condition(lambda: rooms.pop(0))
    condition.listener = lambda: told.append(condition.trouble)
    full = StoreFull("full")
    condition.failed(full)
    condition.committed()
    condition.committed()
    assert (condition.trouble, condition.failures) == (full, 1)
    condition.committed()
    assert (condition.trouble, condition.failures) == (None, 0)
    assert told == [full, None]
    assert rooms == []
    condition.committed()  # nothing is looked at while all is well
    condition.failed(StoreError("read-only"))
    condition.committed()  # nor for other troubles
    assert condition.problem is None


@pytest.mark.parametrize(
    ("free", "whole", "has_room"),
    [
        (ROOM_BYTES, 1 << 40, True),
        (ROOM_BYTES - 4_096, 1 << 40, False),
        (4_096, ROOM_SHARE * 4_096, True),
        (0, ROOM_SHARE * 4_096, False),
    ],
)
def test_how_much_room_is_room(store, monkeypatch, free, whole, has_room):
    found = SimpleNamespace(f_bavail=free // 4_096, f_blocks=whole // 4_096, f_frsize=4_096)
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    store.condition.failed(StoreFull("full"))
    WriterInline(store).submit(PutMeta("a", b"1"), lambda _: None)
    assert (store.condition.trouble is None) == has_room


def test_damage_that_a_write_meets_first_is_kept():
    condition = Condition()
    damage = StoreCorrupt("first")
    condition.failed(damage)
    condition.failed(StoreCorrupt("second"))
    condition.committed()
    assert (condition.damage, condition.problem, condition.trouble) == (damage, damage, None)
    condition.failed(StoreFull("full"))
    assert condition.damage is damage


def test_a_schema_is_four_bytes_or_none(store):
    for version, found in ((b"\0\0\0\5", 5), (b"\5", 0), (b"\0\0\0\0\5", 0)):
        write(store.environment, lambda txn, v=version: txn.put("meta", META_SCHEMA, v))
        with read(store.environment) as transaction:
            assert transaction.schema == found


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("is_guest", [False, True])
@pytest.mark.parametrize(
    "make", [Path.mkdir, make_fifo, lambda path: path.symlink_to(path.with_name("other"))]
)
def test_a_lock_is_a_plain_file(tmp_path, open_files, make, is_guest):
    (tmp_path / "other").write_text("another file of this user")
    make(tmp_path / LOCK_FILE)
    before = open_files()
    with pytest.raises(StoreError, match="is no plain file; remove it"):
        FolderLock(tmp_path, is_guest=is_guest)
    assert open_files() == before
    assert (tmp_path / "other").read_text() == "another file of this user"


def test_a_guest_writes_nothing_and_keeps_others_out(tmp_path):
    with pytest.raises(FileNotFoundError):
        FolderLock(tmp_path, is_guest=True)
    assert os.listdir(tmp_path) == []
    (tmp_path / LOCK_FILE).write_text("77\n")
    guest = FolderLock(tmp_path, is_guest=True)
    for is_guest in (False, True):
        with pytest.raises(StoreLocked, match="in use by process 77;"):
            FolderLock(tmp_path, is_guest=is_guest)
    assert (tmp_path / LOCK_FILE).read_text() == "77\n"
    guest.release()
    FolderLock(tmp_path).release()


def test_a_lock_that_names_nobody_says_so(tmp_path):
    (tmp_path / LOCK_FILE).touch()
    guest = FolderLock(tmp_path, is_guest=True)
    with pytest.raises(StoreLocked, match="in use by process unknown;"):
        FolderLock(tmp_path)
    guest.release()


def test_a_lock_is_given_up_once_and_closes_nothing_of_others(tmp_path):
    lock = FolderLock(tmp_path)
    lock.release()
    with (tmp_path / "next").open("wb") as following:
        lock.release()
        following.write(b"still open")
    again = FolderLock(tmp_path)
    with pytest.raises(StoreLocked):
        FolderLock(tmp_path)
    again.release()


def test_a_lock_is_given_up_in_a_process_without_standard_input(tmp_path):
    kept = os.dup(0)
    os.close(0)
    try:
        for _ in range(2):
            FolderLock(tmp_path).release()
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_lock_that_cannot_name_its_process_is_given_up(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        with pytest.raises(OSError, match="No space left"):
            FolderLock(tmp_path)
    FolderLock(tmp_path).release()


def test_one_after_the_other_is_alone_with_the_map():
    map_lock = MapLock()
    inside = threading.Event()

    def second():
        with map_lock.exclusive():
            inside.set()

    thread = threading.Thread(target=second)
    with map_lock.exclusive():
        thread.start()
        assert not inside.wait(0.02)
    thread.join(240)
    assert inside.is_set()


@pytest.mark.parametrize(("length", "is_read"), [(9, True), (10, True), (11, False)])
def test_a_plain_file_is_read_to_its_limit(tmp_path, length, is_read):
    (tmp_path / "file").write_bytes(b"x" * length)
    if is_read:
        assert read_plain(tmp_path / "file", 10) == b"x" * length
    else:
        with pytest.raises(StoreCorrupt, match="longer than 10 bytes"):
            read_plain(tmp_path / "file", 10)


@pytest.mark.parametrize("make", [make_fifo, lambda path: path.symlink_to(path.parent / "secret")])
def test_what_is_exchanged_while_it_is_opened_is_not_read(tmp_path, monkeypatch, make):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "it").write_bytes(b"plain")
    real = os.open

    def exchange(path, flags, *more, **named):
        os.unlink(path)
        make(path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises((StoreCorrupt, OSError)):
        read_plain(tmp_path / "it", 10)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (Path.mkdir, "a folder"),
        (make_fifo, "a FIFO"),
        (lambda path: path.symlink_to("/dev/null"), "a symbolic link"),
    ],
)
def test_what_is_no_plain_file_is_not_opened(tmp_path, make, kind):
    make(tmp_path / "it")
    for look in (require_plain, lambda path: read_plain(path, 10)):
        with pytest.raises(StoreCorrupt, match=f"is {kind} and no plain file"):
            look(tmp_path / "it")

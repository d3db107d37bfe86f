"""A full disk: callers are told, reading goes on, and so does writing once there is room.

A file-size limit stands in for the full disk, in a process of its own; where it may be mounted, a
small tmpfs is the real thing.
"""

import errno
import os
import subprocess
import sys
import textwrap
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hyperbloom.store import (
    PutMeta,
    Store,
    StoreClosed,
    StoreError,
    StoreFull,
    WriterInline,
)
from hyperbloom.store.lmdb.environment import LMDB_LOCK_FILE

SCRIPT = """
import resource, signal, sys
from pathlib import Path
from hyperbloom.store import AppendValues, PutFeed, PutMeta, Store, StoreFull, Writer, WriterInline
from hyperbloom.store.records import Appended

path, kind = Path(sys.argv[1]), sys.argv[2]
FEED, ORIGIN = b"f" * 32, b"o" * 32
MEGABYTE = 1 << 20

def room(megabytes):
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes * MEGABYTE, resource.RLIM_INFINITY))
    else:
        import subprocess
        size = f"remount,size={megabytes}m"
        subprocess.run(["mount", "-o", size, str(path.parent)], check=True)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store.open(path)
answers = []
room(4)

def write(start):
    values = [b"%08d" % n + b"x" * 900 for n in range(start, start + 100)]
    writer = Writer(store, deliver=lambda answer: answer())
    writer.submit(AppendValues(FEED, values, ORIGIN, 1), answers.append)
    writer.close()
    return answers[-1]

WriterInline(store).submit(PutFeed(FEED, {}), answers.append)
stored = 0
while isinstance(write(stored), Appended):
    stored += 100
assert 1000 < stored < 5000, stored
for _ in range(3):
    assert isinstance(write(stored), StoreFull), answers[-1]
    assert str(path) in str(answers[-1]), answers[-1]
    assert store.feed(FEED).count == stored
    assert len(store.range_slice(FEED, limit=10, max_bytes=MEGABYTE).values) == 10
    WriterInline(store).submit(PutMeta("small", b"1"), answers.append)
    if kind == "mount" and answers[-1] is None:
        assert store.condition.trouble is not None, "a small write is no sign of room"
try:
    store.snapshot(path.parent / "copy")
except StoreFull:
    assert kind == "mount"
else:
    assert kind == "limit"
assert not list(path.parent.glob(".copy*"))
room(16)
assert isinstance(write(stored), Appended), answers[-1]
assert store.feed(FEED).count == stored + 100
assert store.condition.trouble is None
report = store.verify()
assert report.ok, report.problems
store.close()
print("fine")
"""


def run_script(path: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), kind],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "fine\n", done.stderr


def test_a_file_that_may_not_grow(tmp_path):
    run_script(tmp_path / "store", "limit")
    store = Store.open(tmp_path / "store")
    assert store.verify().ok
    store.close()


@contextmanager
def full_disk(disk, size):
    """A file system of its own that is soon full."""
    disk.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_system_without_room(tmp_path):
    with full_disk(tmp_path / "disk", "4m") as disk:
        run_script(disk / "store", "mount")


NO_ROOM_AT_ALL = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from hyperbloom.store import StoreError, StoreFull, StoreLocked
    from hyperbloom.store.restoring.seed import seed_store
    snapshot, disk = map(Path, sys.argv[1:])
    (disk / "new").mkdir()
    rest = open(disk / "rest", "wb", buffering=0)
    pages = 0
    try:
        while True:
            pages += bool(rest.write(bytes(4096)))
    except OSError:
        pass
    answers = []
    for free in range(6):
        try:
            seed_store(snapshot, disk / "new", feeds=None, now=1.7e9)
        except StoreError as error:
            answers.append(type(error).__name__)
        rest.truncate((pages - free - 1) * 4096)
    print(*sorted(set(answers)), len(answers))
    """
)


def test_a_disk_without_a_page_left_for_lmdbs_lock(tmp_path):
    """LMDB writes the table of readers through a map, which a full disk ends with a SIGBUS."""
    store = Store.open(tmp_path / "store")
    store.snapshot(tmp_path / "snapshot")
    store.close()
    with full_disk(tmp_path / "disk", "1m") as disk:
        done = subprocess.run(
            [sys.executable, "-c", NO_ROOM_AT_ALL, str(tmp_path / "snapshot"), str(disk)],
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert (done.returncode, done.stdout) == (0, "StoreError StoreFull 6\n"), done.stderr


def test_a_store_whose_meta_page_could_not_be_written_opens_itself_anew(tmp_path):
    store = Store.open(tmp_path / "store")
    writer, answers = WriterInline(store), []
    writer.submit(PutMeta("a", b"1"), answers.append)
    let_meta_pages_fail(tmp_path / "store")
    writer.submit(PutMeta("a", b"2"), answers.append)
    assert isinstance(answers[1], StoreError)
    writer.submit(PutMeta("b", b"3"), answers.append)
    assert answers[2] is None
    assert store.get_meta("b") == b"3"
    assert store.verify().ok
    store.close()


def test_a_store_that_cannot_open_itself_anew_is_closed(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store")
    writer, answers = WriterInline(store), []
    writer.submit(PutMeta("a", b"1"), answers.append)
    let_meta_pages_fail(tmp_path / "store")

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    # Its table of readers has to be written anew, and there is no room for that.
    (tmp_path / "store" / LMDB_LOCK_FILE).unlink()
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", no_room)
        writer.submit(PutMeta("a", b"2"), answers.append)
    assert isinstance(answers[1], StoreFull)
    with pytest.raises(StoreClosed, match="open it again"):
        store.get_meta("a")
    writer.submit(PutMeta("a", b"3"), answers.append)
    assert isinstance(answers[2], StoreClosed)
    store.close()
    with closing(Store.open(tmp_path / "store")) as opened:
        assert opened.get_meta("a") in (b"1", b"2")


def let_meta_pages_fail(folder: Path) -> None:
    """LMDB writes its meta pages through a descriptor of their own, a synced one."""
    data = str(folder / "data.mdb")
    synced = [one for one in map(int, os.listdir("/proc/self/fd")) if is_synced_file(one, data)]
    assert synced
    read_only = os.open(data, os.O_RDONLY)
    for descriptor in synced:
        os.dup2(read_only, descriptor)
    os.close(read_only)


def is_synced_file(descriptor: int, path: str) -> bool:
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            return False
        flags = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split("flags:")[1].split()[0]
    except OSError:
        return False
    return bool(int(flags, 8) & os.O_DSYNC)

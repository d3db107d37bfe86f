"""The LMDB environment: its files, its lock, its map, and the way into a transaction.

LMDB is a copy-on-write B+tree in one memory-mapped file. One writer and any number of readers go
on at the same time; a reader sees the state at its begin and never waits. A commit writes the
changed pages, syncs, and then flips one of two meta pages, so that a crash at any moment leaves the
last committed state. What needs care (py-lmdb's cautions, LMDB's ``lmdb.h``):

- A store is opened once in a process (folder_lock.py).
- No environment crosses a fork; the process id is checked on every way in.
- The map is address space, given when it is made. When it is full, the transaction fails, and the
  map can be enlarged only while no transaction is open (map_lock.py).
- Every call gives the interpreter lock up, which makes a busy process slow (gil.py).
- A process that reads beside the one that writes stands in the table of readers, so that no page
  that it reads is used anew, until it ends its transaction or is found dead. Its map does not grow
  with the writer's: it takes over that size when a transaction finds its own too small.
- A file that is removed or replaced stays open, and takes commits that nobody will find again.
  Before and after each commit the file at the path must be the open one, or it is no success.
- A page behind the end of the file is a SIGBUS and not an error, so the file's length is compared
  with the meta pages before LMDB touches it (datafile.py). So is a page of the table of readers
  for which the disk has no room: LMDB makes that file with holes, so we make it, without.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import lmdb

from hyperbloom.store.condition import Condition
from hyperbloom.store.errors import (
    SchemaMismatch,
    StoreClosed,
    StoreCorrupt,
    StoreFull,
    StoreGone,
)
from hyperbloom.store.limits import MAX_MAP_STEP_BYTES, MAX_READERS, ROOM_BYTES, ROOM_SHARE
from hyperbloom.store.lmdb.datafile import check_data_file
from hyperbloom.store.lmdb.failures import NO_ROOM, no_room, translated
from hyperbloom.store.lmdb.gil import short_switch_interval
from hyperbloom.store.lmdb.layout import ADDED_LATER, DATABASES, META_FORMAT, STORE_FORMAT
from hyperbloom.store.lmdb.map_lock import MapLock
from hyperbloom.store.records import StoreSize

__all__ = [
    "COMPACTING",
    "DATA_FILE",
    "LMDB_LOCK_FILE",
    "Environment",
    "MapFull",
]

DATA_FILE = "data.mdb"
LMDB_LOCK_FILE = "lock.mdb"
COMPACTING = ".compacting"
"""The folder in which a compacted copy is made (compaction.py)."""

_SPARE_TRANSACTIONS = 16
_SMALLEST_MAP = 64 * 1024
_META_PAGES = 2
#: LMDB's head of the table of readers takes a few slots of 64 bytes beside those of the readers.
_READER_TABLE_BYTES = 64 * (MAX_READERS + 16)


class MapFull(Exception):
    """The map is full: enlarge it and do the transaction again."""


class Environment:
    """One open LMDB environment; reads from any thread, one write at a time.

    With ``readonly`` nobody writes to it, unless ``beside`` says that another process does. With
    ``older`` it may lack databases that its schema did not have, and is read nevertheless.
    Raises StoreCorrupt if the files are damaged or foreign, StoreFull without room to create them.
    """

    def __init__(
        self,
        path: Path,
        *,
        map_bytes: int,
        durable: bool = True,
        readonly: bool = False,
        beside: bool = False,
        older: bool = False,
        create: bool = False,
    ) -> None:
        self.path = path
        self._create = create
        self.readonly = readonly
        self._beside = beside
        self._may_lack = frozenset(DATABASES) if older else ADDED_LATER
        # 0: as large as the other process has it.
        self._map_bytes = 0 if beside else max(map_bytes, _SMALLEST_MAP)
        self._durable = durable
        self._pid = os.getpid()
        self._map_lock = MapLock()
        self._write_lock = threading.Lock()
        self._closed = False
        self.condition = Condition(self._has_room)
        self._data_file = path / DATA_FILE
        self._identity: tuple[int, int] | None = None
        self.databases: dict[str, lmdb._Database] = {}
        self._open()

    def _open(self) -> None:
        if not self._beside:  # the other process did, and changes the file meanwhile
            check_data_file(self._data_file)
        # From 3.0 on py-lmdb knows two file formats; the check above and we know the first.
        engine: dict[str, Any] = (
            {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}
        )
        if not self.readonly:
            _make_reader_table(self.path)
        try:
            self._env = lmdb.open(
                str(self.path),
                map_size=self._map_bytes,
                max_dbs=len(DATABASES),
                max_readers=MAX_READERS,
                max_spare_txns=_SPARE_TRANSACTIONS,
                mode=0o600,
                sync=self._durable,
                metasync=self._durable,
                readonly=self.readonly,
                create=self._create,
                lock=not self.readonly or self._beside,
                **engine,
            )
        except lmdb.Error as error:
            raise translated(error, self._data_file) from error
        try:
            self._identity = self._find_identity()
            if not self.readonly:
                self._env.reader_check()
            self._open_databases()
        except BaseException as error:
            self._env.close()
            if isinstance(error, lmdb.Error):
                raise translated(error, self._data_file) from error
            raise

    def _find_identity(self) -> tuple[int, int]:
        """Device and number of the file at the path, which no other has while this one is open."""
        found = os.stat(self._data_file)
        return found.st_dev, found.st_ino

    def _has_room(self) -> bool:
        """Whether the disk has room enough to be called full no more."""
        disk = os.statvfs(self.path)
        free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        return free >= min(ROOM_BYTES, whole // ROOM_SHARE)

    def _require_file(self) -> None:
        """Raise StoreGone unless the file at the path is the open one."""
        try:
            found = os.stat(self._data_file)
        except OSError as error:
            raise self._gone(f"is not there any more ({error.strerror})") from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise self._gone("is not the file that was opened")

    def _gone(self, what: str) -> StoreGone:
        return StoreGone(
            f"{self._data_file} {what}, so nothing is written: what is written now would be lost; "
            "take a snapshot of the running node, which still has the old file open, stop it, "
            "and restore that snapshot with --replace"
        )

    def _open_databases(self) -> None:
        if not self._create:
            self._check_mark()
        while True:
            try:
                self.databases = {name: self._open_database(name) for name in self._names()}
                return
            except lmdb.MapFullError:
                self._enlarge(self._env.info()["map_size"])
            except lmdb.NotFoundError:
                raise SchemaMismatch(
                    f"the store {self.path} was written by an older version; open it once with a "
                    "node to bring it up to date"
                ) from None

    def _names(self) -> list[str]:
        """The databases to open: of a snapshot, those that its version had."""
        if not self.readonly:
            return list(DATABASES)
        with self._env.begin() as txn:
            there = set(txn.cursor().iternext(values=False))
        return [name for name in DATABASES if name.encode() in there or name not in self._may_lack]

    def _check_mark(self) -> None:
        """Before anything is written into it: is the file a store at all?"""
        try:
            meta = self._env.open_db(b"meta", create=False)
            with self._env.begin() as txn:
                mark = txn.get(META_FORMAT, db=meta)
        except (lmdb.NotFoundError, lmdb.IncompatibleError):
            mark = None
        if mark != STORE_FORMAT:
            raise self._foreign()

    def _open_database(self, name: str) -> "lmdb._Database":
        # A database that a later schema adds is made here, when an older store is opened.
        return self._env.open_db(name.encode(), create=not self.readonly)

    def _foreign(self) -> StoreCorrupt:
        return StoreCorrupt(
            f"{self.path} is no hyperbloom store; name the folder of one, or an empty one"
        )

    def close(self) -> None:
        """Wait for the readers and the writer to leave, then close. A second call does nothing."""
        if self._pid != os.getpid():
            return
        with self._write_lock, self._map_lock.exclusive():
            if not self._closed:
                self._closed = True
                self._env.close()

    @contextmanager
    def read(
        self, *, long: bool = False, in_place: bool = False
    ) -> Iterator["lmdb.Transaction[bytes]"]:
        """A read transaction. Not reentrant.

        To be left within milliseconds, for all others wait for it when the map grows; one that
        cannot is ``long``, and only the writer waits for it. With ``in_place`` what it gives is no
        bytes but views of the map, none of which may be used behind the block. Raises StoreClosed,
        StoreCorrupt for damage and for a record that cannot be read in the block, and StoreError.
        """
        self._check_process()
        self._map_lock.acquire_shared(long=long)
        try:
            if self._closed:
                raise StoreClosed(f"the store {self.path} is closed; open it again")
            with short_switch_interval(), self._begin(in_place) as txn:
                yield txn
        except (lmdb.Error, struct.error) as error:
            problem = translated(error, self._data_file)
            if isinstance(problem, StoreCorrupt):
                self.condition.found_damage(problem)
            raise problem from error
        finally:
            self._map_lock.release_shared(long=long)

    def _begin(self, in_place: bool) -> "lmdb.Transaction[bytes]":
        begin = cast("Callable[..., lmdb.Transaction[bytes]]", self._env.begin)
        try:
            return begin(buffers=in_place)
        except lmdb.MapResizedError:
            # Only beside another process, whose map has grown; no other thread reads here.
            self._env.set_mapsize(0)
            return begin(buffers=in_place)

    def drop_dead_readers(self) -> int:
        """Let go what processes kept from being used anew that died while they read; how many.

        Raises StoreClosed and StoreError.
        """
        self._check_process()
        self._map_lock.acquire_shared()
        try:
            if self._closed:
                raise StoreClosed(f"the store {self.path} is closed; open it again")
            return int(self._env.reader_check())
        except lmdb.Error as error:
            raise translated(error, self._data_file) from error
        finally:
            self._map_lock.release_shared()

    @contextmanager
    def write(self) -> Iterator["lmdb.Transaction[bytes]"]:
        """The write transaction; committed (and synced, if durable) at the end of the block.

        Raises MapFull when the caller must ``grow`` and do it again, StoreFull on a full disk,
        StoreGone if the file is not at its path any more, StoreClosed, StoreCorrupt and StoreError.
        Any exception aborts it.
        """
        self._check_process()
        with self._write_lock:
            if self._closed:
                raise StoreClosed(f"the store {self.path} is closed; open it again")
            try:
                self._require_file()
                with short_switch_interval(), self._env.begin(write=True) as txn:
                    number = txn.id()
                    yield txn
                self._require_file()
            except lmdb.MapFullError as error:
                raise MapFull from error
            except (lmdb.Error, StoreGone, struct.error) as error:
                problem = translated(error, self._data_file)
                self.condition.failed(problem)
                if isinstance(error, lmdb.Error):
                    self._reopen_after_panic()
                raise problem from error
            # One that changes nothing is committed on a disk that takes no writes, too.
            if self._env.info()["last_txnid"] == number:
                self.condition.committed()

    def grow(self) -> None:
        """Double the map (at most MAX_MAP_STEP_BYTES more), once nobody reads.

        Raises StoreFull if the process may not have so much address space.
        """
        with self._write_lock, self._map_lock.exclusive():
            self._enlarge(self._env.info()["map_size"])

    def reserve(self, free_bytes: int) -> None:
        """Make sure that the map has so many bytes free, so that writes do not soon need more.

        Raises as `grow` does.
        """
        with self._write_lock:
            size = self.size()
            missing = free_bytes - (size.map_bytes - size.used_bytes)
            if missing > 0:
                with self._map_lock.exclusive():
                    self._enlarge(missing)

    def _enlarge(self, extra: int) -> None:
        page = self._env.stat()["psize"]
        size = self._env.info()["map_size"] + min(extra, MAX_MAP_STEP_BYTES)
        size = (size + page - 1) // page * page
        try:
            self._env.set_mapsize(size)
        except lmdb.Error as error:
            raise StoreFull(
                f"the store {self.path} cannot have a map of {size} bytes ({error}); "
                "allow the process more address space"
            ) from error
        self._map_bytes = size

    def _reopen_after_panic(self) -> None:
        """Open anew if a meta page could not be written: LMDB refuses all use from then on.

        Raises StoreGone if the path leads to another file by now.
        """
        try:
            self._env.begin(write=not self.readonly).abort()
        except lmdb.PanicError:
            self._require_file()
            with self._map_lock.exclusive():
                self._env.close()
                self._closed = True
                self._open()
                self._closed = False
        except lmdb.Error:
            return

    def copy(self, target: Path) -> None:
        """Write a compacted copy of the last committed state into the existing folder target.

        Raises StoreClosed, StoreFull without room for it, StoreCorrupt and StoreError.
        """
        self._check_process()
        self._map_lock.acquire_shared(long=True)
        try:
            if self._closed:
                raise StoreClosed(f"the store {self.path} is closed; open it again")
            self._env.copy(str(target), compact=True)
        except lmdb.Error as error:
            raise translated(error, self._data_file, target) from error
        finally:
            self._map_lock.release_shared(long=True)

    def size(self) -> StoreSize:
        """How large the map, its used part and the file are."""
        with self.read() as txn:
            info, page = self._env.info(), self._env.stat()["psize"]
            used = info["last_pgno"] + 1
            tables = [txn.stat(), *map(txn.stat, self.databases.values())]
            live = sum(t["branch_pages"] + t["leaf_pages"] + t["overflow_pages"] for t in tables)
        return StoreSize(
            map_bytes=info["map_size"],
            used_bytes=used * page,
            free_bytes=max(0, used - _META_PAGES - live) * page,
            file_bytes=self._file_bytes(used * page),
        )

    def _file_bytes(self, used: int) -> int:
        """The file's length; its used part if the file has no name any more."""
        try:
            return os.stat(self._data_file).st_size
        except OSError:
            return used

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreClosed(
                f"the store {self.path} was opened by process {self._pid} and cannot be used "
                "after a fork; open it in the child"
            )


def _make_reader_table(folder: Path) -> None:
    """Give the table of readers all its pages, while a lack of room is still an error."""
    try:
        descriptor = os.open(folder / LMDB_LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            missing = max(0, _READER_TABLE_BYTES - size)
            written = os.pwrite(descriptor, bytes(missing), size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(folder) from error
        return  # LMDB finds the same, and its word counts.
    if written < missing:
        raise no_room(folder)

"""The store: one folder, one LMDB environment, everything a node keeps.

A Store reads, by its three readers, wherever it is called, from any thread, each time in one short
transaction. Writes are operations (operations.py), and go through a Writer.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hyperbloom.store.backup.snapshot import SNAPSHOT_FILE, take_snapshot
from hyperbloom.store.backup.verify import Progress, verify_environment
from hyperbloom.store.condition import Condition
from hyperbloom.store.errors import StoreCorrupt, StoreError, StoreGone
from hyperbloom.store.limits import DEFAULT_MAP_BYTES
from hyperbloom.store.lmdb.environment import (
    COMPACTING,
    DATA_FILE,
    LMDB_LOCK_FILE,
    Environment,
)
from hyperbloom.store.lmdb.folder_lock import FolderLock
from hyperbloom.store.lmdb.fsync import require_plain, sync
from hyperbloom.store.migrations import MIGRATIONS, Migration, check_schema, initialize, migrate
from hyperbloom.store.objects.reading import ObjectReader
from hyperbloom.store.records import DiskSize, SnapshotInfo, StoreSize, VerifyReport
from hyperbloom.store.sketches.reading import SketchReader
from hyperbloom.store.tables.reading import TableReader

__all__ = ["NEW_FOLDER", "USED_FILE", "Store"]

NEW_FOLDER = ".new-store"
"""Inside a store's folder: where its file is made before it gets its name."""
USED_FILE = "store.used"
"""Says that a store was in the folder once: without its data file no new one is begun silently."""
_MICROSECONDS = 1_000_000
_USED_TEXT = b"""\
The store of a hyperbloom node was opened in this folder. As long as this file is here, a node does
not begin a new, empty store when data.mdb is missing: restore a snapshot, or remove the folder.
"""


class Store(SketchReader, TableReader, ObjectReader):
    """An open store. Made by ``open`` (for a node), ``open_readonly`` (for a snapshot) or
    ``open_beside`` (for a process that reads what a running node writes).

    Every method may raise StoreClosed, StoreCorrupt or StoreError; those that name a feed raise
    NoSuchFeed if the store does not hold it.
    """

    def __init__(
        self,
        environment: Environment,
        lock: FolderLock | None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(environment)
        self._lock = lock
        self._clock = clock

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        durable: bool = True,
        create: bool = True,
        migrations: Sequence[Migration] = MIGRATIONS,
        clock: Callable[[], float] = time.time,
    ) -> "Store":
        """Open the store in this folder, and make one if there is none and ``create`` says so.

        ``map_bytes`` is the map's first size; it grows by itself. Without ``durable`` a commit is
        not synced (for tests). Raises StoreLocked, StoreCorrupt, SchemaMismatch, StoreFull,
        StoreGone if a store was here and its file is not, and StoreError if there is no store and
        none is to be made.
        """
        _prepare_folder(path, create)
        lock = FolderLock(path)
        try:
            if not os.path.lexists(path / DATA_FILE):
                _refuse_lost(path)
                if not create:
                    raise StoreError(f"there is no store in {path}; name the folder of one")
                _create(path, map_bytes, migrations)
            for left in (COMPACTING, NEW_FOLDER):  # by a compaction or a restore that was killed
                shutil.rmtree(path / left, ignore_errors=True)
            environment = Environment(path, map_bytes=map_bytes, durable=durable)
            try:
                migrate(environment, migrations)
                _mark_used(path)
            except BaseException:
                environment.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(environment, lock, clock)

    @classmethod
    def open_readonly(cls, path: Path) -> "Store":
        """Open a snapshot, or another store that no node runs on, for reading only.

        Nothing is written into its folder. Raises StoreCorrupt, SchemaMismatch, and StoreError if
        there is no store.
        """
        if not os.path.lexists(path / DATA_FILE):
            raise StoreError(f"there is no store in {path}; name the folder of one")
        if os.path.lexists(path / SNAPSHOT_FILE):
            require_plain(path / DATA_FILE)
        return cls._readable(Environment(path, map_bytes=0, readonly=True))

    @classmethod
    def open_beside(cls, path: Path) -> "Store":
        """Open the store of a running node for reading, in a process of the same user, one thread.

        Every read sees what the node has committed by then. What is read is not used anew until the
        read is over, so reads have to be short; if this process dies in one, the node's
        ``drop_dead_readers`` ends it. Raises as ``open_readonly`` does.
        """
        if not os.path.lexists(path / LMDB_LOCK_FILE):
            raise StoreError(f"there is no store of a node in {path}; name the folder of one")
        return cls._readable(Environment(path, map_bytes=0, readonly=True, beside=True))

    @classmethod
    def _readable(cls, environment: Environment) -> "Store":
        try:
            check_schema(environment)
        except BaseException:
            environment.close()
            raise
        return cls(environment, None, time.time)

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.environment.path

    @property
    def condition(self) -> Condition:
        """Whether it takes writes, and what was found damaged."""
        return self.environment.condition

    def close(self) -> None:
        """Wait for running reads and the running write, then close. Again: nothing."""
        self.environment.close()
        if self._lock is not None:
            self._lock.release()

    def snapshot(self, target: Path, progress: Progress | None = None) -> SnapshotInfo:
        """Copy the last committed state into the new folder ``target``, whole or not at all.

        Others read and write meanwhile. Takes as long as copying the values does; ``progress`` gets
        the bytes so far, and about how many there will be. Raises StoreError if the target exists
        or cannot be written, StoreFull without room for it.
        """
        taken_at = int(self._clock() * _MICROSECONDS)
        return take_snapshot(self.environment, target, taken_at=taken_at, progress=progress)

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Walk everything and name what is wrong; see verify.py. Others read and write meanwhile.

        Takes some seconds for a million values, so not in the event loop's thread.
        """
        return verify_environment(self.environment, progress)

    def drop_dead_readers(self) -> int:
        """End the reads of processes that died in one (``open_beside``); how many there were."""
        return self.environment.drop_dead_readers()

    def size(self) -> StoreSize:
        """How large the map, its used part and the file are."""
        return self.environment.size()

    def disk(self) -> DiskSize | None:
        """How large the file system with the store is, and its free part; None: it does not say.

        The map grows by itself, so what is free there is what the store may grow by.
        """
        try:
            found = os.statvfs(self.path)
        except OSError:
            return None
        return DiskSize(
            size_bytes=found.f_blocks * found.f_frsize, free_bytes=found.f_bavail * found.f_frsize
        )


def _prepare_folder(path: Path, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise StoreCorrupt(f"{path} is no folder; name the folder of a store")
    if not path.exists():
        if not create:
            raise StoreError(f"there is no store in {path}; name the folder of one")
        path.mkdir(mode=0o700, parents=True)


def _refuse_lost(path: Path) -> None:
    """Raise StoreGone where a store was once, by our mark or by LMDB's table of readers."""
    if any(os.path.lexists(path / name) for name in (USED_FILE, LMDB_LOCK_FILE)):
        raise StoreGone(
            f"the store {path} has lost its data file, {DATA_FILE}; restore a snapshot "
            f"(`hyperbloom restore SNAPSHOT`), or, to begin anew without its values, remove {path}"
        )


def _mark_used(path: Path) -> None:
    """Leave the mark; a disk that cannot take it is no reason not to open the store."""
    try:
        descriptor = os.open(
            path / USED_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except OSError:
        return
    with os.fdopen(descriptor, "wb") as file, suppress(OSError):
        file.write(_USED_TEXT)


def _create(path: Path, map_bytes: int, migrations: Sequence[Migration]) -> None:
    """Make a store aside and move it into place, so that a crash leaves none or a whole one."""
    aside = path / NEW_FOLDER
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    environment = Environment(aside, map_bytes=map_bytes, create=True)
    try:
        initialize(environment, migrations)
    finally:
        environment.close()
    (aside / DATA_FILE).rename(path / DATA_FILE)
    shutil.rmtree(aside)
    sync(path)

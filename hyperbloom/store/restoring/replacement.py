"""A new store in the place of another one, or of none.

The new store is made in a folder inside the target, compared with what the snapshot says of itself,
synced, and one rename gives its file the real name. A process that is killed meanwhile leaves what
was there: the old store, or none. The folder's lock is held all the time, so that no node runs on
it, and none starts.

A store that is replaced hands on its deny list, and who has spoken Noise: a key is denied until it
is allowed, and not until an older snapshot is restored.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from hyperbloom.store.backup.verify import Progress, verify_environment
from hyperbloom.store.errors import NONSENSE, StoreCorrupt, StoreError, StoreExists
from hyperbloom.store.limits import GROUP_OPERATIONS
from hyperbloom.store.lmdb.environment import DATA_FILE, LMDB_LOCK_FILE, Environment
from hyperbloom.store.lmdb.folder_lock import FolderLock
from hyperbloom.store.lmdb.fsync import sync
from hyperbloom.store.operations import Operation
from hyperbloom.store.records import FeedFigures
from hyperbloom.store.store import NEW_FOLDER, Store
from hyperbloom.store.tables.denied import DenyKey
from hyperbloom.store.tables.names import NameKey
from hyperbloom.store.tables.noise import RememberNoise
from hyperbloom.store.writer import commit_group

__all__ = [
    "REPLACED",
    "commit_all",
    "compare_figures",
    "handed_on",
    "new_store_in",
    "understood",
    "verify_copy",
]

REPLACED = ".replaced"
"""Behind the store's name: the folder that keeps the store which was replaced."""


@contextmanager
def new_store_in(target: Path, replace: bool) -> Iterator[Path]:
    """A folder to make the store's file in; at the end of the block it becomes the target's.

    Raises StoreExists, StoreLocked, and StoreError if the disk fails.
    """
    target = target.absolute()
    kept = target.with_name(target.name + REPLACED)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FolderLock(target)
    except OSError as error:
        raise StoreError(f"the store {target} cannot be made: {error.strerror or error}") from error
    aside = target / NEW_FOLDER
    try:
        _check_free(target, kept, replace)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        yield aside
        (aside / DATA_FILE).chmod(0o600)
        sync(aside / DATA_FILE)
        if (target / DATA_FILE).exists():
            _keep(target, kept)
        # LMDB's table of readers is of the file that goes.
        (target / LMDB_LOCK_FILE).unlink(missing_ok=True)
        (aside / DATA_FILE).rename(target / DATA_FILE)
        sync(target)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"the store {target} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        lock.release()


def _keep(target: Path, kept: Path) -> None:
    """Give the file that is to be replaced a second name, or leave nothing behind."""
    kept.mkdir(mode=0o700)
    try:
        os.link(target / DATA_FILE, kept / DATA_FILE)
        sync(kept)
    except OSError:
        shutil.rmtree(kept, ignore_errors=True)
        raise


def _check_free(target: Path, kept: Path, replace: bool) -> None:
    if not (target / DATA_FILE).exists():
        return
    if not replace:
        raise StoreExists(f"there is a store in {target} already; say --replace to replace it")
    if os.path.lexists(kept):
        raise StoreExists(f"{kept} keeps a store that was replaced before; remove it first")


def handed_on(target: Path, warn: Callable[[str], None]) -> list[Operation]:
    """What the new store takes over of keys: those denied, those that speak Noise, and names.

    `warn` is told if they cannot be read.
    """
    if not (target / DATA_FILE).exists():
        return []
    try:
        with closing(Store.open_readonly(target)) as store:
            return [
                *(DenyKey(one.key, one.denied_at, one.reason) for one in store.denied()),
                *(NameKey(one.key, one.name, one.named_at, takes=True) for one in store.names()),
                *(
                    RememberNoise(one.key, at, one.branch)
                    for one in store.noise_keys()
                    for at in (one.first_met, one.last_met)
                ),
            ]
    except (StoreError, *NONSENSE):
        warn("the deny list of the store that was replaced cannot be read; deny its keys again")
        return []


@contextmanager
def understood(snapshot: Path) -> Iterator[None]:
    """Raise StoreCorrupt for what is read of the snapshot in the block and makes no sense."""
    try:
        yield
    except NONSENSE as error:
        raise StoreCorrupt(f"{snapshot} is damaged ({error}); use another one") from error


def compare_figures(
    snapshot: Path, found: Sequence[FeedFigures], told: Sequence[FeedFigures]
) -> None:
    """Raise StoreCorrupt unless a snapshot holds what it says of itself."""
    if tuple(found) != tuple(told):
        raise StoreCorrupt(
            f"{snapshot} holds other feeds, counts or digests than it says; use another one"
        )


def verify_copy(snapshot: Path, environment: Environment, progress: Progress | None) -> None:
    """Walk a copy that was made; raise StoreCorrupt, and blame the snapshot, for any problem."""
    report = verify_environment(environment, progress)
    if not report.ok:
        raise StoreCorrupt(
            f"{snapshot} is damaged ({report.problems[0]}; {len(report.problems)} in all); "
            "use another one"
        )


def commit_all(environment: Environment, operations: Sequence[Operation]) -> None:
    """Commit operations in groups; raise what the first of them that fails does."""
    for start in range(0, len(operations), GROUP_OPERATIONS):
        for result in commit_group(environment, operations[start : start + GROUP_OPERATIONS]):
            if isinstance(result, BaseException):
                raise result

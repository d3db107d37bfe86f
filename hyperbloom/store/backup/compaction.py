"""Making a store's file small again: a copy without free pages takes its place, or nothing changes.

LMDB's file never shrinks; pages that are free are used again. A compacted copy is written beside
it, compared with it, synced, and renamed over it. Nobody may have the store open meanwhile, for
whoever did would go on reading and writing the old file; hence at rest only, under the store's
lock.
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hyperbloom.store.backup.snapshot import copy_watched, live_bytes, read_figures
from hyperbloom.store.errors import StoreCorrupt, StoreError, StoreFull
from hyperbloom.store.lmdb.environment import COMPACTING, DATA_FILE, Environment
from hyperbloom.store.lmdb.folder_lock import FolderLock
from hyperbloom.store.lmdb.fsync import sync
from hyperbloom.store.migrations import check_schema

__all__ = ["Compacted", "compact_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Bytes of the file before and after."""

    before: int
    after: int


def compact_store(path: Path, progress: Callable[[int, int], None] | None = None) -> Compacted:
    """Make the file of the store in this folder as small as it can be, whole or not at all.

    ``progress`` gets the bytes written and the bytes there will be, about. Raises StoreLocked while
    a node runs on it, StoreFull without room for the copy, StoreError and its kinds otherwise.
    """
    try:
        if not (path / DATA_FILE).exists():
            raise StoreError(f"there is no store in {path}; name the folder of one")
        lock = FolderLock(path)
    except OSError as error:
        raise _impossible(path, error) from error
    partial = path / COMPACTING
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        before = (path / DATA_FILE).stat().st_size
        with closing(Environment(path, map_bytes=0, readonly=True)) as environment:
            check_schema(environment)
            _require_room(path, live_bytes(environment))
            copy_watched(environment, partial, progress)
            figures = read_figures(environment)
        _check_copy(partial, figures)
        (partial / DATA_FILE).chmod(0o600)
        sync(partial / DATA_FILE)
        (partial / DATA_FILE).rename(path / DATA_FILE)
        sync(path)
        return Compacted(before=before, after=(path / DATA_FILE).stat().st_size)
    except OSError as error:
        raise _impossible(path, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        lock.release()


def _impossible(path: Path, error: OSError) -> StoreError:
    return StoreError(f"the store {path} cannot be compacted: {error.strerror or error}")


def _require_room(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path).free
    if free < needed:
        raise StoreFull(
            f"compacting {path} takes {needed:,} bytes on the same disk, and {free:,} are free; "
            "make room and try again"
        )


def _check_copy(partial: Path, figures: object) -> None:
    with closing(Environment(partial, map_bytes=0, readonly=True)) as copy:
        if read_figures(copy) != figures:
            raise StoreCorrupt("the compacted copy is not what the store is; nothing was changed")

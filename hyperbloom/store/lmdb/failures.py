"""What LMDB and the disk fail of, as errors of ours with a sentence that says what to do."""

import errno
import os
import resource
import struct
from pathlib import Path

import lmdb

from hyperbloom.store.errors import StoreCorrupt, StoreError, StoreFull

__all__ = ["NO_ROOM", "no_room", "translated"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The numbers of errors that say that a disk, a quota or a limit is used up."""

#: A transaction is bad after LMDB met something impossible in it.
_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.BadTxnError)
_LITTLE_ROOM = 64 * 1024 * 1024


def no_room(folder: Path) -> StoreFull:
    """The error for a disk that is full."""
    return StoreFull(
        f"no room on the disk of {folder}; nothing of this write was kept, make room and try again"
    )


def translated(error: Exception, data_file: Path, written: Path | None = None) -> StoreError:
    """An error of LMDB, or of reading a record, in the store of this data file.

    ``written`` is the folder that was written to, if it is another one than the store's.
    """
    if isinstance(error, StoreError):
        return error
    store = data_file.parent
    if isinstance(error, struct.error):
        return StoreCorrupt(
            f"the store {store} holds a record that is none ({error}); restore a snapshot"
        )
    if isinstance(error, _DAMAGE):
        return StoreCorrupt(f"the store {store} is damaged ({error}); restore a snapshot")
    if os.strerror(errno.EROFS) in str(error):
        return StoreError(
            f"the disk of {store} is read-only, nothing was written; see the system's log "
            "for why, and mount it for writing"
        )
    if _is_without_room(error, (written or store) / data_file.name):
        return no_room(written or store)
    return StoreError(f"the store {store} failed: {error}; see the disk and the system's log")


def _is_without_room(error: Exception, file: Path) -> bool:
    """Whether it failed for lack of space. LMDB makes EIO of a short write, so EIO is looked at."""
    reason = str(error)
    if any(os.strerror(code) in reason for code in NO_ROOM):
        return True
    if os.strerror(errno.EIO) not in reason:
        return False
    room = os.statvfs(file.parent)
    if room.f_bavail * room.f_frsize < _LITTLE_ROOM:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return False
    return limit - (file.stat().st_size if file.exists() else 0) < _LITTLE_ROOM

"""The lock by which one process has a store's folder to itself.

A store is opened once in a process: closing a second handle would drop the first one's locks. Hence
a flock of our own, which also tells a second node apart from a tool that reads.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

from hyperbloom.store.errors import StoreError, StoreLocked

__all__ = ["LOCK_FILE", "FolderLock"]

LOCK_FILE = "node.lock"


class FolderLock:
    """The flock by which one process owns a store's folder; its file names the process.

    With ``is_guest`` the file must be there, and is only locked: in a folder that others made,
    nothing is written. Raises StoreLocked, StoreError if the file is no plain one, and OSError if
    it cannot be opened.
    """

    def __init__(self, folder: Path, *, is_guest: bool = False) -> None:
        self._path = folder / LOCK_FILE
        flags = os.O_RDONLY if is_guest else os.O_RDWR | os.O_CREAT
        try:
            # Nothing but a plain file: a link could lead to any file of this user.
            self._fd = os.open(
                self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
            )
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise StoreError(f"{self._path} is no plain file; remove it") from error
            raise
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.release()
            raise StoreError(f"{self._path} is no plain file; remove it")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise StoreLocked(
                f"the store {folder} is in use by process {owner}; stop it, or name another folder"
            ) from None
        if is_guest:
            return
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the folder up. The file stays: removing it would race with the next owner."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

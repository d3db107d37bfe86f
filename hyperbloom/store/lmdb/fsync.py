"""What the store asks of the file system beside LMDB."""

import os
import stat
from pathlib import Path

from hyperbloom.store.errors import StoreCorrupt

__all__ = ["read_plain", "require_plain", "sync"]

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def require_plain(path: Path) -> None:
    """StoreCorrupt unless the path itself is a plain file: what a snapshot holds stays in its
    folder, and opening it neither waits nor does anything. FileNotFoundError if there is none.
    """
    _require_plain_mode(path, path.lstat().st_mode)


def _require_plain_mode(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise StoreCorrupt(
            f"{path} is {kind} and no plain file; use a snapshot as `hyperbloom snapshot` makes it"
        )


def read_plain(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most ``limit`` bytes; StoreCorrupt for other files.

    Raises OSError if it cannot be read.
    """
    require_plain(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _require_plain_mode(path, found.st_mode)
        content = file.read(limit + 1)
    if len(content) > limit:
        raise StoreCorrupt(f"{path} is longer than {limit} bytes; use another snapshot")
    return content


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk; OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

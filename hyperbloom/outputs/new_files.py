"""Files that take the place of others whole: written beside them, and renamed.

A reader at the path has the old file or the new one and nothing between, whatever ends the node.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from hyperbloom.errors import HyperbloomError

__all__ = [
    "FileSign",
    "NotWritten",
    "finish",
    "made",
    "new_path",
    "open_present",
    "put_in_place",
    "remove_left",
    "require_place",
    "sign_of",
]

#: What stands between a file's name and the digits in the name of one that will take its place.
_NEW: Final = ".hyperbloom-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM)

FileSign = tuple[int, int, int]
"""By what a file is taken for another one, or for one that was written anew: its number, its length
and when it was written, in nanoseconds."""


class NotWritten(HyperbloomError):
    """The file cannot be written; the message is one sentence with its cure."""


def new_path(path: Path, digits: str) -> Path:
    """Where the file is written that will be at `path`; `digits` are 16 of hex, given once."""
    return path.with_name(f".{path.name}{_NEW}{digits}")


def remove_left(path: Path) -> None:
    """Remove what is left of files that were to be at `path`; raises `NotWritten`."""
    left = re.compile(re.escape(f".{path.name}{_NEW}") + "[0-9a-f]{16}")
    with _explained(path.parent), os.scandir(path.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name):
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)


def require_place(path: Path) -> None:
    """Raises `NotWritten` unless there is a plain file or nothing at `path`, in a folder."""
    with _explained(path.parent):
        os.stat(path.parent / ".")
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
    if stat.S_ISLNK(mode):
        raise NotWritten(
            f"{path} is a symbolic link, which a new file would replace; name the file that it "
            "leads to, or remove it"
        )
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no plain file"
        raise NotWritten(f"{path} is {what}; give another `path`, or remove it")


@contextmanager
def made(new: Path) -> Iterator[IO[bytes]]:
    """A new file for the block, which nobody else may read yet; it is gone if the block fails.

    Raises `NotWritten` for what the disk refuses in the block.
    """
    with _explained(new.parent):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise


def finish(file: IO[bytes], path: Path, mode: int) -> None:
    """Give a new file its mode, and the owner of the one at `path` where that is allowed; sync it.

    Raises OSError.
    """
    file.flush()
    descriptor = file.fileno()
    with suppress(OSError):
        found, ours = path.lstat(), os.fstat(descriptor)
        if (found.st_uid, found.st_gid) != (ours.st_uid, ours.st_gid):
            _give(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)


def _give(descriptor: int, owner: int, group: int) -> None:
    try:
        os.fchown(descriptor, owner, group)
    except PermissionError:
        os.fchown(descriptor, -1, group)


def open_present(path: Path) -> IO[bytes] | None:
    """The file at `path`; None where there is none that may be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def put_in_place(new: Path, path: Path) -> None:
    """Rename a finished file to `path`, and have that on disk; raises `NotWritten`."""
    with _explained(path.parent):
        os.rename(new, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sign_of(path: Path) -> FileSign | None:
    """The sign of the file at `path`, None where there is none or it cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """What the disk refuses becomes `NotWritten`, with what to do."""
    try:
        yield
    except OSError as error:
        raise NotWritten(_sentence(folder, error)) from error


def _sentence(folder: Path, error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return f"there is no room on the disk of {folder}; make some"
    if error.errno == errno.ENOENT:
        return f"the folder {folder} is not there; make it, and let the node's user write in it"
    if error.errno == errno.ENOTDIR:
        return f"{folder} is no folder; correct `path`"
    if error.errno == errno.EROFS:
        return (
            f"{folder} can only be read; mount it for writing, or give the unit of systemd "
            f"`ReadWritePaths={folder}`"
        )
    if error.errno in _NO_RIGHT:
        return f"the node's user may not write in {folder}; give it the right to, or its own folder"
    return f"writing in {folder} failed ({error.strerror}); see the disk and the system's log"

"""Opening a file that somebody else names or makes, without being led to one that is not his.

Whoever may write in the folder of a source may put a link in its place, to a file that the node may
read and he may not: what it holds would be published. So the way to the file is gone step by step,
each from the folder that the last one has opened (openat), and every link on it is looked at: it
must be root's, the node's own, or of the one to whom the file belongs. What was looked at is what
is opened, however names change meanwhile.

Some files are refused by whatever way they come: the node's own, and keys.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import BinaryIO, Final

from hyperbloom.credentials import credentials_folder
from hyperbloom.inputs.formats.parsing import SourceRefused

__all__ = ["open_source"]

_MOST_LINKS: Final = 40
"""As many as the kernel follows (path_resolution(7))."""
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
#: Without O_NONBLOCK a FIFO that came meanwhile would be waited for.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_HEAD_BYTES: Final = 1 << 16
_OTHERS: Final = 0o077
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_KEY_DIGITS: Final = re.compile(rb"[0-9a-fA-F]{64}\n?")

_Identity = tuple[int, int]
"""Device and inode."""


def open_source(path: str, own: Iterable[str]) -> BinaryIO:
    """A plain file for reading; raises `SourceRefused` for all others.

    `own`: files and folders of the node, none of which need be there.
    """
    refused = _identities([*own, str(credentials_folder())])
    try:
        number = _opened(path, refused)
    except (OSError, ValueError) as error:  # with a NUL in it it is a ValueError
        why = getattr(error, "strerror", None) or "that is no path"
        raise SourceRefused(
            f"the file cannot be opened: {why}; correct `path`, or let the node read it"
        ) from None
    file = os.fdopen(number, "rb")
    try:
        _refuse_key(file)
    except BaseException:
        file.close()
        raise
    return file


def _identities(paths: Iterable[str]) -> set[_Identity]:
    """Those of the node's own places, and of what lies in its folders (there may be hard links)."""
    found = set()
    for path in paths:
        with suppress(OSError, ValueError):
            status = os.stat(path)
            found.add(_identity(status))
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as entries:
                    found |= {_identity(entry.stat(follow_symlinks=False)) for entry in entries}
    return found


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _opened(path: str, refused: set[_Identity]) -> int:
    """A descriptor of the file at the end of the way."""
    rest = _steps(os.path.join(os.getcwd(), path))
    owners: list[int] = []
    place = os.open("/", _LOOK)
    try:
        while True:
            name = rest.pop()
            entry = os.open(name, _LOOK, dir_fd=place)
            try:
                status = os.fstat(entry)
                if _identity(status) in refused:
                    raise SourceRefused(
                        "`path` leads to what is the node's own; name a file that is to be public"
                    )
                if stat.S_ISLNK(status.st_mode):
                    owners.append(status.st_uid)
                    place = _followed(entry, place, rest, len(owners))
                elif rest:
                    place, entry = entry, place
                else:
                    return _read(name, place, status, owners)
            finally:
                os.close(entry)
    finally:
        os.close(place)


def _steps(path: str) -> list[str]:
    """The names on the way, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")] or ["."]


def _followed(link: int, place: int, rest: list[str], links: int) -> int:
    """Put what a link says before the rest of the way; where that begins."""
    if links > _MOST_LINKS:
        raise SourceRefused("`path` leads through links that do not end; name the file itself")
    target = os.readlink("", dir_fd=link)
    rest += _steps(target)
    if not target.startswith("/"):
        return place
    root = os.open("/", _LOOK)
    os.close(place)
    return root


def _read(name: str, place: int, seen: os.stat_result, owners: Sequence[int]) -> int:
    """Open what was seen there."""
    if not stat.S_ISREG(seen.st_mode):
        raise SourceRefused("`path` is no file but a folder, device or pipe; name a file")
    if not set(owners) <= {0, os.geteuid(), seen.st_uid}:
        raise SourceRefused(
            "`path` leads through a symbolic link of somebody to whom the file does not belong; "
            "name the file itself, or let root or the node's user make the link"
        )
    number = os.open(name, _READ, dir_fd=place)
    if _identity(os.fstat(number)) != _identity(seen):
        os.close(number)
        raise SourceRefused("the file was replaced while it was opened; it is read the next time")
    return number


def _refuse_key(file: BinaryIO) -> None:
    """Raise `SourceRefused` for a private key, which a mistake of the operator's may lead to."""
    head = os.pread(file.fileno(), _HEAD_BYTES, 0)
    is_shut = not os.fstat(file.fileno()).st_mode & _OTHERS
    if _PRIVATE_KEY.search(head) or (is_shut and _KEY_DIGITS.fullmatch(head)):
        raise SourceRefused(
            "the file holds a private key, and everybody who has the feed would read it; name a "
            "list (replace the key if it was ever published)"
        )

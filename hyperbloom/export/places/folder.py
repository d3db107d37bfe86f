"""A folder of this machine, or of a file system that several machines share."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hyperbloom.export.errors import ExportConflict, ExportError, ExportFull, TableUnusable
from hyperbloom.export.places.lock import folder_lock, read_sign
from hyperbloom.export.places.place import NewFile, Place
from hyperbloom.export.places.sharing import (
    ShareWith,
    masked,
    open_folder,
    settle_modes,
    share_of,
)

__all__ = ["Folder", "sync_path"]

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_ROOM_TEXTS: Final = tuple(map(os.strerror, _NO_ROOM))
"""What is left of the number in an error of deltalake."""


@dataclass(frozen=True, slots=True)
class Folder(Place):
    """A place whose path is absolute."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def uri(self) -> str:
        """As deltalake takes it."""
        return self.path.as_uri()

    @property
    def options(self) -> None:
        """None are needed."""

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.name

    @property
    def parent(self) -> Folder:
        """The folder around it."""
        return Folder(self.path.parent)

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.path / name)

    @property
    def is_mounted(self) -> bool:
        """Any program opens its files."""
        return True

    def location(self, path: str) -> str:
        """A file's whole path."""
        return str(self.path / path)

    @contextmanager
    def held(self) -> Iterator[str]:
        """Lock it, made if it is not there; the sign is what stands in the file of the lock."""
        with ExitStack() as stack:
            try:
                sign = stack.enter_context(folder_lock(self.path))
            except OSError as error:
                raise self.failed(error) from error
            yield sign

    def check_seen(self, sign: str) -> None:
        """Raise TableUnusable unless the sign is found in it."""
        try:
            is_seen = read_sign(self.path) == sign
        except OSError:
            is_seen = False
        if not is_seen:
            raise TableUnusable(
                f"a worker on another machine does not see the folder {self.path}, or sees another "
                "one of this name; name one that all machines share, or an object store"
            )

    def settle(self, tables: Iterable[str], share_with: ShareWith) -> int:
        """Give what is there the modes that new files get."""
        try:
            open_folder(self.path, share_with)
            return sum(settle_modes(self.path / name, share_with) for name in tables)
        except OSError as error:
            raise self.failed(error) from error

    @contextmanager
    def shared(self, share_with: ShareWith | None = None) -> Iterator[None]:
        """Have what is made readable by these: the umask is the whole process's."""
        with masked(share_with or share_of(self.path)):
            yield

    def make(self) -> None:
        """Make the folder."""
        self.path.mkdir(parents=True, exist_ok=True)

    def create(self, path: str) -> NewFile:
        """Begin a file, and the folders around it."""
        whole = self.path / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        return _LocalFile(whole)

    def add_whole(self, path: str, data: bytes) -> None:
        """Make a file, whole and lasting or not at all; ExportConflict if there is one, OSError."""
        whole = self.path / path
        unnamed = whole.parent / ".unnamed"
        try:
            unnamed.write_bytes(data)
            sync_path(unnamed)
            os.link(unnamed, whole)
        except FileExistsError:
            raise self._somebody_else() from None
        finally:
            unnamed.unlink(missing_ok=True)
        sync_path(whole.parent)

    def open(self, path: str) -> str:
        """The path, which pyarrow opens itself."""
        return str(self.path / path)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        (self.path / path).unlink(missing_ok=True)

    def keep_names(self, *folders: str) -> None:
        """Sync these folders."""
        for folder in folders:
            sync_path(self.path / folder)

    def keep_files(self, paths: Iterable[str], *, since: float) -> None:
        """Sync those that were changed since."""
        for path in paths:
            if (self.path / path).stat().st_mtime >= since:
                sync_path(self.path / path)

    def failed(self, error: Exception) -> ExportError:
        """An error of the disk or of deltalake."""
        if isinstance(error, ExportError):
            return error
        text = " ".join(str(error).split())
        if (isinstance(error, OSError) and error.errno in _NO_ROOM) or any(
            said in text for said in _NO_ROOM_TEXTS
        ):
            return ExportFull(
                f"no room on the disk of {self}; the table is as it was, make room and try again"
            )
        if isinstance(error, OSError):
            return ExportError(f"{self} cannot be written: {error.strerror or text}")
        if type(error).__name__ == "CommitFailedError":
            return self._somebody_else()
        return TableUnusable(f"the table {self} cannot be used: {text}")

    def _somebody_else(self) -> ExportConflict:
        return ExportConflict(
            f"somebody else changed {self} meanwhile; run it again, nothing was committed"
        )


class _LocalFile(NewFile):
    def __init__(self, path: Path) -> None:
        self._path = path
        self.sink: IO[bytes] = path.open("xb")

    def finish(self) -> int:
        self.sink.flush()
        os.fsync(self.sink.fileno())
        size = self.sink.tell()
        self.sink.close()
        sync_path(self._path.parent)
        return size

    def abandon(self) -> None:
        self.sink.close()


def sync_path(path: Path) -> None:
    """Make a file, or the names in a folder, last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

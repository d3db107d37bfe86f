"""Where tables are, as all other parts of an export see it.

A place is a folder, or what an object store has for one: the objects whose names begin alike. The
tables of an export are places below one, and a table's files have paths below its place. What the
kinds of places have in common is what a table asks of one: files appear whole and under new names,
they last once they are told of, and what means something is the log alone (tables/delta.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import IO, Any

from hyperbloom.export.errors import ExportError
from hyperbloom.export.places.sharing import ShareWith

__all__ = ["NewFile", "Place"]


class NewFile(ABC):
    """A file that is being written. Every method may raise OSError."""

    sink: IO[bytes]
    """What pyarrow writes into."""

    @abstractmethod
    def finish(self) -> int:
        """Make it last; its size in bytes."""

    @abstractmethod
    def abandon(self) -> None:
        """Write no more; what is there of it is part of no table. Raises nothing."""


class Place(ABC):
    """A folder for tables, or of one table. It may be sent to other processes and machines.

    `str` gives it as people write it. Methods raise what `failed` makes an ExportError of.
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """As deltalake takes it."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str] | None:
        """How deltalake is to reach it, but for credentials, which every process has of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part."""

    @property
    @abstractmethod
    def parent(self) -> Place:
        """What is around it."""

    @abstractmethod
    def __truediv__(self, name: str) -> Place:
        """The place of this name below."""

    @property
    @abstractmethod
    def is_mounted(self) -> bool:
        """Whether any program opens its files by their paths."""

    @abstractmethod
    def location(self, path: str) -> str:
        """A file's path or URL, as readers take it."""

    # The folder around the tables, while somebody works on it

    @abstractmethod
    def held(self) -> AbstractContextManager[str]:
        """Have it to oneself as far as there are locks, and made; gives a sign for `check_seen`.

        Raises ExportBusy, and other kinds of ExportError for a place that cannot be used.
        """

    @abstractmethod
    def check_seen(self, sign: str) -> None:
        """In a task: raise ExportError unless it has the same place before it as who holds it."""

    # Who may read

    @abstractmethod
    def settle(self, tables: Iterable[str], share_with: ShareWith) -> int:
        """Bring tables that are there to who may read them; how many files and folders changed.

        Raises ExportError where nobody can be told apart.
        """

    @abstractmethod
    def shared(self, share_with: ShareWith | None = None) -> AbstractContextManager[None]:
        """Have what is made in the block readable by these; None for those of what is there."""

    # Files of a table

    @abstractmethod
    def make(self) -> None:
        """Make the folder, if places of this kind are made."""

    @abstractmethod
    def create(self, path: str) -> NewFile:
        """Begin a file of a new name."""

    @abstractmethod
    def open(self, path: str) -> Any:
        """A file for pyarrow to read."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file; none is fine, too."""

    @abstractmethod
    def keep_names(self, *folders: str) -> None:
        """Make the names in these folders last; `.` is the place, `..` what is around it."""

    @abstractmethod
    def keep_files(self, paths: Iterable[str], *, since: float) -> None:
        """Make files last that deltalake wrote since this moment."""

    @abstractmethod
    def failed(self, error: Exception) -> ExportError:
        """An error of the place or of deltalake as one of ours, in one sentence."""

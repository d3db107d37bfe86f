"""Object stores: S3 and what speaks like it, Google's, Azure's.

All is done by the `object_store` crate within deltalake, the log as well as the data files and
their reading. So there is one source of credentials, the environment as delta-rs takes it, and one
set of limits on how long a store may let us wait. pyarrow's own filesystems would look for both in
other variables.

There is no lock: a store holds two exports apart when they commit, for it refuses to write an entry
of the log that is there (a conditional put). A file is there once it is whole: it is sent in parts
that mean nothing until the last request names them (a multipart upload).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hyperbloom.export.errors import ExportError, missing_package
from hyperbloom.export.places.place import NewFile, Place
from hyperbloom.export.places.sharing import ShareWith
from hyperbloom.export.places.store_errors import error_of_store

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyarrow.fs import PyFileSystem

__all__ = ["ObjectStore"]

OPTIONS: Final = (
    ("connect_timeout", "5s"),
    ("timeout", "120s"),
    ("max_retries", "4"),
    ("retry_timeout", "30s"),
)
"""Two minutes send a part of 10 MB at 0.7 Mbit/s. What cannot be reached is tried for 30 s."""

FIRST_ANSWER: Final = "15s"
"""How long a store may take for the first answer, which is a short list."""


@dataclass(frozen=True, slots=True)
class ObjectStore(Place):
    """A place by its URL, without a slash at the end."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def uri(self) -> str:
        """As deltalake takes it."""
        return self.url

    @property
    def options(self) -> dict[str, str]:
        """How long to wait and how often to try."""
        return dict(OPTIONS)

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectStore:
        """What is around it."""
        return ObjectStore(self.url.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectStore:
        return ObjectStore(f"{self.url}/{name}")

    @property
    def is_mounted(self) -> bool:
        """Its files have no paths here."""
        return False

    def location(self, path: str) -> str:
        """A file's URL."""
        return f"{self.url}/{path}"

    @contextmanager
    def held(self) -> Iterator[str]:
        """There is no lock; but the store must answer, and have the bucket."""
        self.check_seen("")
        yield ""

    def check_seen(self, sign: str) -> None:
        """Raise ExportError unless it answers these credentials."""
        try:
            _list(self)
        except Exception as error:
            raise self.failed(error) from error

    def settle(self, tables: Iterable[str], share_with: ShareWith) -> int:
        """Nothing is changed; ExportError for others than the default."""
        if share_with != "owner":
            raise ExportError(
                f"who may read {self} is set at the object store, for its bucket; "
                f"leave out --share-with {share_with}"
            )
        return 0

    def shared(self, share_with: ShareWith | None = None) -> AbstractContextManager[None]:
        """The store knows who may read."""
        return nullcontext()

    def make(self) -> None:
        """It has no folders."""

    def create(self, path: str) -> NewFile:
        """Begin an upload."""
        return _Upload(_files_of(self), path)

    def open(self, path: str) -> Any:
        """A file that is read by ranges."""
        return _files_of(self).open_input_file(path)

    def remove(self, path: str) -> None:
        """Remove an object; none is fine, too."""
        _files_of(self).delete_file(path)

    def keep_names(self, *folders: str) -> None:
        """What it has answered for lasts."""

    def keep_files(self, paths: Iterable[str], *, since: float) -> None:
        """What it has answered for lasts."""

    def failed(self, error: Exception) -> ExportError:
        """What the store or deltalake says, as a sentence."""
        return error_of_store(error, self.url)


class _Upload(NewFile):
    """An object that is there once it is finished."""

    def __init__(self, files: PyFileSystem, path: str) -> None:
        self.sink: Any = files.open_output_stream(path)

    def finish(self) -> int:
        size = int(self.sink.tell())
        self.sink.close()
        return size

    def abandon(self) -> None:
        # Closed, it would be there. What was sent, the store forgets (docs/analytics.md).
        self.sink = None


def _list(place: ObjectStore) -> None:
    """Ask what is in a place: a HEAD request would not tell a missing bucket."""
    files = _files_of(place, FIRST_ANSWER)
    from pyarrow.fs import FileSelector

    files.get_file_info(FileSelector("", allow_not_found=True))


@lru_cache(maxsize=64)
def _files_of(place: ObjectStore, timeout: str | None = None) -> PyFileSystem:
    """The place as pyarrow sees it, in this process; with another timeout of a request."""
    try:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem
    except ImportError as error:
        raise missing_package(error) from error
    options = place.options | ({"timeout": timeout} if timeout else {})
    return PyFileSystem(DeltaStorageHandler(place.uri, options))

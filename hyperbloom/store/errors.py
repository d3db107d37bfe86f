"""What can go wrong with a store, each as its own type.

Every message is one sentence that says what happened and what to do about it, so that a command or
a log line can show it as it is.
"""

import struct
from typing import Final

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "NONSENSE",
    "ForeignSnapshot",
    "NoSuchFeed",
    "SchemaMismatch",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreFull",
    "StoreGone",
    "StoreLocked",
]


NONSENSE: Final = (
    struct.error,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""What reading a damaged record may raise, where a whole one cannot: LMDB keeps no checksums."""


class StoreError(HyperbloomError):
    """Anything the store refuses or fails to do; the base of the errors below."""

    kind = ErrorKind.STORE


class StoreLocked(StoreError):
    """Another process, or another part of this one, has the store open."""


class StoreCorrupt(StoreError):
    """The files are damaged, cut short, or are no store of ours."""


class SchemaMismatch(StoreError):
    """The store was written by a version of hyperbloom that this one cannot read."""


class StoreFull(StoreError):
    """The disk (or a quota, or the address space) has no room; nothing of the write was kept."""

    kind = ErrorKind.STORE_FULL


class StoreGone(StoreError):
    """The data file was removed or replaced; what is written to the open one would be lost."""


class StoreClosed(StoreError):
    """The store or its writer was used after its end, or in a forked child."""


class StoreExists(StoreError):
    """A store is in the way of one to be made; nothing was changed."""

    kind = ErrorKind.CONFLICT


class ForeignSnapshot(StoreError):
    """The snapshot is of another node than it is to be restored for."""

    kind = ErrorKind.CONFLICT


class NoSuchFeed(StoreError):
    """The store holds no feed with that key."""

    kind = ErrorKind.UNKNOWN_FEED

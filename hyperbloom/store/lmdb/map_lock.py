"""The lock on the map, so that it can be exchanged while no transaction is open.

LMDB's map may grow only while no transaction is open in the process: a transaction points into the
old map. Readers share the lock; whoever exchanges the map holds it alone. Readers wait while one
holds it alone, so that one must not wait for a reader that takes long (a copy, a verification).
Long readers therefore say that they are: as long as one holds the lock, others may still share it,
and only the exchange waits.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MapLock"]


class MapLock:
    """Shared by readers, or held by one thread alone. Not reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._long_readers = 0
        self._waiting = 0
        self._is_exclusive = False

    def acquire_shared(self, *, long: bool = False) -> None:
        """Wait while a thread holds the lock alone; a long reader also while one waits for that."""
        with self._changed:
            while self._is_exclusive or (long and self._waiting):
                self._changed.wait()
            self._readers += 1
            self._long_readers += long

    def release_shared(self, *, long: bool = False) -> None:
        """Give the shared lock up; ``long`` as it was when it was acquired."""
        with self._changed:
            self._readers -= 1
            self._long_readers -= long
            if self._waiting:
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock alone during the block; waits for the readers to leave."""
        with self._changed:
            self._waiting += 1
            try:
                while self._is_exclusive or self._long_readers:
                    self._changed.wait()
                self._is_exclusive = True
                while self._readers:
                    self._changed.wait()
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()

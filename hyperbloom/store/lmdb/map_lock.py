"""The gate that readers pass, so that the map can be exchanged when none is inside.

LMDB's map may grow only while no transaction is open in the process: a transaction points into the
old map. Readers enter and leave; whoever must exchange the map closes the gate, waits until nobody
is inside, and opens it again. Readers wait at a closed gate, so they must not wait for one that
takes long (a copy, a verification). Long readers therefore say that they are: as long as one is
inside the gate stays open, and only the exchange waits.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ReadGate"]


class ReadGate:
    """Counts readers, and lets one thread at a time be alone. Not reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._long_inside = 0
        self._waiting = 0
        self._closed = False

    def enter(self, *, long: bool = False) -> None:
        """Go in. Waits while somebody is alone; a long reader also while somebody wants to be."""
        with self._changed:
            while self._closed or (long and self._waiting):
                self._changed.wait()
            self._inside += 1
            self._long_inside += long

    def leave(self, *, long: bool = False) -> None:
        """Go out again; ``long`` as it was on entering."""
        with self._changed:
            self._inside -= 1
            self._long_inside -= long
            if self._waiting:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside with nobody else; waits for the readers to leave."""
        with self._changed:
            self._waiting += 1
            try:
                while self._closed or self._long_inside:
                    self._changed.wait()
                self._closed = True
                while self._inside:
                    self._changed.wait()
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()

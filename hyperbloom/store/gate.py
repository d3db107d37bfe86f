"""The gate that readers pass, so that the map can be exchanged when none is inside.

LMDB's map may grow only while no transaction is open in the process: a transaction points into the
old map. Readers enter and leave; whoever must exchange the map closes the gate, waits until nobody
is inside, and opens it again. If the last reader takes long (a copy of the whole store), the gate
is opened in between, so that short readers never wait longer than ``PATIENCE``.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["PATIENCE", "ReadGate"]

PATIENCE = 0.02
"""Seconds that new readers are kept out in one go; the event loop must never wait for 50 ms."""


class ReadGate:
    """Counts readers, and lets one thread at a time be alone. Not reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        """Go in; waits while somebody is alone, or is waiting to be."""
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        """Go out again."""
        with self._changed:
            self._inside -= 1
            if self._closed and not self._inside:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside with nobody else; waits for the readers to leave."""
        while not self._close():
            time.sleep(PATIENCE)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()

    def _close(self) -> bool:
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._closed = True
            while self._inside:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._closed = False
                    self._changed.notify_all()
                    return False
                self._changed.wait(left)
        return True

"""A short switch interval of the interpreter lock while a transaction runs.

py-lmdb gives the interpreter lock (GIL) up around every call into LMDB, though a put or a step of a
cursor takes well under a microsecond. If another thread computes meanwhile, it takes the lock and
keeps it for a whole switch interval, 5 ms by default, so that each of a transaction's thousands of
calls may cost 5 ms. Measured with three threads that read and one that writes, two cores: 12,000
values of 400 bytes in more than 60 s, and in 0.4 s with an interval of 10 µs; with one computing
thread beside it, the writer does 1,900 values a second, and 73,000. The interval is the process's,
so it is shortened only while a transaction is open; without a second busy thread it costs nothing.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

__all__ = ["INTERVAL", "short_switch_interval"]

INTERVAL: Final = 1e-5
"""Seconds after which a computing thread gives way to one that comes back from LMDB."""


class _Blocks:
    """How many blocks are open in the process, and the interval to go back to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._usual = 0.0

    @contextmanager
    def enter(self) -> Iterator[None]:
        with self._lock:
            if not self._open:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(INTERVAL, self._usual))
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if not self._open:
                    sys.setswitchinterval(self._usual)


_blocks = _Blocks()


def short_switch_interval() -> AbstractContextManager[None]:
    """Let threads switch often during the block; from several threads at once, and nested."""
    return _blocks.enter()

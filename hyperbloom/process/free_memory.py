"""Gives memory back to the system once a crowd of connections has gone.

What a connection is made of refers to each other in circles, which Python looks for only when much
new is made: a node at rest would keep what a thousand peers have left behind. And the C library
keeps what was freed for later. So some time after many connections have ended, when no others end,
both are told to let go. Python's own blocks go back where nothing in a megabyte of them is in use.

A flood of long frames has not gone: what it leaves free between small pieces is 20 MB. So each
large block is asked of the system by itself, and given back when it is freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

__all__ = ["LARGE_BYTES", "LOOK_SECONDS", "MANY", "MemoryRelease", "map_large_blocks", "trim"]

log = Logger()

#: Connections that have to have ended: those of fewer are some MB, and are used again.
MANY = 256

#: How often is looked whether so many have ended, and whether none has since the last time.
LOOK_SECONDS = 20.0


#: mallopt(3): from how many bytes on a block is mapped by itself. glibc begins with as many, but
#: raises the bound to the largest block that was freed; a bound that is set stays.
_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 131_072


def map_large_blocks() -> None:
    """Have the C library map each large block by itself, where it can (glibc)."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def trim() -> None:
    """Have the C library give back what it holds and does not use, where it can (glibc)."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


class MemoryRelease(Service):
    """Looks from `startService` on; `ended` counts the connections that have ended so far.

    `forget` drops what is kept of those who have gone and is needed no more, at each look.
    `in_thread` runs `trim`, which may take some milliseconds, beside the reactor.
    """

    def __init__(
        self,
        ended: Callable[[], int],
        clock: IReactorTime,
        in_thread: Callable[[Callable[[], None]], Deferred[None]],
        *,
        forget: Callable[[], None],
        collect: Callable[[], object] = gc.collect,
        trim: Callable[[], None] = trim,
    ) -> None:
        self._ended = ended
        self._forget = forget
        self._in_thread = in_thread
        self._collect, self._trim = collect, trim
        #: How many had ended at the last look, and when memory was given back last.
        self._seen = self._released = 0
        self._call = LoopingCall(self._look)
        self._call.clock = clock

    def startService(self) -> None:
        """Map large blocks apart from now on, and begin to look."""
        map_large_blocks()
        super().startService()  # type: ignore[no-untyped-call]
        self._call.start(LOOK_SECONDS, now=False)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._call.running:
            self._call.stop()

    def _look(self) -> None:
        self._forget()
        seen, self._seen = self._seen, self._ended()
        if self._seen == seen and seen - self._released >= MANY:
            self._released = seen
            self._collect()
            released = self._in_thread(self._trim)
            released.addErrback(lambda failure: log.failure("Memory was not given back", failure))

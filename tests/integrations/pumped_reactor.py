"""The part of a reactor that threads answer to, turned by the test."""

from __future__ import annotations

import queue
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

#: Seconds after which a test gives up; a machine that has other work is let finish.
CEILING = 120.0


class PumpedReactor:
    """Runs what threads call from it while somebody waits."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Any, tuple[Any, ...], dict[str, Any]]] = queue.Queue()
        self._pool = ThreadPool(0, 2, name="pumped")
        self._pool.start()

    def callFromThread(self, call: Any, *arguments: Any, **named: Any) -> None:
        self._calls.put((call, arguments, named))

    def getThreadPool(self) -> ThreadPool:
        return self._pool

    def stop(self) -> None:
        self._pool.stop()

    def turn(self, seconds: float) -> None:
        """Run one call that a thread asks for, if one comes in time."""
        try:
            call, arguments, named = self._calls.get(timeout=seconds)
        except queue.Empty:
            return
        call(*arguments, **named)

    def wait(self, deferred: Deferred[Any]) -> Any:
        """What it fires with; raises what it fails with."""
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        end = time.monotonic() + CEILING
        while not outcomes:
            assert time.monotonic() < end, "nothing came"
            self.turn(1.0)
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        return outcomes[0]

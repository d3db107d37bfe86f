"""Something that a feed does by itself now and then, one run at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.store import NoSuchFeed, StoreError

__all__ = ["BackgroundTask"]

log = Logger()


class BackgroundTask:
    """Runs `run` when asked to, unless it is running; `what` names it where it fails.

    Where the store fails, that is logged in a line: the next run tries again.
    """

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        self._run = run
        self._what = what
        self._running: Deferred[None] | None = None

    def begin(self) -> None:
        """Run, unless a run is under way."""
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addBoth(self._over)

    def stop(self) -> None:
        """End a run behind its step."""
        if self._running is not None:
            self._running.cancel()

    def _over(self, result: object) -> None:
        self._running = None
        if not isinstance(result, Failure) or result.check(CancelledError, NoSuchFeed):
            return
        if result.check(StoreError):
            log.error("{what} ended early: {why}", what=self._what, why=result.value)
        else:
            log.failure("{what} failed", failure=result, what=self._what)

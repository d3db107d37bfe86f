"""A reactor without threads: what would run in one runs at once. Its clock is the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

__all__ = ["Threadless"]


class Threadless(Clock):
    """Its own pool of threads, none of which there is."""

    def getThreadPool(self) -> Threadless:
        return self

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], call: Callable[..., Any], *args: Any, **more: Any
    ) -> None:
        result: list[Any] = []
        maybeDeferred(call, *args, **more).addBoth(result.append)
        done(not isinstance(result[0], Failure), result[0])

    def callFromThread(self, call: Callable[..., Any], *args: Any, **more: Any) -> None:
        call(*args, **more)

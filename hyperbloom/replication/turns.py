"""A turn of the reactor, shared among all that would fill it.

Everything a peer sends is cheap by itself, and many peers together can still keep the reactor busy
for long. So frames and broadcasts ask here first: so many a turn, of all connections together, and
no more once the turn has taken its time. Connections with frames left wait in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["Turns"]


class Turns:
    """Gives out `most` pieces of work a turn, and none after `seconds` of it."""

    def __init__(self, clock: IReactorTime, *, most: int, seconds: float) -> None:
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._left = most
        self._began = 0.0
        self._row: deque[Callable[[], None]] = deque()
        self._call: IDelayedCall | None = None

    def take(self) -> bool:
        """Whether one more piece of work may be done in this turn."""
        now = self._clock.seconds()
        if self._call is None:
            self._began = now
            self._call = self._clock.callLater(0, self._next)
        if self._left <= 0 or now - self._began > self._seconds:
            self._left = 0
            return False
        self._left -= 1
        return True

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, once those who wait longer had theirs."""
        self._row.append(go_on)
        if self._call is None:
            self._call = self._clock.callLater(0, self._next)

    def _next(self) -> None:
        self._left = self._most
        self._began = self._clock.seconds()
        # The call of the turn after this one: whatever is taken now counts against this one.
        self._call = None
        for _ in range(len(self._row)):
            if self._left <= 0:
                break
            self._row.popleft()()
        if self._row and self._call is None:
            self._call = self._clock.callLater(0, self._next)

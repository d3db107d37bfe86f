"""A turn of the reactor, shared among all that would fill it.

Everything a peer sends is cheap by itself, and many peers together can still keep the reactor busy
for long. So frames and broadcasts ask here first: so many a turn, of all connections together, and
no more once the turn has taken its time.

Connections with frames left wait in rows, one for each peer (`who`: its path, or the network that a
stranger comes from). Rows take turns level by level (`hyperbloom.turns`), and while there are
others a row has a part of the turn, not all of it: a peer has the same from one connection as from
hundreds, and from one key as from all that it makes below it. Strangers together have every second
turn, however many networks they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.turns import Turns

__all__ = ["ReactorBudget"]

#: Part of a turn that one row has while others wait.
ROW_PART = 1 / 8

Who = tuple[Hashable, ...]
"""The path of a peer; () is one of its own."""


class ReactorBudget:
    """Gives out `most` pieces of work a turn, and none after `seconds` of it."""

    def __init__(self, clock: IReactorTime, *, most: int, seconds: float) -> None:
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._left = most
        self._began = 0.0
        self._rows: Turns[Callable[[], None]] = Turns()
        self._strangers: Turns[Callable[[], None]] = Turns()
        self._strangers_were_last = False
        #: Whose turn it is, pieces it has left of it, and when it began.
        self._serving: Who | None = None
        self._part_left = most
        self._part_began = 0.0
        self._call: IDelayedCall | None = None

    def take(self, who: Who = ()) -> bool:
        """Whether one more piece of work may be done in this turn, for this peer."""
        now = self._clock.seconds()
        if self._call is None:
            self._began = now
            self._call = self._clock.callLater(0, self._next)
        if self._left <= 0 or now - self._began > self._seconds:
            self._left = 0
            return False
        if (self._rows or self._strangers) and not self._has_part(who, now):
            return False
        self._left -= 1
        self._part_left -= 1
        return True

    def wait(self, who: Who, go_on: Callable[[], None], *, is_stranger: bool = False) -> None:
        """Call `go_on` in a later turn, or later in this one, when it is the peer's turn."""
        rows = self._strangers if is_stranger else self._rows
        rows.add(who, go_on)
        if self._call is None:
            self._call = self._clock.callLater(0, self._next)

    def turn(self, who: Who) -> Deferred[None]:
        """Fires when one piece of work may be done for this peer, and counts it."""
        granted: Deferred[None] = Deferred()

        def ask() -> None:
            if self.take(who):
                granted.callback(None)
            else:
                self.wait(who, ask)

        ask()
        return granted

    def _has_part(self, who: Who, now: float) -> bool:
        """While others wait: whether it is this peer's turn, and that is not over."""
        if who != self._serving:
            return False
        if len(self._rows) + len(self._strangers) == 1 and (
            who in self._rows or who in self._strangers
        ):
            return True
        return self._part_left > 0 and now - self._part_began <= self._seconds * ROW_PART

    def _next(self) -> None:
        self._left = self._most
        self._began = self._clock.seconds()
        # The call of the turn after this one: whatever is taken now counts against this one.
        self._call = None
        while (self._rows or self._strangers) and self._left > 0:
            now = self._clock.seconds()
            if now - self._began > self._seconds:
                break
            who, go_on = self._pop()
            self._serving = who
            self._part_left = max(1, int(self._most * ROW_PART))
            self._part_began = now
            go_on()
        self._serving = None
        if (self._rows or self._strangers) and self._call is None:
            self._call = self._clock.callLater(0, self._next)

    def _pop(self) -> tuple[Who, Callable[[], None]]:
        """The next of the row whose turn it is; then its turn is over."""
        is_their_turn = bool(self._strangers) and not self._strangers_were_last
        self._strangers_were_last = is_their_turn or not self._rows
        rows = self._strangers if self._strangers_were_last else self._rows
        return rows.first().path, rows.pop()

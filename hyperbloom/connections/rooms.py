"""What peers hold in this node's memory, shared out by branch.

A key has limits of its own, but keys cost nothing. So of each kind there is a bound for all
together. Half of it is for anybody. Of the other half each branch that holds any has an equal part,
within which the same rule goes on: half of a part is for anybody below, the other half is shared
out, and who holds its part waits. A branch that holds nothing may always begin; below a branch that
has filled its part nobody does. So whoever makes keys fills the part of its own branch alone.

What is looked at is what is held, before a frame is read or a slice is made: one of these more may
come. A release lets those who wait look again, level by level in turn (`hyperbloom.turns`).
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.connections.branches import Branch, Share
from hyperbloom.connections.limits import (
    MAX_ALL_ASKED_BYTES,
    MAX_ALL_FILTERS,
    MAX_ALL_UNSENT_BYTES,
    WOKEN_AT_ONCE,
)
from hyperbloom.turns import Turns

__all__ = ["Room", "Rooms"]


class Room:
    """One kind of thing. `bound`: of all together; `released`: called when less is held."""

    def __init__(self, bound: Callable[[], float], released: Callable[[], None]) -> None:
        self._bound = bound
        self._released = released
        #: Who holds any, on each level, and how many below a branch do.
        self._held: dict[Branch, int] = {}
        self._holders: dict[Branch, int] = {}

    @property
    def held(self) -> int:
        """What all together hold."""
        return next((held for one, held in self._held.items() if one.parent is None), 0)

    def of(self, share: Branch) -> int:
        """What a share, or all below a branch, holds."""
        return self._held.get(share, 0)

    def hold(self, share: Share, amount: int) -> None:
        """It holds so much more, or less."""
        one: Branch | None = share
        while one is not None:
            before = self._held.get(one, 0)
            after = before + amount
            if after:
                self._held[one] = after
            else:
                self._held.pop(one, None)
            if one.parent is not None and bool(before) != bool(after):
                self._count_holder(one.parent, 1 if after else -1)
            one = one.parent
        if amount < 0:
            self._released()

    def _count_holder(self, parent: Branch, change: int) -> None:
        holders = self._holders.get(parent, 0) + change
        if holders:
            self._holders[parent] = holders
        else:
            self._holders.pop(parent, None)

    def allows(self, share: Share) -> bool:
        """Whether a share may hold more."""
        line = [*share.line()]
        allowed = self._bound()
        one: Branch | None = line[-1].parent
        while one is not None:
            held = self._held.get(one, 0)
            if 2 * held < allowed:
                return True
            if held >= allowed and one.parent is not None:
                return False
            if not line:
                return held < allowed
            below = line.pop()
            holders = self._holders.get(one, 0) + (below not in self._held)
            allowed, one = allowed / 2 / holders, below
        return True


class Rooms:
    """What is bounded. unwritten: bytes of values that wait for the disk, with what each costs
    there. asked: bytes of questions that wait for an answer. unsent: bytes written to connections
    that are full. filters: those kept unpacked.
    """

    def __init__(self, clock: IReactorTime, most_unwritten: Callable[[], float]) -> None:
        self._clock = clock
        self.unwritten = Room(most_unwritten, self._released)
        self.asked = Room(lambda: MAX_ALL_ASKED_BYTES, self._released)
        self.unsent = Room(lambda: MAX_ALL_UNSENT_BYTES, self._released)
        self.filters = Room(lambda: MAX_ALL_FILTERS, lambda: None)
        self._waiting: Turns[Share] = Turns()
        self._call: IDelayedCall | None = None

    def has(self, share: Share) -> bool:
        """Whether a share holds anything."""
        return any(
            room.of(share) for room in (self.unwritten, self.asked, self.unsent, self.filters)
        )

    def wait(self, share: Share) -> None:
        """Have those who wait for this share look again when something is released."""
        if share.path not in self._waiting:
            self._waiting.add(share.path, share)

    def _released(self) -> None:
        if self._waiting and self._call is None:
            self._call = self._clock.callLater(0, self._wake)

    def _wake(self) -> None:
        self._call = None
        for _ in range(min(len(self._waiting), WOKEN_AT_ONCE)):
            self._waiting.pop().wake()
